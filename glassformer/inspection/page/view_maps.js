// The grid of all maps, and one of them large.

import { clearestCell, furthest, headMap, headName, mapSentence, mergedMap, tapName, weightMap, weightScale } from "./attention.js";
import { difference, distance } from "./beside.js";
import { paint } from "./colours.js";
import { matrix, unpack } from "./data.js";
import { choice, h, number, token } from "./elements.js";
import { pooled } from "./heatmap.js";
import { heldCell, holdCell } from "./held.js";
import { filled } from "./words.js";
import { View } from "./view.js";

/** A rise of the loss in at most five characters. */
function rise(loss) {
  const text = number(loss, Math.abs(loss) < 0.995 ? 2 : 1);
  return loss > 0 && Number(text) !== 0 ? `+${text}` : text;
}

const FAR = 0.25; // heads that look so far apart are outlined
const THUMB = 64; // cells of a small map on a side

export class MapsView extends View {
  static title = "maps";

  static has() {
    return true;
  }

  /** Every head of a kind: a row a layer, a column a head, in the units and colours of the large map. */
  async thumbnails(kind) {
    const { words, data, state, panel } = this;
    const attention = data.attentions[kind];
    const heads = Math.max(1, ...attention.layers.map((layer) => Math.max(0, ...layer.head_ids) + 1));
    const grid = h("div", { class: "thumbs", role: "grid", "aria-label": words[`${kind}Long`], style: { "--heads": heads } });
    grid.append(h("div", { class: "thumbrow captions", "aria-hidden": "true" }, h("span", {}, ""), Array.from({ length: heads }, (_, head) => h("span", { class: "layer" }, String(head)))));
    for (const [l, layer] of attention.layers.entries()) {
      const row = h("div", { class: "thumbrow", role: "row" }, h("span", { class: "layer", role: "rowheader" }, `${l}`));
      const coarse = layer.thumbs && state.unit === "pieces";
      const array = await unpack(coarse ? layer.thumbs : layer.weights);
      for (const [at, number_] of layer.head_ids.entries()) {
        const whole = coarse ? { map: matrix(array, at), masked: null } : mergedMap(panel, matrix(array, at), attention.queries, attention.keys, attention);
        const small = Math.max(whole.map.rows, whole.map.columns) <= THUMB;
        row.append(this.thumbnail(kind, l, at, number_, small ? whole.map : pooled(whole.map, THUMB), small ? whole.masked : null, coarse ? null : await this.lessTheOther(kind, l, at, whole)));
      }
      if (!layer.head_ids.length) row.append(h("span", { class: "note", style: { gridColumn: "2 / -1" } }, words.noHeads));
      grid.append(row);
    }
    return grid;
  }

  thumbnail(kind, layer, head, place, map, masked, less) {
    const { data, state, words, panel } = this;
    const canvas = h("canvas", { "aria-hidden": "true" });
    paint(canvas, map, weightScale(panel), masked);
    const name = headName(panel, kind, layer, head);
    const worth = data.importance?.[tapName(data, kind, layer, head)];
    const badge = worth ? h("span", { class: `badge${worth.loss >= 0.005 ? " some" : ""}` }, rise(worth.loss)) : null;
    const apart = less ? distance(less) : null;
    if (less) this.apart.push({ kind, layer, head, value: apart });
    const away = less ? h("span", { class: `badge${apart >= FAR ? " far" : ""}` }, `Δ ${number(apart)}`) : null;
    const pressed = state.kind === kind && state.layer === layer && state.head === head;
    const title = worth ? `${name}. ${filled(words.worth, { loss: number(worth.loss, 3), kind: worth.kind })}` : name;
    const style = { gridColumn: place + 2 }; // a head keeps its place when others are pruned
    const attributes = { type: "button", class: `thumb${apart >= FAR ? " far" : ""}`, style, role: "gridcell", "aria-label": title, title, "aria-pressed": String(pressed) };
    return h("button", { ...attributes, "data-kind": kind, "data-layer": layer, "data-head": head, onclick: () => panel.set({ kind, layer, head }) }, canvas, badge, away);
  }

  /** This head less the same head of the report on the left, between the tokens that both have; null where there is none. */
  async lessTheOther(kind, layer, head, ours) {
    const { panel, state, words } = this;
    const { other } = panel;
    if (panel.index !== 1 || other?.attentions[kind]?.layers[layer]?.head_ids[head] === undefined) return null;
    return difference(ours, await headMap({ data: other, state, words }, kind, layer, head));
  }

  async differenceMap(ours) {
    const { panel, state, words } = this;
    if (panel.index !== 1) return [];
    const found = await this.lessTheOther(state.kind, state.layer, state.head, ours);
    if (!found) return [h("p", { class: "note" }, words.notComparable)];
    const { map, masked } = found;
    const [rows, columns] = [found.rows.map((i) => ours.rows[i]), found.columns.map((j) => ours.columns[j])];
    const say = (i, j) => h("p", {}, token(rows[i]), ` ${words.looksAt} `, token(columns[j]), ": ", h("b", {}, number(map.values[i * map.columns + j], 3)));
    const held = () => {
      const cell = heldCell(panel, ...ours.sides);
      const row = cell ? found.rows.indexOf(cell[0]) : -1;
      const column = cell && cell[1] !== null ? found.columns.indexOf(cell[1]) : -1;
      return row < 0 ? null : [row, column < 0 ? null : column];
    };
    const setHold = (cell) => holdCell(panel, ...ours.sides, cell && [found.rows[cell[0]], cell[1] === null ? null : found.columns[cell[1]]]);
    const scale = { kind: "sign", most: furthest(map.values) || 1, name: words.difference };
    const drawn = weightMap(panel, { ...ours, map, masked, rows, columns }, words.difference, { scale, say, held, setHold, format: (value) => number(value, 2) });
    return [h("h3", {}, words.difference), found.whole ? null : h("p", { class: "note" }, words.commonOnly), this.keep(drawn)];
  }

  /** The worked sentence of two reports: the head that looks elsewhere. */
  apartSentence() {
    const { panel, words } = this;
    const [furthestApart] = [...this.apart].sort((a, b) => b.value - a.value);
    return furthestApart ? filled(words.besideRead, { head: headName(panel, furthestApart.kind, furthestApart.layer, furthestApart.head), value: number(furthestApart.value) }) : null;
  }

  async draw() {
    const { words, data, state, panel } = this;
    const sections = [];
    this.apart = [];
    for (const kind of Object.keys(data.attentions)) sections.push(h("section", {}, h("h3", {}, words[`${kind}Long`]), await this.thumbnails(kind)));
    const scales = [["one", words.scaleOne], ["root", words.scaleRoot], ["row", words.scaleRow]];
    const colours = choice(words.colour, scales, state.scale, (scale) => panel.set({ scale }));
    const large = h("div", { class: "large" });
    let sentence = null;
    if (data.attentions[state.kind].layers[state.layer].head_ids.length) {
      const found = await headMap(panel, state.kind, state.layer, state.head);
      const name = headName(panel, state.kind, state.layer, state.head);
      sentence = mapSentence(panel, found, words.mapsRead);
      large.append(h("h3", {}, name, " ", h("code", { class: "note" }, tapName(data, state.kind, state.layer, state.head))), this.keep(weightMap(panel, found, name, { example: this.apart.length ? null : clearestCell(found) })));
      for (const part of await this.differenceMap(found)) if (part) large.append(part);
    } else large.append(h("p", {}, words.noHeads));
    const legend = Object.keys(data.importance ?? {}).length ? h("p", { class: "note" }, words.badges) : null;
    const legends = [legend, this.apart.length ? h("p", { class: "note" }, words.apart) : null];
    return [h("div", { class: "controls" }, colours), this.howTo(this.apartSentence() ?? sentence), h("div", { class: "twocolumns" }, h("div", { class: "grids" }, sections, legends), large)];
  }
}
