// One query of one head, step by step, in numbers.

import { furthest, headControls, headName, tapName } from "./attention.js";
import { css, inkOn, paintSigns, signColour, sizeColour } from "./colours.js";
import { attend, matrix, unpack } from "./data.js";
import { h, number, select, share, shortened, token, visible } from "./elements.js";
import { legend } from "./heatmap.js";
import { pieceAt, positionOf } from "./held.js";
import { View } from "./view.js";
import { filled } from "./words.js";

const MOST = 80; // keys in the table; of a longer text the strongest

/** A vector in numbers. */
function cells(values, top) {
  return Array.from(values, (value, d) => {
    const colour = signColour(value / (top || 1));
    return h("td", { class: "value", style: { background: css(colour), color: inkOn(colour) }, title: String(d) }, number(value));
  });
}

/** A vector in colours. */
function strip(values, top) {
  const canvas = h("canvas", { class: "vector", style: { width: `${Math.max(48, Math.min(7 * values.length, 320))}px` } });
  paintSigns(canvas, values, top);
  return canvas;
}

async function headNumbers(panel) {
  const { data, state } = panel;
  const attention = data.attentions[state.kind];
  const layer = attention.layers[state.layer];
  if (!layer.q) return null;
  const [q, k, v] = [await unpack(layer.q), await unpack(layer.k), await unpack(layer.v)];
  const shared = layer.kv_head_of[state.head];
  const window_ = attention.window ?? Infinity;
  const slope = layer.slopes ? layer.slopes[state.head] : null; // ALiBi's
  const biases = layer.biases ? layer.biases[state.head] : null; // T5's, by distance
  return {
    q: matrix(q, state.head),
    k: matrix(k, shared),
    v: matrix(v, shared),
    scaled: attention.scaled,
    slope,
    bias: biases ? (i, j) => biases[j - i + (biases.length - 1) / 2] : slope !== null ? (i, j) => -slope * Math.abs(i - j) : null,
    allowed: (i, j) => (!attention.causal || j <= i) && Math.abs(i - j) < window_,
  };
}

export class HeadView extends View {
  static title = "head";

  static has(data) {
    return Object.values(data.attentions).some((attention) => attention.layers.some((layer) => layer.q));
  }

  holds() {
    return false; // another query or key: other numbers
  }

  /** Query and key by number: those that are held, else the last query and its strongest key. */
  pick(head, queries, keys) {
    const { data, state } = this;
    const attention = data.attentions[state.kind];
    const held = pieceAt(data, attention.queries, state.held?.query);
    const query = held >= 0 ? held : queries.length - 1;
    const found = attend(head, query);
    const heldKey = held >= 0 ? pieceAt(data, attention.keys, state.held?.key) : -1;
    return { query, found, key: heldKey >= 0 ? heldKey : found.weights.indexOf(Math.max(...found.weights)) };
  }

  choose(query, key) {
    const { data, state, panel } = this;
    const attention = data.attentions[state.kind];
    panel.hold({ query: positionOf(data, attention.queries, query), key: key === null ? null : positionOf(data, attention.keys, key) });
  }

  /** Query times key, number by number. */
  product(head, query, key, queries, keys) {
    const size = head.q.columns;
    const q = head.q.values.subarray(query * size, (query + 1) * size);
    const k = head.k.values.subarray(key * size, (key + 1) * size);
    const products = q.map((value, d) => value * k[d]);
    const table = h(
      "table",
      { class: "numbers" },
      h("tr", {}, h("th", { scope: "row" }, "q ", token(queries[query])), cells(q, furthest(q))),
      h("tr", {}, h("th", { scope: "row" }, "k ", token(keys[key])), cells(k, furthest(head.k.values))),
      h("tr", {}, h("th", { scope: "row" }, this.words.product), cells(products, furthest(products))),
    );
    return [h("div", { class: "scroll" }, table), this.legends(["q", furthest(q)], ["k", furthest(head.k.values)], [this.words.product, furthest(products)])];
  }

  /** A legend for each of some scales: [name, largest]; of weights, which have no sign, with 1. */
  legends(...scales) {
    const one = ([name, most]) => legend({ kind: name === "softmax" ? "one" : "sign", most, name }, (value) => number(value, 1), this.words, false);
    return h("div", { class: "legends" }, scales.map(one));
  }

  formula(head, found, query, key) {
    const { words } = this;
    const size = head.q.columns;
    const steps = [`q·k = ${words.sum} = ${number(found.products[key])}`];
    if (head.scaled) steps.push(`÷ √${size} (${number(Math.sqrt(size))}) = ${number(found.products[key] / Math.sqrt(size))}`);
    if (head.bias && head.slope === null) steps.push(`+ (${number(head.bias(query, key))}) = ${number(found.scores[key])}`);
    if (head.slope !== null) steps.push(`− ${head.slope.toFixed(4)} × ${Math.abs(query - key)} = ${number(found.scores[key])}`);
    steps.push(found.allowed[key] ? `exp ÷ ${words.sum} = ${share(found.weights[key])}` : `${words.hidden}: 0`);
    return h("p", { class: "formula" }, steps.map((step) => h("span", {}, step)));
  }

  /** All keys: score, mask, softmax, value. */
  table(head, found, query, key, keys, shown) {
    const { words } = this;
    const size = head.q.columns;
    const captions = [words.keyToken, `k (${size})`, words.dot, head.scaled ? `÷ √${size}` : words.unscaled];
    if (head.bias) captions.push(words.biased);
    captions.push(words.mask, "softmax", `v (${head.v.columns})`);
    const [topK, topV] = [furthest(head.k.values), furthest(head.v.values)];
    const rows = keys.map((text, j) => {
      if (!shown.has(j)) return null;
      const colour = sizeColour(found.weights[j]);
      const vector = head.k.values.subarray(j * size, (j + 1) * size);
      const value = head.v.values.subarray(j * head.v.columns, (j + 1) * head.v.columns);
      return h(
        "tr",
        { class: `${j === key ? "lit" : ""} ${found.allowed[j] ? "" : "hidden"}`, onclick: () => this.choose(query, j) },
        h("th", { scope: "row" }, token(text)),
        h("td", {}, strip(vector, topK)),
        h("td", { class: "number" }, number(found.products[j])),
        h("td", { class: "number" }, number(head.scaled ? found.products[j] / Math.sqrt(size) : found.products[j])),
        head.bias ? h("td", { class: "number" }, number(found.scores[j])) : null,
        h("td", {}, found.allowed[j] ? words.seen : words.hidden),
        h("td", { class: "number", style: { background: css(colour), color: inkOn(colour) } }, share(found.weights[j])),
        h("td", { class: "after" }, strip(value, topV)),
      );
    });
    return h("table", { class: "steps" }, h("thead", {}, h("tr", {}, captions.map((text, i) => h("th", { scope: "col", class: i === captions.length - 1 ? "after" : "" }, text)))), h("tbody", {}, rows));
  }

  async draw() {
    const { words, data, state, panel } = this;
    const attention = data.attentions[state.kind];
    const layer = attention.layers[state.layer];
    const controls = h("div", { class: "controls" }, headControls(panel));
    const head = layer.head_ids.length ? await headNumbers(panel) : null;
    if (!head) return [controls, h("p", {}, layer.head_ids.length ? words.withheld : words.noHeads)];
    const queries = data.sides[attention.queries].pieces;
    const keys = data.sides[attention.keys].pieces;
    const { query, key, found } = this.pick(head, queries, keys);
    const option = (text, i) => [i, `${i}: ${shortened(visible(text), 14)}`];
    controls.append(
      select(words.queryToken, queries.map(option), query, (i) => this.choose(Number(i), null)),
      select(words.keyToken, keys.map(option), key, (j) => this.choose(query, Number(j))),
    );
    const strongest = found.weights.map((w, j) => [w, j]).sort((a, b) => b[0] - a[0]).slice(0, MOST);
    const shown = new Set([key, ...strongest.map(([, j]) => j)]);
    const own = matrix(await unpack(layer.weights), state.head);
    const gap = Math.max(...found.weights.map((w, j) => Math.abs(w - own.values[query * own.columns + j])));
    const sentence = filled(words.headRead, { query: queries[query], key: keys[key], product: number(found.products[key]), score: number(found.scores[key]), weight: share(found.weights[key]) });
    return [
      controls,
      h("h3", {}, headName(panel, state.kind, state.layer, state.head), " ", h("code", { class: "note" }, tapName(data, state.kind, state.layer, state.head))),
      this.howTo(sentence),
      h("h4", {}, `${words.stepScores} `, token(keys[key])),
      ...this.product(head, query, key, queries, keys),
      this.formula(head, found, query, key),
      h("h4", {}, words.stepAll),
      keys.length > MOST ? h("p", { class: "note" }, filled(words.strongestKeys, `${shown.size} / ${keys.length}`)) : null,
      h("div", { class: "scroll" }, this.table(head, found, query, key, keys, shown)),
      this.legends(["k", furthest(head.k.values)], ["softmax", 1], ["v", furthest(head.v.values)]),
      h("h4", {}, words.stepSum),
      h("div", { class: "scroll" }, h("table", { class: "numbers" }, h("tr", {}, h("th", { scope: "row" }, words.result), cells(found.result, furthest(head.v.values))))),
      this.legends([words.valuesLegend, furthest(head.v.values)]),
      h("p", { class: "note", "data-gap": gap }, `${words.recomputed} ${gap < 0.0001 ? "0.0001" : gap.toFixed(4)}. ${words.piecesOnly}`),
    ];
  }
}
