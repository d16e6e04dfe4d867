// The machine itself: the architecture of this very model, with the shape on every arrow. A part that is chosen shows its numbers for
// this sentence and its lines of code.

import { h, number, svg, token } from "./elements.js";
import { heldOutput } from "./held.js";
import { attentionPicture, mlpPicture } from "./machine_parts.js";
import { View } from "./view.js";
import { filled } from "./words.js";

const BOX = { wide: 190, high: 30, gap: 30 };

/** The boxes of one stack from its input upwards: {id, label, shape of what leaves it}. */
function boxes(stack, machine, words) {
  const shape = `${stack.length} × C`;
  const own = (part) => `${stack.name}.${part}`;
  const found = [
    { id: own("tokens"), label: words[stack.name === "encoder" && machine.family === "transformer" ? "side_source" : "side_read"], leaves: stack.length },
    { id: own("embedding"), label: words.embeddingPart, leaves: shape },
  ];
  if (machine.positions !== "none") found.push({ id: own("positions"), label: `${words.positions}: ${machine.positions}`, leaves: shape, inside: ["rotary", "alibi"].includes(machine.positions) });
  const sub = (part, label) => {
    const norm = { id: own(`${part}_norm`), label: `${machine.norm} norm`, leaves: shape, block: true, small: true };
    const body = { id: own(part), label, leaves: shape, block: true };
    const add = { id: own(`${part}_add`), label: "+", leaves: shape, block: true, add: true };
    const middle = stack.residual ? [body, add] : [body];
    if (machine.norm === "none") found.push(...middle);
    else if (stack.pre_norm) found.push(norm, ...middle);
    else found.push(...middle, norm);
  };
  sub("attention", `${stack.name === "decoder" ? words.maskedSelf : words.selfAttention} · H = ${machine.sizes.H}`);
  if (stack.cross) sub("cross", `${words.crossPart} · H = ${machine.sizes.H}`);
  sub("mlp", `${words.mlp} · ${machine.activation} · ${machine.sizes.F}`);
  if (stack.final_norm && machine.norm !== "none") found.push({ id: own("final_norm"), label: `${machine.norm} norm`, leaves: shape, small: true });
  return found;
}

export class MachineView extends View {
  static title = "machine";

  static has(data) {
    return Boolean(data.machine);
  }

  holds() {
    this.details?.replaceChildren(...this.describe());
    return true;
  }

  async patch(changed) {
    if (![...changed].every((name) => name === "part" || name === "layer" || name === "held")) return false;
    this.root.querySelectorAll(".machine g.box").forEach((box) => box.setAttribute("aria-pressed", String(box.dataset.part === this.part)));
    this.picker.value = String(this.layer);
    return this.holds();
  }

  get part() {
    const stacks = this.data.machine.stacks;
    return this.state.part ?? `${stacks[stacks.length - 1].name}.attention`;
  }

  get layer() {
    const stack = this.data.machine.stacks.find((one) => this.part.startsWith(one.name));
    return Math.min(this.state.layer, (stack?.depth ?? 1) - 1);
  }

  /** Sizes in the place of letters: "T × C" is "10 × 64". */
  sized(shape) {
    const { sizes } = this.data.machine;
    return shape.replace(/Hk|Dv|[STCHDFV]/g, (letter) => String(sizes[letter] ?? letter));
  }

  box(one, x, y) {
    const { panel } = this;
    const wide = one.add ? 26 : one.small ? BOX.wide - 50 : BOX.wide;
    const left = x + (BOX.wide - wide) / 2;
    const pick = () => panel.set({ part: one.id });
    const group = svg("g", { class: `box ${one.id.split(".")[1].split("_")[0]}${one.add ? " add" : ""}`, role: "button", tabindex: "0", "data-part": one.id, "aria-pressed": String(one.id === this.part), "aria-label": one.label });
    group.append(svg("rect", { x: left, y, width: wide, height: BOX.high, rx: one.add ? 13 : 6 }), svg("text", { x: x + BOX.wide / 2, y: y + BOX.high / 2, "text-anchor": "middle", "dominant-baseline": "central" }, one.label));
    group.addEventListener("click", pick);
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      pick();
      event.preventDefault();
    });
    return group;
  }

  /** One stack as a column; returns where things stand, for the arrow from one stack to the other. */
  column(picture, stack, x, bottom) {
    const { machine } = this.data;
    const { words } = this;
    const found = boxes(stack, machine, words);
    const step = BOX.high + BOX.gap;
    const y = (i) => bottom - i * step;
    const inBlock = found.map((one, i) => (one.block ? i : -1)).filter((i) => i >= 0);
    const [low, high] = [inBlock[0], inBlock[inBlock.length - 1]];
    picture.append(svg("rect", { class: "block", x: x - 34, y: y(high) - 14, width: BOX.wide + 58, height: y(low) - y(high) + BOX.high + 28, rx: 10 }));
    picture.append(svg("text", { class: "times", x: x - 28, y: y(high) + 4 }, `${words[stack.name]} × ${stack.depth}`));
    found.forEach((one, i) => {
      const middle = x + BOX.wide / 2;
      if (i + 1 < found.length) {
        picture.append(svg("path", { class: "arrow", d: `M${middle},${y(i)} L${middle},${y(i + 1) + BOX.high + 3}`, "marker-end": "url(#tip)" }));
        picture.append(svg("text", { class: "shape", x: middle + 7, y: y(i) - BOX.gap / 2 + 1, "dominant-baseline": "central" }, `${one.leaves} = ${this.sized(one.leaves)}`));
      }
      if (one.add) {
        const from = found.findIndex((other) => other.id === one.id.replace("_add", stack.pre_norm && machine.norm !== "none" ? "_norm" : ""));
        const [y0, y1] = [y(from) + BOX.high + BOX.gap / 2, y(i) + BOX.high / 2];
        picture.append(svg("path", { class: "arrow residual", d: `M${middle},${y0} H${x - 18} V${y1} H${middle - 16}`, "marker-end": "url(#tip)" }));
      }
      picture.append(this.box(one, x, y(i)));
    });
    const place = (id) => y(found.findIndex((one) => one.id === id));
    return { top: y(found.length - 1), place, count: found.length };
  }

  drawing() {
    const { machine } = this.data;
    const { words } = this;
    const step = BOX.high + BOX.gap;
    const counts = machine.stacks.map((stack) => boxes(stack, machine, words).length);
    const high = (Math.max(...counts) + 2) * step + 30;
    const wide = machine.stacks.length * (BOX.wide + 110) + 20;
    const picture = svg("svg", { class: "machine", viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "group", "aria-label": words.machine });
    picture.append(svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { class: "tip", d: "M0,0 L8,4 L0,8 z" }))));
    const bottom = high - BOX.high - 8;
    const columns = machine.stacks.map((stack, i) => this.column(picture, stack, 50 + i * (BOX.wide + 110), bottom));
    const last = columns[columns.length - 1];
    const x = 50 + (machine.stacks.length - 1) * (BOX.wide + 110);
    const outputs = [{ id: "output.output", label: machine.tied ? words.outputTied : words.outputLayer, leaves: "T × V" }, { id: "output.softmax", label: "softmax", leaves: "T × V" }];
    const { length } = machine.stacks[machine.stacks.length - 1];
    outputs.forEach((one, i) => {
      const y = last.top - (i + 1) * step;
      const middle = x + BOX.wide / 2;
      const shape = i === 0 ? `${length} × C` : outputs[0].leaves;
      picture.append(svg("path", { class: "arrow", d: `M${middle},${y + step} L${middle},${y + BOX.high + 3}`, "marker-end": "url(#tip)" }));
      picture.append(svg("text", { class: "shape", x: middle + 7, y: y + step - BOX.gap / 2 + 1, "dominant-baseline": "central" }, `${shape} = ${this.sized(shape)}`));
      picture.append(this.box(one, x, y));
    });
    if (machine.stacks.length > 1) {
      const from = [50 + BOX.wide / 2, columns[0].top];
      const to = [x - 2, last.place("decoder.cross") + BOX.high / 2];
      const turn = from[1] - 24;
      picture.append(svg("path", { class: "arrow", d: `M${from[0]},${from[1]} V${turn} H${x - 52} V${to[1]} H${to[0]}`, "marker-end": "url(#tip)" }));
      picture.append(svg("text", { class: "shape", x: from[0] + 7, y: turn - 8 }, `S × C = ${this.sized("S × C")}`));
    }
    return picture;
  }

  /** The lengths of the vectors that leave a part, for each token; held tokens are marked. */
  numbers(stack, part) {
    const { data, words, state } = this;
    const norms = data.norms[stack];
    const side = data.sides[stack === "encoder" && data.sides.source ? "source" : "read"];
    const lengths = part === "embedding" || part === "positions" || part === "tokens" ? norms.entering[0] : part === "final" ? norms.leaving[norms.leaving.length - 1] : norms.parts[part]?.[this.layer];
    if (!lengths) return null;
    const top = Math.max(...lengths) || 1;
    const axis = stack === "encoder" && data.sides.source ? "source" : "read";
    const held = (i) => [state.held?.query, state.held?.key].some((position) => position && position[0] === axis && position[1] === i);
    const cells = side.pieces.slice(0, 60).map((piece, i) => h("span", { class: `lengthcell${held(i) ? " lit" : ""}`, title: number(lengths[i], 3) }, token(piece), h("i", { style: { width: `${(100 * lengths[i]) / top}%` } }), h("span", { class: "number" }, number(lengths[i]))));
    return h("div", {}, h("h4", {}, words.lengthsTitle), h("div", { class: "lengths" }, cells));
  }

  describe() {
    const { data, words } = this;
    const { machine } = data;
    const [stack, full] = this.part.split(".");
    const part = full.replace(/_(add|norm)$/, "");
    const isNorm = full.endsWith("_norm");
    const key = isNorm ? "norm" : full.endsWith("_add") ? "block" : stack === "output" ? "output" : part === "tokens" ? "embedding" : part;
    const facts = machine.stacks.find((one) => one.name === stack);
    const count = key === "embedding" ? machine.parameters.embedding : key === "output" ? (machine.tied ? 0 : machine.sizes.V * machine.sizes.C) : facts?.parameters[key];
    const out = [h("h3", {}, words[`part_${key}`] ?? key, facts && ["attention", "cross", "mlp"].includes(key) ? ` · ${filled(words.layerN, this.layer)}` : "", " ", h("code", { class: "note" }, ["attention", "cross", "mlp"].includes(key) ? `${stack}.${this.layer}.${key}` : ""))];
    out.push(h("p", {}, words[`explain_${key}`] ?? ""));
    if (count) out.push(h("p", { class: "note" }, filled(words.parameterCount, count.toLocaleString("en"))));
    if (key === "attention" || key === "cross") {
      const keys = key === "cross" ? "S" : facts.length;
      out.push(h("div", { class: "scroll" }, attentionPicture({ queries: facts.length, keys, causal: stack === "decoder" && key === "attention" }, (shape) => this.sized(shape), words)));
    }
    if (key === "mlp") out.push(h("div", { class: "scroll" }, mlpPicture(facts.length, machine.activation, (shape) => this.sized(shape), words)));
    if (stack !== "output" && !isNorm && key !== "block") out.push(this.numbers(stack, part));
    if (stack === "output" && data.outputs) out.push(this.prediction());
    for (const one of machine.code[key] ?? []) out.push(h("details", { open: key !== "block" }, h("summary", {}, `${one.file}:${one.line} `, h("code", {}, one.name)), h("pre", { class: "code" }, one.source)));
    return out.filter(Boolean);
  }

  /** What comes out at the held position, or at the last. */
  prediction() {
    const { outputs, names } = this.data;
    const held = heldOutput(this.panel);
    const at = held >= 0 ? held : outputs.tokens.length - 1;
    const best = outputs.best[at].map((id, k) => h("span", { class: "pair" }, token(names[id]), " ", h("b", {}, number(outputs.chances[at][k], 3))));
    return h("p", { class: "strongest" }, h("span", { class: "caption" }, `${this.words.position} ${outputs.positions[at]}`), best);
  }

  async draw() {
    const { words, data } = this;
    const { machine } = data;
    this.details = h("div", { class: "details", "aria-live": "polite" });
    const depth = Math.max(...machine.stacks.map((stack) => stack.depth));
    this.picker = h("select", { "aria-label": words.layer, onchange: (event) => this.panel.set({ layer: Number(event.target.value) }) }, Array.from({ length: depth }, (_, layer) => h("option", { value: layer, selected: layer === this.layer }, String(layer))));
    this.details.replaceChildren(...this.describe());
    const facts = { total: machine.parameters.total.toLocaleString("en"), C: machine.sizes.C, T: machine.sizes.T, V: machine.sizes.V };
    return [
      this.howTo(filled(machine.labels ? words.machineReadLabels : words.machineRead, facts)),
      h("div", { class: "controls" }, h("label", { class: "choice" }, h("span", { class: "caption" }, words.layer), this.picker)),
      h("div", { class: "machinepage" }, h("div", { class: "scroll" }, this.drawing()), this.details),
      h("p", { class: "note" }, words.letters),
    ];
  }
}
