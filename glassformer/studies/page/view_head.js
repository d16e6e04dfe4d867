// One query of one head, step by step, in numbers.

import { css, inkOn, paintSigns, signColour, sizeColour } from "./colours.js";
import { attend, matrix, unpack } from "./data.js";
import { h, number, select, share, shortened, token, visible } from "./elements.js";
import { headName } from "./view_maps.js";
import { filled } from "./words.js";

const MOST = 80; // keys in the table; of a longer text the strongest

/** A vector in numbers. */
function cells(values, top) {
  return Array.from(values, (value, d) => {
    const colour = signColour(value / (top || 1));
    return h("td", { class: "value", style: { background: css(colour), color: inkOn(colour) }, title: String(d + 1) }, number(value));
  });
}

/** A vector in colours. */
function strip(values, top) {
  const canvas = h("canvas", { class: "vector", style: { width: `${Math.max(48, Math.min(7 * values.length, 320))}px` } });
  paintSigns(canvas, values, top);
  return canvas;
}

function furthest(values) {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
}

async function headNumbers(page) {
  const { data, state } = page;
  const attention = data.attentions[state.kind];
  const layer = attention.layers[state.layer];
  if (!layer.q) return null;
  const [q, k, v] = [await unpack(layer.q), await unpack(layer.k), await unpack(layer.v)];
  const shared = layer.kv_head_of[state.head];
  const window_ = attention.window ?? Infinity;
  return {
    q: matrix(q, state.head),
    k: matrix(k, shared),
    v: matrix(v, shared),
    scaled: attention.scaled,
    slope: layer.slopes ? layer.slopes[state.head] : null,
    allowed: (i, j) => (!attention.causal || j <= i) && Math.abs(i - j) < window_,
  };
}

export async function drawHead(page) {
  const { words, data, state } = page;
  const attention = data.attentions[state.kind];
  const layer = attention.layers[state.layer];
  const kinds = Object.keys(data.attentions).map((kind) => [kind, words[kind]]);
  const controls = h(
    "div",
    { class: "controls" },
    select(words.kind, kinds, state.kind, (kind) => page.set({ kind, layer: 0, head: 0, query: null, key: null })),
    select(words.layer, attention.layers.map((_, l) => [l, String(l + 1)]), state.layer, (l) => page.set({ layer: Number(l) })),
    select(words.headNumber, layer.head_ids.map((n, at) => [at, String(n + 1)]), state.head, (at) => page.set({ head: Number(at) })),
  );
  const head = layer.head_ids.length ? await headNumbers(page) : null;
  if (!head) return [controls, h("p", {}, layer.head_ids.length ? words.withheld : words.noHeads)];
  const queries = data.sides[attention.queries].pieces;
  const keys = data.sides[attention.keys].pieces;
  const query = Math.min(state.query ?? queries.length - 1, queries.length - 1);
  const found = attend(head, query);
  const bestKey = found.weights.indexOf(Math.max(...found.weights));
  const key = Math.min(state.key ?? bestKey, keys.length - 1);
  controls.append(
    select(words.queryToken, queries.map((t, i) => [i, `${i + 1} ${shortened(visible(t), 14)}`]), query, (i) => page.set({ query: Number(i), key: null })),
    select(words.keyToken, keys.map((t, j) => [j, `${j + 1} ${shortened(visible(t), 14)}`]), key, (j) => page.set({ key: Number(j) })),
  );
  const size = head.q.columns;
  const q = head.q.values.subarray(query * size, (query + 1) * size);
  const k = head.k.values.subarray(key * size, (key + 1) * size);
  const products = q.map((value, d) => value * k[d]);
  const topQ = furthest(q);
  const topK = furthest(head.k.values);
  const topV = furthest(head.v.values);
  const first = h(
    "table",
    { class: "numbers" },
    h("tr", {}, h("th", { scope: "row" }, "q ", token(queries[query])), cells(q, topQ)),
    h("tr", {}, h("th", { scope: "row" }, "k ", token(keys[key])), cells(k, topK)),
    h("tr", {}, h("th", { scope: "row" }, words.product), cells(products, furthest(products))),
  );
  const root = number(Math.sqrt(size));
  const steps = [`q·k = ${words.sum} = ${number(found.products[key])}`];
  if (head.scaled) steps.push(`÷ √${size} (${root}) = ${number(found.products[key] / Math.sqrt(size))}`);
  if (head.slope !== null) steps.push(`− ${head.slope.toFixed(4)} × ${Math.abs(query - key)} = ${number(found.scores[key])}`);
  steps.push(found.allowed[key] ? `exp ÷ ${words.sum} = ${share(found.weights[key])}` : `${words.hidden}: 0`);
  const captions = [words.keyToken, `k (${size})`, words.dot, head.scaled ? `÷ √${size}` : words.unscaled];
  if (head.slope !== null) captions.push(words.biased);
  captions.push(words.mask, "softmax", `v (${head.v.columns})`);
  const strongest = found.weights.map((w, j) => [w, j]).sort((a, b) => b[0] - a[0]).slice(0, MOST);
  const shown = new Set([key, ...strongest.map(([, j]) => j)]);
  const rows = keys.map((text, j) => {
    if (!shown.has(j)) return null;
    const colour = sizeColour(found.weights[j] / Math.max(...found.weights));
    const vector = head.k.values.subarray(j * size, (j + 1) * size);
    const value = head.v.values.subarray(j * head.v.columns, (j + 1) * head.v.columns);
    return h(
      "tr",
      { class: `${j === key ? "lit" : ""} ${found.allowed[j] ? "" : "hidden"}`, onclick: () => page.set({ key: j }) },
      h("th", { scope: "row" }, token(text)),
      h("td", {}, strip(vector, topK)),
      h("td", { class: "number" }, number(found.products[j])),
      h("td", { class: "number" }, number(head.scaled ? found.products[j] / Math.sqrt(size) : found.products[j])),
      head.slope !== null ? h("td", { class: "number" }, number(found.scores[j])) : null,
      h("td", {}, found.allowed[j] ? words.seen : words.hidden),
      h("td", { class: "number", style: { background: css(colour), color: inkOn(colour) } }, share(found.weights[j])),
      h("td", { class: "after" }, strip(value, topV)),
    );
  });
  const own = matrix(await unpack(layer.weights), state.head);
  const gap = Math.max(...found.weights.map((w, j) => Math.abs(w - own.values[query * own.columns + j])));
  const last = h("table", { class: "numbers" }, h("tr", {}, h("th", { scope: "row" }, words.result), cells(found.result, topV)));
  return [
    controls,
    h("h3", {}, headName(page, state.kind, state.layer, state.head)),
    h("h4", {}, `${words.stepScores} `, token(keys[key])),
    h("div", { class: "scroll" }, first),
    h("p", { class: "formula" }, steps.map((step) => h("span", {}, step))),
    h("h4", {}, words.stepAll),
    keys.length > MOST ? h("p", { class: "note" }, filled(words.strongestKeys, `${shown.size} / ${keys.length}`)) : null,
    h("div", { class: "scroll" }, h("table", { class: "steps" }, h("thead", {}, h("tr", {}, captions.map((t, i) => h("th", { scope: "col", class: i === captions.length - 1 ? "after" : "" }, t)))), h("tbody", {}, rows))),
    h("h4", {}, words.stepSum),
    h("div", { class: "scroll" }, last),
    h("p", { class: "note", "data-gap": gap }, `${words.recomputed} ${gap < 0.0001 ? "0.0001" : gap.toFixed(4)}. ${words.piecesOnly}`),
  ];
}
