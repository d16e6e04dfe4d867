// The machine itself: the architecture of this very model, with the shape on every arrow. A part that is chosen shows its numbers for
// this sentence and its lines of code.

import { h, number, token } from "./elements.js";
import { heldOutput } from "./held.js";
import { Drawing, sized } from "./machine_drawing.js";
import { attentionPicture, mlpPicture } from "./machine_parts.js";
import { View } from "./view.js";
import { filled } from "./words.js";

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

  /** The part that is chosen, else the attention that the other views show. */
  get part() {
    const { part, kind } = this.state;
    return part ?? (kind === "cross" ? "decoder.cross" : `${kind}.attention`);
  }

  get layer() {
    const stack = this.data.machine.stacks.find((one) => this.part.startsWith(one.name));
    return Math.min(this.state.layer, (stack?.depth ?? 1) - 1);
  }

  drawing() {
    const { data, words } = this;
    const texts = { decoder: data.sides.read?.pieces, encoder: (data.sides.source ?? data.sides.read)?.pieces };
    texts.answer = data.outputs?.tokens.map((id) => data.names[id]);
    return new Drawing(data.machine, words, { pick: (part) => this.panel.set({ part }), chosen: this.part, texts }).whole();
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
    const inNumbers = (shape) => sized(shape, { ...machine.sizes, ...facts?.sizes });
    const count = key === "embedding" ? machine.parameters.embedding : key === "output" ? (machine.tied ? 0 : machine.sizes.V * machine.sizes.C) : facts?.parameters[key];
    const out = [h("h3", {}, words[`part_${key}`] ?? key, facts && ["attention", "cross", "mlp"].includes(key) ? ` · ${filled(words.layerN, this.layer)}` : "", " ", h("code", { class: "note" }, ["attention", "cross", "mlp"].includes(key) ? `${stack}.${this.layer}.${key}` : ""))];
    out.push(h("p", {}, words[`explain_${key}`] ?? ""));
    if (count) out.push(h("p", { class: "note" }, filled(words.parameterCount, count.toLocaleString("en"))));
    if (key === "attention" || key === "cross") {
      const keys = key === "cross" ? "S" : facts.length;
      out.push(h("div", { class: "scroll" }, attentionPicture({ queries: facts.length, keys, causal: stack === "decoder" && key === "attention", scaled: data.attentions[stack]?.scaled ?? true }, inNumbers, words)));
    }
    if (key === "mlp") out.push(h("div", { class: "scroll" }, mlpPicture(facts.length, machine.activation, inNumbers, words)));
    if (key === "block") out.push(h("div", { class: "scroll" }, new Drawing(machine, words).block(facts)));
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
