// How long the vectors are that each part adds to the residual stream.

import { largest, merge, unitsOf } from "./data.js";
import { choice, h, number, svg, token, widthOf } from "./elements.js";
import { heatmap } from "./heatmap.js";
import { filled } from "./words.js";

const PARTS = ["attention", "cross", "mlp"];

export async function drawNorms(page) {
  const { words, data, state } = page;
  const name = (part) => ({ attention: words.attention, cross: words.crossPart, mlp: words.mlp })[part];
  const controls = choice(words.measure, [["length", words.asLength], ["share", words.asShare]], state.measure, (measure) => page.set({ measure }));
  const out = [h("div", { class: "controls" }, controls)];
  for (const [stack, norms] of Object.entries(data.norms)) {
    const parts = PARTS.filter((part) => part in norms.parts);
    const layers = norms.entering.length;
    const side = data.sides[stack === "encoder" && data.sides.source ? "source" : "read"];
    const units = unitsOf(side, state.unit);
    const count = side.pieces.length;
    const value = (part, layer, at) => norms.parts[part][layer][at] / (state.measure === "share" ? norms.entering[layer][at] || 1 : 1);
    const mean = (part, layer) => norms.parts[part][layer].reduce((sum, _, at) => sum + value(part, layer, at), 0) / count;
    const top = Math.max(...parts.flatMap((part) => norms.parts[part].map((_, layer) => mean(part, layer)))) || 1;
    const labels = Math.max(...parts.map((part) => widthOf(name(part)))) + 14;
    const wide = Math.max(140, Math.min(420, (page.width() > 860 ? page.width() * 0.4 : page.width()) - labels - 70));
    const chart = svg("svg", { class: "bars", width: labels + wide + 60, height: layers * (parts.length * 20 + 30) + 6, role: "img", "aria-label": words.meanLength });
    let y = 0;
    for (let layer = 0; layer < layers; layer++) {
      const entering = norms.entering[layer].reduce((a, b) => a + b, 0) / count;
      chart.append(svg("text", { class: "heading", x: 0, y: y + 15 }, `${filled(words.layerN, layer + 1)}  (${words.stream} ${number(entering, 1)})`));
      y += 22;
      for (const part of parts) {
        const length = mean(part, layer);
        chart.append(svg("text", { x: labels - 8, y: y + 10, "text-anchor": "end", "dominant-baseline": "central" }, name(part)));
        chart.append(svg("rect", { class: `part ${part}`, x: labels, y: y + 2, width: Math.max(1, (wide * length) / top), height: 15 }));
        chart.append(svg("text", { x: labels + (wide * length) / top + 6, y: y + 10, "dominant-baseline": "central" }, number(length)));
        y += 20;
      }
      y += 8;
    }
    const rows = [];
    const values = new Float32Array(layers * parts.length * count);
    for (let layer = 0; layer < layers; layer++) {
      for (const part of parts) {
        for (let at = 0; at < count; at++) values[rows.length * count + at] = value(part, layer, at);
        rows.push(`${filled(words.layerN, layer + 1)} ${name(part)}`);
      }
    }
    // Here a unit has the mean of its tokens, so its columns are averaged like queries.
    const turned = new Float32Array(values.length);
    for (let i = 0; i < rows.length; i++) for (let at = 0; at < count; at++) turned[at * rows.length + i] = values[i * count + at];
    const each = { labels: rows, starts: rows.map((_, i) => i) };
    const merged = merge({ values: turned, rows: count, columns: rows.length }, units, each);
    const map = { values: new Float32Array(merged.values.length), rows: rows.length, columns: units.labels.length };
    for (let i = 0; i < map.rows; i++) for (let j = 0; j < map.columns; j++) map.values[i * map.columns + j] = merged.values[j * map.rows + i];
    const say = (i, j) => h("p", {}, token(units.labels[j]), ` · ${rows[i]}: `, h("b", {}, number(map.values[i * map.columns + j], 3)));
    const title = words[stack];
    out.push(
      h(
        "section",
        { class: "stack" },
        h("h3", {}, title),
        h("p", { class: "note" }, state.measure === "share" ? words.asShare : words.meanLength),
        h("div", { class: "twocolumns charts" }, h("div", { class: "scroll" }, chart), heatmap({ map, rows, columns: units.labels, most: largest(map.values), say, locked: null, name: `${title}: ${words.norms}`, words, format: (v) => number(v, 1), plainRows: true })),
      ),
    );
  }
  return out;
}
