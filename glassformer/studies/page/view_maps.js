// The grid of all maps, and one of them large.

import { headMap, headName, mapSentence, mergedMap, tapName, weightMap, weightScale, furthest } from "./attention.js";
import { paint } from "./colours.js";
import { matrix, unpack } from "./data.js";
import { choice, h, number } from "./elements.js";
import { pooled } from "./heatmap.js";
import { filled } from "./words.js";
import { View } from "./view.js";

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
      layer.head_ids.forEach((number_, at) => {
        const whole = coarse ? { map: matrix(array, at), masked: null } : mergedMap(panel, matrix(array, at), attention.queries, attention.keys, attention);
        const small = Math.max(whole.map.rows, whole.map.columns) <= THUMB;
        row.append(this.thumbnail(kind, l, at, number_, small ? whole.map : pooled(whole.map, THUMB), small ? whole.masked : null));
      });
      if (!layer.head_ids.length) row.append(h("span", { class: "note", style: { gridColumn: "2 / -1" } }, words.noHeads));
      grid.append(row);
    }
    return grid;
  }

  thumbnail(kind, layer, head, place, map, masked) {
    const { data, state, words, panel } = this;
    const canvas = h("canvas", { "aria-hidden": "true" });
    paint(canvas, map, weightScale(panel), masked);
    const name = headName(panel, kind, layer, head);
    const worth = data.importance?.[tapName(data, kind, layer, head)];
    const badge = worth ? h("span", { class: `badge${worth.loss > 0 ? "" : " none"}` }, number(worth.loss, Math.abs(worth.loss) < 0.995 ? 2 : 1)) : null;
    const pressed = state.kind === kind && state.layer === layer && state.head === head;
    const title = worth ? `${name}. ${filled(words.worth, { loss: number(worth.loss, 3), kind: worth.kind })}` : name;
    const style = { gridColumn: place + 2 }; // a head keeps its place when others are pruned
    const attributes = { type: "button", class: "thumb", style, role: "gridcell", "aria-label": title, title, "aria-pressed": String(pressed) };
    return h("button", { ...attributes, "data-kind": kind, "data-layer": layer, "data-head": head, onclick: () => panel.set({ kind, layer, head }) }, canvas, badge);
  }

  /** The same head of the two reports, one less the other, where they read the same tokens. */
  async difference(found) {
    const { panel, state, words } = this;
    const { kind, layer, head } = state;
    const beside = panel.other;
    if (panel.index !== 1 || beside?.attentions[kind]?.layers[layer]?.head_ids[head] === undefined) return null;
    const theirs = await headMap({ data: beside, state, words }, kind, layer, head);
    if (theirs.map.rows !== found.map.rows || theirs.map.columns !== found.map.columns) return h("p", { class: "note" }, words.notComparable);
    const values = found.map.values.map((value, i) => value - theirs.map.values[i]);
    const scale = { kind: "sign", most: furthest(values) || 1 };
    const map = { values, rows: found.map.rows, columns: found.map.columns };
    const say = (i, j) => h("p", {}, `${found.rows[i]} → ${found.columns[j]}: `, h("b", {}, number(values[i * map.columns + j], 3)));
    const drawn = weightMap(panel, { ...found, map }, words.difference, { scale, say, format: (value) => number(value, 2) });
    return [h("h3", {}, words.difference), this.keep(drawn)];
  }

  async draw() {
    const { words, data, state, panel } = this;
    const sections = [];
    for (const kind of Object.keys(data.attentions)) sections.push(h("section", {}, h("h3", {}, words[`${kind}Long`]), await this.thumbnails(kind)));
    const scales = [["one", words.scaleOne], ["root", words.scaleRoot], ["row", words.scaleRow]];
    const colours = choice(words.colour, scales, state.scale, (scale) => panel.set({ scale }));
    const large = h("div", { class: "large" });
    let sentence = null;
    if (data.attentions[state.kind].layers[state.layer].head_ids.length) {
      const found = await headMap(panel, state.kind, state.layer, state.head);
      const name = headName(panel, state.kind, state.layer, state.head);
      sentence = mapSentence(panel, found, words.mapsRead);
      large.append(h("h3", {}, name, " ", h("code", { class: "note" }, tapName(data, state.kind, state.layer, state.head))), this.keep(weightMap(panel, found, name)));
      for (const part of [await this.difference(found)].flat()) if (part) large.append(part);
    } else large.append(h("p", {}, words.noHeads));
    const legend = Object.keys(data.importance ?? {}).length ? h("p", { class: "note" }, words.badges) : null;
    return [h("div", { class: "controls" }, colours), this.howTo(sentence), h("div", { class: "twocolumns" }, h("div", { class: "grids" }, sections, legend), large)];
  }
}
