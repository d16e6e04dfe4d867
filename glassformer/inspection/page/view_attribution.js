// Who pushed the model to a token rather than to another: each part's term of the difference of their logits, the input
// tokens by gradients, and the neurons that fired.

import { furthest } from "./attention.js";
import { css, inkOn, signColour } from "./colours.js";
import { matrix, unpack } from "./data.js";
import { h, number, select, shortened, svg, visible, widthOf } from "./elements.js";
import { legend } from "./heatmap.js";
import { heldOutput, positionOf } from "./held.js";
import { View } from "./view.js";
import { filled } from "./words.js";

const TOP = 10; // parts in the list

/** Where a part stands: row (attention), column (head). */
function placeOf(part) {
  const [path, head] = part.split(":");
  const [stack, layer, kind] = path.split(".");
  return { row: `${stack}.${layer}.${kind}`, head: Number(head ?? 0), layer: Number(layer), kind };
}

export class AttributionView extends View {
  static title = "attribution";

  static has(data) {
    return Boolean(data.attribution);
  }

  holds() {
    return false; // another token: other terms
  }

  /** The output in question: the one that is held, else the least sure. */
  output() {
    const { outputs } = this.data;
    const held = heldOutput(this.panel);
    if (held >= 0) return held;
    return outputs.logprob.indexOf(Math.min(...outputs.logprob));
  }

  partName(part) {
    const { words } = this;
    return { embedding: words.embeddingPart, bias: words.biasPart, head: words.outputHead }[part] ?? part;
  }

  /** A cell for each head, a row for each attention, coloured by its term; MLPs and the rest beside them. */
  grid(parts, terms) {
    const { data, words, panel } = this;
    const top = furthest(terms) || 1;
    const heads = Math.max(1, ...parts.map((part) => placeOf(part).head + 1).filter(Number.isFinite));
    const rows = new Map();
    parts.forEach((part, i) => {
      if (!part.includes(":")) return;
      const { row, head } = placeOf(part);
      if (!rows.has(row)) rows.set(row, []);
      rows.get(row)[head] = [part, terms[i]];
    });
    const cell = (part, value) => {
      const colour = signColour(value / top);
      const go = () => {
        const { layer, kind } = placeOf(part);
        const found = part.startsWith("encoder") ? "encoder" : kind === "cross" ? "cross" : "decoder";
        const head = data.attentions[found].layers[layer].head_ids.indexOf(placeOf(part).head);
        panel.set({ view: "maps", kind: found, layer, head });
      };
      return h("td", { style: { background: css(colour), color: inkOn(colour) }, title: `${part} ${number(value, 3)}`, "data-part": part, tabindex: "0", onclick: part.includes(":") ? go : null }, number(value));
    };
    const captions = h("tr", {}, h("th", {}, `${words.attention} ↓ · ${words.headNumber} →`), Array.from({ length: heads }, (_, n) => h("th", { scope: "col" }, String(n))));
    const body = [...rows].map(([row, found]) => h("tr", {}, h("th", { scope: "row" }, row), Array.from({ length: heads }, (_, n) => (found[n] ? cell(...found[n]) : h("td", { class: "gone" })))));
    const rest = parts.map((part, i) => [part, terms[i]]).filter(([part]) => !part.includes(":"));
    const others = rest.map(([part, value]) => h("tr", {}, h("th", { scope: "row" }, this.partName(part)), cell(part, value)));
    return h("div", { class: "terms" }, h("table", { class: "grid" }, captions, body), h("table", { class: "grid" }, others));
  }

  /** The strongest terms as bars on both sides of zero. */
  bars(parts, terms) {
    const order = terms.map((value, i) => [value, parts[i]]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, TOP);
    const top = furthest(terms) || 1;
    const names = order.map(([, part]) => this.partName(part));
    const left = Math.max(...names.map((name) => widthOf(name))) + 60; // names, and the number of a bar to the left
    const wide = Math.max(110, Math.min(420, this.panel.width() - left - 60));
    const picture = svg("svg", { class: "pushes", width: left + wide + 50, height: order.length * 22 + 4, role: "img", "aria-label": this.words.strongestParts });
    const most = Math.max(0, ...order.map(([value]) => value)) / top;
    const least = Math.max(0, ...order.map(([value]) => -value)) / top;
    const unit = wide / (most + least || 1);
    const zero = left + least * unit;
    picture.append(svg("line", { class: "line", x1: zero, x2: zero, y1: 0, y2: order.length * 22 }));
    order.forEach(([value, part], i) => {
      const length = (Math.abs(value) / top) * unit;
      picture.append(svg("text", { x: left - 50, y: i * 22 + 12, "text-anchor": "end", "dominant-baseline": "central" }, names[i]));
      picture.append(svg("rect", { x: value < 0 ? zero - length : zero, y: i * 22 + 4, width: Math.max(1, length), height: 15, fill: css(signColour(Math.sign(value))) }));
      picture.append(svg("text", { x: value < 0 ? zero - length - 5 : zero + length + 5, y: i * 22 + 12, "text-anchor": value < 0 ? "end" : "start", "dominant-baseline": "central" }, number(value)));
    });
    return picture;
  }

  /** The tokens of a text, coloured by what they did. */
  async coloured(packed, at, title) {
    const { data } = this;
    const causal = Object.values(data.attentions).some((attention) => attention.causal);
    const last = causal ? data.outputs.positions[at] : Infinity; // nothing after it was read
    const rows = [];
    for (const [axis, array] of Object.entries(packed)) {
      const map = matrix(await unpack(array), 0);
      rows.push([axis, map.values.subarray(at * map.columns, (at + 1) * map.columns)]);
    }
    const top = Math.max(...rows.map(([, values]) => furthest(values))) || 1;
    const chips = ([axis, values]) =>
      h(
        "p",
        { class: "saliency" },
        h("span", { class: "caption" }, this.words[`side_${axis}`]),
        Array.from(values, (value, i) => {
          if (axis === "read" && i > last) return h("span", { class: "chip unread", title: this.words.unread }, visible(data.sides[axis].pieces[i]));
          const colour = signColour(value / top);
          return h("span", { class: "chip", style: { background: css(colour), color: inkOn(colour) }, title: number(value, 3), "data-value": value }, visible(data.sides[axis].pieces[i]));
        }),
      );
    return h("div", {}, h("h4", {}, title), rows.map(chips), legend({ kind: "sign", most: top }, (value) => number(value, 1), this.words, false));
  }

  /** The sum over all input tokens. */
  async total(packed, at) {
    let sum = 0;
    for (const array of Object.values(packed)) {
      const map = matrix(await unpack(array), 0);
      for (const value of map.values.subarray(at * map.columns, (at + 1) * map.columns)) sum += value;
    }
    return sum;
  }

  neurons(at) {
    const { data, words } = this;
    const rows = Object.entries(data.attribution.neurons).map(([mlp, outputs]) =>
      h("tr", {}, h("th", { scope: "row" }, mlp), h("td", {}, outputs[Math.min(at, outputs.length - 1)].map(([n, activation, push]) => h("span", { class: "pair neuron" }, `${n}: `, h("b", {}, `${push >= 0 ? "+" : ""}${number(push)}`), h("span", { class: "dim" }, ` (${number(activation)})`))))),
    );
    return h("div", { class: "scroll" }, h("table", { class: "answers" }, h("thead", {}, h("tr", {}, [words.mlp, words.neuronColumns].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows)));
  }

  async draw() {
    const { words, data, state, panel } = this;
    const { attribution, outputs, names, saliency } = data;
    const at = this.output();
    const tokens = attribution.tokens[at];
    const against = Math.max(1, Math.min(state.against ?? 1, tokens.length - 1));
    const options = outputs.tokens.map((id, i) => [i, `${outputs.positions[i]}: ${shortened(visible(names[id]), 12)}`]);
    const others = tokens.slice(1).map((id, k) => [k + 1, shortened(visible(names[id]), 14)]);
    const controls = h(
      "div",
      { class: "controls" },
      select(words.tokenInQuestion, options, at, (i) => panel.set({ against: 1, held: { query: positionOf(data, "written", Number(i)), key: null } })),
      select(words.againstToken, others, against, (k) => panel.set({ against: Number(k) })),
    );
    const array = await unpack(attribution.terms);
    const [, K, P] = array.shape;
    const term = (k) => array.values.subarray((at * K + k) * P, (at * K + k + 1) * P);
    const terms = Array.from(term(0), (value, i) => value - term(against)[i]);
    const sum = terms.reduce((a, b) => a + b, 0);
    const logits = attribution.logits[at][0] - attribution.logits[at][against];
    const best = terms.indexOf(Math.max(...terms));
    const facts = { token: names[tokens[0]], other: names[tokens[against]], difference: number(logits), part: this.partName(attribution.parts[best]), push: number(terms[best]) };
    const bent = attribution.parts.includes("head") ? h("p", { class: "note" }, words.bentHead) : null;
    const out = [
      controls,
      this.howTo(filled(words.attributionRead, facts)),
      h("h3", {}, words.termsTitle),
      h("p", { class: "sum", "data-sum": sum, "data-logits": logits }, filled(words.addsUp, { sum: number(sum, 3), logits: number(logits, 3) })),
      bent,
      h("div", { class: "pushed" }, h("div", { class: "scroll" }, this.grid(attribution.parts, terms)), h("div", { class: "scroll" }, h("h4", {}, words.strongestParts), this.bars(attribution.parts, terms))),
      legend({ kind: "sign", most: furthest(terms) || 1, name: words.pushLegend }, (value) => number(value, 1), words, false),
      h("p", { class: "note" }, words.attributionCaution),
    ];
    if (saliency) {
      out.push(h("h3", {}, words.saliencyTitle), h("p", { class: "note" }, words.saliencyCaution));
      out.push(await this.coloured(saliency.gradient, at, words.gradientInput));
      if (saliency.integrated) {
        out.push(await this.coloured(saliency.integrated, at, words.integratedGradients));
        out.push(h("p", { class: "note" }, filled(words.integratedSum, { sum: number(await this.total(saliency.integrated, at)), gained: number(saliency.gained[at]) })));
      } else out.push(h("p", { class: "note" }, words.tooLong));
    }
    out.push(h("h3", {}, words.neuronsTitle), h("p", { class: "note" }, words.neuronsAbout), this.neurons(at));
    return out;
  }
}
