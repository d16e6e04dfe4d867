// What the views of attention share: names of heads, their maps in the units shown, masks, and what a cell says.

import { matrix, merge, strongest, unitsOf, unpack } from "./data.js";
import { h, isControl, select, share, token } from "./elements.js";
import { heldCell, holdCell } from "./held.js";
import { Heatmap } from "./heatmap.js";
import { filled } from "./words.js";

/** The title of a head. Layers and heads are counted from 0, as in Python. */
export function headName(panel, kind, layer, head) {
  const { words, data } = panel;
  const number = data.attentions[kind].layers[layer].head_ids[head];
  return `${words[`${kind}Long`]} · ${filled(words.layerN, layer)} · ${filled(words.headN, number)}`;
}

/** The same head as `heads`, `compare` and Python call it. */
export function tapName(data, kind, layer, head) {
  const number = data.attentions[kind].layers[layer].head_ids[head];
  return kind === "cross" ? `decoder.${layer}.cross:${number}` : `${kind}.${layer}.attention:${number}`;
}

/** A byte a cell, 1 where a query may not look at a key; null where all may. */
export function maskOf(attention, rows, columns) {
  if (!attention.causal && !attention.window) return null;
  const masked = new Uint8Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const hidden = (attention.causal && j > i) || Math.abs(i - j) >= (attention.window ?? Infinity);
      masked[i * columns + j] = hidden ? 1 : 0;
    }
  }
  return masked;
}

/** A map between two sides in the units shown, with labels, and what is masked in it. */
export function mergedMap(panel, map, querySide, keySide, attention = null) {
  const queries = unitsOf(panel.data.sides[querySide], panel.state.unit);
  const keys = unitsOf(panel.data.sides[keySide], panel.state.unit);
  let masked = attention ? maskOf(attention, map.rows, map.columns) : null;
  if (masked && (queries.starts.length !== map.rows || keys.starts.length !== map.columns)) {
    const open = { values: Float32Array.from(masked, (m) => 1 - m), rows: map.rows, columns: map.columns };
    masked = Uint8Array.from(merge(open, queries, keys).values, (value) => (value > 0 ? 0 : 1));
  }
  return { map: merge(map, queries, keys), rows: queries.labels, columns: keys.labels, masked, sides: [querySide, keySide] };
}

/** The weights of one head. */
export async function headMap(panel, kind, layer, head) {
  const attention = panel.data.attentions[kind];
  return mergedMap(panel, matrix(await unpack(attention.layers[layer].weights), head), attention.queries, attention.keys, attention);
}

/** The mean of every head of a kind that is left. */
export async function meanMap(panel, kind) {
  const attention = panel.data.attentions[kind];
  let sum = null;
  let count = 0;
  for (const layer of attention.layers) {
    const array = await unpack(layer.weights);
    for (let head = 0; head < layer.head_ids.length; head++) {
      const map = matrix(array, head);
      sum ??= { values: new Float32Array(map.values.length), rows: map.rows, columns: map.columns };
      for (let i = 0; i < map.values.length; i++) sum.values[i] += map.values[i];
      count++;
    }
  }
  if (!sum) return null;
  for (let i = 0; i < sum.values.length; i++) sum.values[i] /= count;
  return mergedMap(panel, sum, attention.queries, attention.keys, attention);
}

/** The scale of weights that the reader has chosen. */
export function weightScale(panel) {
  const { state, words } = panel;
  return { kind: state.scale, most: 1, name: { one: words.weight, root: `${words.weight}; ${words.rootScale}`, row: `${words.weight}; ${words.rowScale}` }[state.scale] };
}

/** What a cell says, and the strongest of its row. */
export function readCell(panel, { map, rows, columns, masked }, i, j) {
  const { words } = panel;
  const best = strongest(map, i, 5).map(([w, at]) => h("span", { class: "pair" }, token(columns[at]), " ", h("b", {}, share(w))));
  const here = masked?.[i * map.columns + j] ? h("b", {}, words.maskedCell) : h("b", {}, share(map.values[i * map.columns + j]));
  return h(
    "div",
    {},
    h("p", {}, token(rows[i]), ` ${words.looksAt} `, token(columns[j]), ": ", here),
    h("p", { class: "strongest" }, h("span", { class: "caption" }, words.most), best),
  );
}

/** A heat map of weights whose cells can be held in all views. */
export function weightMap(panel, found, name, more = {}) {
  const [queries, keys] = found.sides;
  return new Heatmap({
    ...found,
    axes: [panel.words.queryAxis, panel.words.keyAxis],
    scale: weightScale(panel),
    say: (i, j) => readCell(panel, found, i, j),
    held: () => heldCell(panel, queries, keys),
    setHold: (cell) => holdCell(panel, queries, keys, cell),
    name,
    words: panel.words,
    format: (value) => String(value),
    ...more,
  });
}

/**
 * The clearest cell of a map, of a token that had a choice: where one is twice as strong as an even share, that of two different
 * words, since a token that looks at itself or at a control token tells little.
 */
export function clearestCell({ map, rows, columns, masked }) {
  let [best, telling] = [null, null];
  for (let i = 0; i < map.rows; i++) {
    let choices = 0;
    for (let j = 0; j < map.columns; j++) choices += masked?.[i * map.columns + j] ? 0 : 1;
    if (choices < 2) continue;
    const [[weight, j]] = strongest(map, i, 1);
    const cell = { weight, i, j, choices };
    if (!best || weight > best.weight) best = cell;
    const tells = rows[i] !== columns[j] && !isControl(rows[i]) && !isControl(columns[j]) && weight >= 2 / choices;
    if (tells && (!telling || weight > telling.weight)) telling = cell;
  }
  return telling ?? best;
}

/** The worked sentence of a map, of its clearest cell. */
export function mapSentence(panel, found, template) {
  const { rows, columns } = found;
  const best = clearestCell(found);
  if (!best) return null;
  return filled(template, { query: rows[best.i], key: columns[best.j], weight: share(best.weight), even: share(1 / best.choices), choices: best.choices });
}

/** Which attention, layer and head. */
export function headControls(panel) {
  const { data, state, words } = panel;
  const attention = data.attentions[state.kind];
  const kinds = Object.keys(data.attentions).map((kind) => [kind, words[kind]]);
  return [
    select(words.kind, kinds, state.kind, (kind) => panel.set({ kind, layer: 0, head: 0 })),
    select(words.layer, attention.layers.map((_, layer) => [layer, String(layer)]), state.layer, (layer) => panel.set({ layer: Number(layer) })),
    select(words.headNumber, attention.layers[state.layer].head_ids.map((number, at) => [at, String(number)]), state.head, (at) => panel.set({ head: Number(at) })),
  ];
}

/** The largest size among numbers of either sign. */
export function furthest(values) {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
}

