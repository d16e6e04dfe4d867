// How long the vectors are that each part adds to the residual stream.

import { largest, merge, unitsOf } from "./data.js";
import { choice, h, number, svg, token, widthOf } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { View } from "./view.js";
import { filled } from "./words.js";

const PARTS = ["attention", "cross", "mlp"];

export class NormsView extends View {
  static title = "norms";

  static has(data) {
    return Boolean(data.norms && Object.keys(data.norms).length);
  }

  partName(part) {
    const { words } = this;
    return { attention: words.attention, cross: words.crossPart, mlp: words.mlp }[part];
  }

  /** The mean of each part over all tokens, as bars. */
  bars(norms, parts, mean) {
    const { words, panel } = this;
    const layers = norms.entering.length;
    const top = Math.max(...parts.flatMap((part) => norms.parts[part].map((_, layer) => mean(part, layer)))) || 1;
    const labels = Math.max(...parts.map((part) => widthOf(this.partName(part)))) + 14;
    const wide = Math.max(120, Math.min(420, (panel.width() > 860 ? panel.width() * 0.4 : panel.width()) - labels - 70));
    const chart = svg("svg", { class: "bars", width: labels + wide + 60, height: layers * (parts.length * 20 + 30) + 6, role: "img", "aria-label": words.meanLength });
    let y = 0;
    for (let layer = 0; layer < layers; layer++) {
      const entering = norms.entering[layer].reduce((a, b) => a + b, 0) / norms.entering[layer].length;
      chart.append(svg("text", { class: "heading", x: 0, y: y + 15 }, `${filled(words.layerN, layer)}  (${words.stream} ${number(entering, 1)})`));
      y += 22;
      for (const part of parts) {
        const length = mean(part, layer);
        chart.append(svg("text", { x: labels - 8, y: y + 10, "text-anchor": "end", "dominant-baseline": "central" }, this.partName(part)));
        chart.append(svg("rect", { class: `part ${part}`, x: labels, y: y + 2, width: Math.max(1, (wide * length) / top), height: 15 }));
        chart.append(svg("text", { x: labels + (wide * length) / top + 6, y: y + 10, "dominant-baseline": "central" }, number(length)));
        y += 20;
      }
      y += 8;
    }
    return chart;
  }

  /** Each part at each token; a unit has the mean of its tokens. */
  table(stack, norms, parts, value) {
    const { words, data, state, panel } = this;
    const axis = stack === "encoder" && data.sides.source ? "source" : "read";
    const units = unitsOf(data.sides[axis], state.unit);
    const count = data.sides[axis].pieces.length;
    const rows = norms.entering.flatMap((_, layer) => parts.map((part) => `${layer} ${this.partName(part)}`));
    // The columns of a unit are averaged like queries, so they stand as rows while they are merged.
    const turned = new Float32Array(rows.length * count);
    norms.entering.forEach((_, layer) => parts.forEach((part, p) => {
      for (let at = 0; at < count; at++) turned[at * rows.length + layer * parts.length + p] = value(part, layer, at);
    }));
    const each = { labels: rows, starts: rows.map((_, i) => i) };
    const merged = merge({ values: turned, rows: count, columns: rows.length }, units, each);
    const map = { values: new Float32Array(merged.values.length), rows: rows.length, columns: units.labels.length };
    for (let i = 0; i < map.rows; i++) for (let j = 0; j < map.columns; j++) map.values[i * map.columns + j] = merged.values[j * map.rows + i];
    const unitOf = (position) => {
      let found = -1;
      if (position?.[0] === axis) units.starts.forEach((start, n) => (start <= position[1] ? (found = n) : null));
      return found;
    };
    const heldColumn = () => (state.held ? Math.max(unitOf(state.held.query), unitOf(state.held.key)) : -1);
    const drawn = new Heatmap({
      map,
      rows,
      plainRows: true,
      columns: units.labels,
      axes: [words.layer, words[`side_${axis}`]],
      scale: { kind: "one", most: largest(map.values) || 1, name: state.measure === "ratio" ? words.asRatio : words.asLength },
      masked: null,
      say: (i, j) => h("p", {}, token(units.labels[j]), ` · ${words.layer} ${rows[i]}: `, h("b", {}, number(map.values[i * map.columns + j], 3))),
      held: () => (heldColumn() < 0 ? null : [Math.min(this.heldRow ?? 0, rows.length - 1), heldColumn()]),
      setHold: (cell) => {
        this.heldRow = cell?.[0];
        panel.hold(cell ? { query: [axis, units.starts[cell[1]]], key: null } : null);
      },
      name: `${words[stack]}: ${words.norms}`,
      words,
      format: (v) => number(v, 1),
    });
    return { drawn, map, rows, columns: units.labels };
  }

  async draw() {
    const { words, data, state, panel } = this;
    const controls = choice(words.measure, [["length", words.asLength], ["ratio", words.asRatio]], state.measure, (measure) => panel.set({ measure }));
    const out = [h("div", { class: "controls" }, controls)];
    let sentence = null;
    for (const [stack, norms] of Object.entries(data.norms)) {
      const parts = PARTS.filter((part) => part in norms.parts);
      const value = (part, layer, at) => norms.parts[part][layer][at] / (state.measure === "ratio" ? norms.entering[layer][at] || 1 : 1);
      const mean = (part, layer) => norms.parts[part][layer].reduce((sum, _, at) => sum + value(part, layer, at), 0) / norms.parts[part][layer].length;
      const table = this.table(stack, norms, parts, value);
      const note = h("p", { class: "note" }, state.measure === "ratio" ? words.ratioAbout : words.meanLength);
      out.push(h("section", { class: "stack" }, h("h3", {}, words[stack]), note, h("div", { class: "twocolumns charts" }, h("div", { class: "scroll" }, this.bars(norms, parts, mean)), this.keep(table.drawn))));
      const most = table.map.values.indexOf(largest(table.map.values));
      const where = { row: table.rows[Math.floor(most / table.map.columns)], token: table.columns[most % table.map.columns], value: number(table.map.values[most]) };
      sentence = filled(state.measure === "ratio" ? words.normsReadRatio : words.normsRead, where);
    }
    return [this.howTo(sentence), ...out];
  }
}
