// Small drawings of what is inside a part, with the shape on every arrow.

import { svg } from "./elements.js";

const WIDE = 118;
const HIGH = 30;

/** A text in which what stands behind "_" is a subscript: W_Q. */
function lowered(text) {
  const [before, below] = text.split("_");
  return below ? [before, svg("tspan", { dy: "4", "font-size": "9" }, below)] : [text];
}

function box(x, y, text, kind = "") {
  return svg("g", { class: `box ${kind}` }, svg("rect", { x, y, width: WIDE, height: HIGH, rx: 6 }), svg("text", { x: x + WIDE / 2, y: y + HIGH / 2, "text-anchor": "middle", "dominant-baseline": "central" }, ...lowered(text)));
}

/** An arrow with a shape above it, in letters and in numbers. */
function arrow(path, lines, x, y) {
  const text = lines.map((line, i) => svg("text", { class: "shape", x, y: y + 13 * i, "text-anchor": "middle" }, line));
  return [svg("path", { class: "arrow", d: path, "marker-end": "url(#tip)" }), ...text];
}

function frame(wide, high, name, parts) {
  return svg("svg", { class: "machine inner", viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": name }, parts.flat().filter(Boolean));
}

/** Multi-head attention: x to q, k, v; scores, mask, softmax; weights times values; the heads joined. */
export function attentionPicture({ queries, keys, causal, scaled }, sized, words) {
  const say = (shape) => [shape, sized(shape)];
  const [a, b, c, d] = [10, 216, 428, 634];
  const row = [40, 150, 230];
  const scores = (causal ? words.scoresMasked : words.scoresPlain).replace(scaled ? "" : " ÷ √D", "");
  const gap = (from) => from + WIDE + 44;
  return frame(770, 290, words.part_attention, [
    box(a, row[0], "Q = x W_Q", "attention"),
    box(a, row[1], "K = y W_K", "attention"),
    box(a, row[2], "V = y W_V", "attention"),
    box(b, 95, scores, "attention"),
    box(c, 95, "softmax", "attention"),
    box(c, row[2], words.weightsTimesV, "attention"),
    box(d, row[2], words.joinHeads, "attention"),
    svg("text", { class: "shape", x: a, y: row[0] - 10 }, `x: ${say(`${queries} × C`).join(" = ")}`),
    svg("text", { class: "shape", x: a, y: row[2] + HIGH + 18 }, `y: ${say(`${keys} × C`).join(" = ")}`),
    arrow(`M${a + WIDE},${row[0] + 15} L${b - 3},104`, say(`H × ${queries} × D`), gap(a) + 26, row[0] + 2),
    arrow(`M${a + WIDE},${row[1] + 15} L${b - 3},116`, say(`Hk × ${keys} × D`), gap(a) + 26, row[1] + 18),
    arrow(`M${b + WIDE},110 L${c - 3},110`, say(`H × ${queries} × ${keys}`), gap(b), 80),
    arrow(`M${c + WIDE / 2},125 L${c + WIDE / 2},${row[2] - 3}`, say(`H × ${queries} × ${keys}`), c + WIDE / 2 + 46, 172),
    arrow(`M${a + WIDE},${row[2] + 15} L${c - 3},${row[2] + 15}`, say(`Hk × ${keys} × Dv`), (a + c + WIDE) / 2, row[2] - 8),
    arrow(`M${c + WIDE},${row[2] + 15} L${d - 3},${row[2] + 15}`, say(`H × ${queries} × Dv`), gap(c), row[2] - 14),
    arrow(`M${d + WIDE / 2},${row[2]} L${d + WIDE / 2},${row[1] + 12}`, say(`${queries} × C`), d + WIDE / 2, row[1] - 12),
  ]);
}

/** Widen, bend, narrow; a gated activation has two matrices upwards. */
export function mlpPicture(length, activation, sized, words) {
  const say = (shape) => [shape, sized(shape)];
  const [a, b, c] = [96, 304, 512];
  const y = 40;
  const gated = activation.includes("glu");
  return frame(730, 90, words.mlp, [
    box(a, y, gated ? words.widenTwice : words.widen, "mlp"),
    box(b, y, activation, "mlp"),
    box(c, y, words.narrow, "mlp"),
    arrow(`M10,${y + 15} L${a - 3},${y + 15}`, say(`${length} × C`), 50, y - 8),
    arrow(`M${a + WIDE},${y + 15} L${b - 3},${y + 15}`, say(`${gated ? "2 × " : ""}${length} × F`), a + WIDE + 44, y - 8),
    arrow(`M${b + WIDE},${y + 15} L${c - 3},${y + 15}`, say(`${length} × F`), b + WIDE + 44, y - 8),
    arrow(`M${c + WIDE},${y + 15} L${c + WIDE + 90},${y + 15}`, say(`${length} × C`), c + WIDE + 44, y - 8),
  ]);
}
