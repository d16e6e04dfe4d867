// The grid of all maps, and one of them large.

import { paint } from "./colours.js";
import { largest, matrix, merge, strongest, unitsOf, unpack } from "./data.js";
import { choice, h, share, token } from "./elements.js";
import { heatmap } from "./heatmap.js";
import { filled } from "./words.js";

/** The title of a head. */
export function headName(page, kind, layer, head) {
  const { words, data } = page;
  const number = data.attentions[kind].layers[layer].head_ids[head];
  return `${words[`${kind}Long`]} · ${filled(words.layerN, layer + 1)} · ${filled(words.headN, number + 1)}`;
}

/** The same head as `heads`, `compare` and Python call it. */
function tapName(page, kind, layer, head) {
  const number = page.data.attentions[kind].layers[layer].head_ids[head];
  return kind === "cross" ? `decoder.${layer}.cross:${number}` : `${kind}.${layer}.attention:${number}`;
}

/** The weights of one head between the units that are chosen, with their labels. */
async function headMap(page, kind, layer, head) {
  const attention = page.data.attentions[kind];
  const map = matrix(await unpack(attention.layers[layer].weights), head);
  return mergedMap(page, map, attention.queries, attention.keys);
}

export function mergedMap(page, map, querySide, keySide) {
  const queries = unitsOf(page.data.sides[querySide], page.state.unit);
  const keys = unitsOf(page.data.sides[keySide], page.state.unit);
  return { map: merge(map, queries, keys), rows: queries.labels, columns: keys.labels };
}

/** What a cell says, and the strongest of its row. */
export function readCell(page, { map, rows, columns }, i, j) {
  const { words } = page;
  const best = strongest(map, i, 5).map(([w, at]) => h("span", { class: "pair" }, token(columns[at]), " ", h("b", {}, share(w))));
  return h(
    "div",
    {},
    h("p", {}, token(rows[i]), ` ${words.looksAt} `, token(columns[j]), ": ", h("b", {}, share(map.values[i * map.columns + j]))),
    h("p", { class: "strongest" }, h("span", { class: "caption" }, words.most), best),
  );
}

/** The thumbnails of one kind: a row a layer, a column a head. */
async function thumbnails(page, kind, pick) {
  const { words, data, state } = page;
  const attention = data.attentions[kind];
  const heads = Math.max(1, ...attention.layers.map((layer) => Math.max(0, ...layer.head_ids) + 1));
  const grid = h("div", { class: "thumbs", role: "grid", "aria-label": words[`${kind}Long`], style: { "--heads": heads } });
  for (const [l, layer] of attention.layers.entries()) {
    const row = h("div", { class: "thumbrow", role: "row" }, h("span", { class: "layer", role: "rowheader" }, `${l + 1}`));
    const array = await unpack(layer.thumbs ?? layer.weights);
    layer.head_ids.forEach((number, at) => {
      const map = matrix(array, at);
      const canvas = h("canvas", { "aria-hidden": "true" });
      paint(canvas, map, state.colour === "one" ? 1 : largest(map.values));
      const chosen = state.kind === kind && state.layer === l && state.head === at;
      const name = headName(page, kind, l, at);
      const button = h(
        "button",
        {
          type: "button",
          class: "thumb",
          style: { gridColumn: number + 2 }, // a head keeps its place when others are pruned
          role: "gridcell",
          "aria-label": name,
          title: name,
          "aria-pressed": String(chosen),
          "data-kind": kind,
          "data-layer": l,
          "data-head": at,
          onclick: () => pick(kind, l, at),
        },
        canvas,
      );
      row.append(button);
    });
    if (!layer.head_ids.length) row.append(h("span", { class: "note", style: { gridColumn: "2 / -1" } }, words.noHeads));
    grid.append(row);
  }
  return grid;
}

export async function drawMaps(page) {
  const { words, data, state } = page;
  const pick = (kind, layer, head) => page.set({ kind, layer, head, locked: null });
  const sections = [];
  for (const kind of Object.keys(data.attentions)) {
    sections.push(h("section", {}, h("h3", {}, words[`${kind}Long`]), await thumbnails(page, kind, pick)));
  }
  const colours = choice(words.colour, [["map", words.colourMap], ["one", words.colourOne]], state.colour, (colour) => page.set({ colour }));
  const large = h("div", { class: "large" });
  if (data.attentions[state.kind].layers[state.layer].head_ids.length) {
    const found = await headMap(page, state.kind, state.layer, state.head);
    const name = headName(page, state.kind, state.layer, state.head);
    large.append(
      h("h3", {}, name, " ", h("code", { class: "note" }, tapName(page, state.kind, state.layer, state.head))),
      heatmap({
        ...found,
        most: state.colour === "one" ? 1 : largest(found.map.values),
        say: (i, j) => readCell(page, found, i, j),
        locked: page.lockFor(found),
        lock: (cell) => page.remember({ locked: cell }),
        name,
        words,
        format: share,
      }),
    );
  } else large.append(h("p", {}, words.noHeads));
  return [h("div", { class: "controls" }, colours), h("div", { class: "twocolumns" }, h("div", { class: "grids" }, sections), large)];
}
