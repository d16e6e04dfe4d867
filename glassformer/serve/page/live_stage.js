// The stage: the drawing of the machine beside the views. A part that is chosen in it opens in the view that shows its inside, and
// can be switched off, or left on alone; what is off is struck in the drawing.

import { h, number, token } from "./elements.js";
import { heldOutput } from "./held.js";
import { Drawing } from "./machine_drawing.js";
import { filled } from "./words.js";

const SUBLAYERS = ["attention", "cross", "mlp"];

/** The parts that a model can be without, by the box of the drawing that stands for them in a layer. */
export class Parts {
  constructor(data) {
    this.data = data;
  }

  /** The kind of attention of a box: the map that shows it. */
  static kind(box) {
    const [stack, part] = box.split(".");
    return part === "cross" ? "cross" : stack;
  }

  depth(stack) {
    return this.data.machine.stacks.find((one) => one.name === stack)?.depth ?? 0;
  }

  /** What is cut where this box is, in this layer. */
  of(box, layer) {
    const [stack, part] = box.split(".");
    const name = `${stack}.${layer}.${part}`;
    if (part === "positions") return ["positions"];
    if (part === "mlp") return [name];
    if (part.endsWith("_add")) return [`${stack}.${layer}.${part.slice(0, -4)}.residual`];
    if (!SUBLAYERS.includes(part)) return [];
    return this.data.attentions[Parts.kind(box)].layers[layer].head_ids.map((id) => `${name}:${id}`);
  }

  /** The same part in all other layers. */
  others(box, layer) {
    const [stack, part] = box.split(".");
    if (!SUBLAYERS.includes(part)) return [];
    return Array.from({ length: this.depth(stack) }, (_, other) => other).filter((other) => other !== layer).flatMap((other) => this.of(box, other));
  }

  /** All that a layer adds to the stream: the heads of its attentions, and its MLP. */
  layer(stack, layer) {
    return SUBLAYERS.filter((part) => part !== "cross" || (stack === "decoder" && this.data.attentions.cross)).flatMap((part) => this.of(`${stack}.${part}`, layer));
  }
}

/** Which view shows the inside of a box. */
function inside(box, page) {
  const [stack, part] = box.split(".");
  const has = (name) => page.views.some((view) => view.title === name);
  if (part === "attention" || part === "cross") return { view: "maps", kind: Parts.kind(box) };
  if (part === "mlp" && has("attribution")) return { view: "attribution" };
  if (stack === "output") return { view: has("choose") ? "choose" : "tokens" };
  return { view: "machine" };
}

/** What a cut does to the whole model's answer, token by token: a sentence and bars; nothing where nothing is cut. */
function effect(cut, words) {
  if (!cut?.tokens.length) return [];
  const mean = (values) => -values.reduce((a, b) => a + b, 0) / values.length;
  const [before, after] = [mean(cut.before), mean(cut.after)];
  const change = `${after >= before ? "+" : "−"}${number(Math.abs(after - before), 3)}`;
  const lost = cut.before.map((value, i) => value - cut.after[i]);
  const most = Math.max(1, ...lost.map(Math.abs));
  const bars = cut.tokens.map((text, i) => h("div", { class: "one", title: filled(words.lost, { token: text, before: number(cut.before[i]), after: number(cut.after[i]) }) },
    h("div", { class: lost[i] < 0 ? "bar better" : "bar" }, h("i", { style: { height: `${(100 * Math.abs(lost[i])) / most}%` } })),
    token(text),
    h("small", { class: "dim" }, number(-lost[i], 1)),
  ));
  return [h("p", { class: "dim", id: "loss" }, filled(words.effect, { before: number(before, 3), after: number(after, 3), change })), h("div", { id: "effect", class: "scroll" }, bars)];
}

export class Stage {
  constructor(live, root) {
    Object.assign(this, { live, root });
  }

  get parts() {
    return new Parts(this.live.data);
  }

  /** The box that is chosen: in the drawing, else the attention that the views show. */
  get box() {
    const { state } = this.live.page;
    return state.part ?? (state.kind === "cross" ? "decoder.cross" : `${state.kind}.attention`);
  }

  layerOf(box) {
    const depth = this.parts.depth(box.split(".")[0]);
    return Math.max(0, Math.min(this.live.page.state.layer, depth - 1));
  }

  pick(box) {
    const { page } = this.live;
    const now = inside(box, page);
    page.set({ part: box, ...now });
  }

  /** The head that the views have chosen, and those beside it. */
  chosenHead() {
    const { kind, layer, head } = this.live.page.state;
    const heads = this.parts.of(kind === "cross" ? "decoder.cross" : `${kind}.attention`, layer);
    return { head: heads[head], heads, stack: kind === "encoder" ? "encoder" : "decoder", layer };
  }

  draw() {
    const { live } = this;
    if (!live.page || !live.data) return;
    const { words, data, page } = live;
    const texts = { decoder: data.sides.read?.pieces, encoder: (data.sides.source ?? data.sides.read)?.pieces, answer: data.outputs?.tokens.map((id) => data.names[id]) };
    const lit = this.path(texts);
    const picture = new Drawing(data.machine, page.words, { pick: (box) => this.pick(box), chosen: this.box, texts, lit }).whole();
    for (const box of picture.querySelectorAll("g.box")) {
      const parts = this.parts.of(box.dataset.part, this.layerOf(box.dataset.part));
      const off = parts.filter((part) => live.cuts.includes(part)).length;
      if (off) box.classList.add(off === parts.length ? "off" : "partly");
    }
    const depth = Math.max(...data.machine.stacks.map((stack) => stack.depth));
    const layers = h("select", { id: "stage-layer", "aria-label": page.words.layer, onchange: (event) => page.set({ layer: Number(event.target.value) }) }, Array.from({ length: depth }, (_, layer) => h("option", { value: layer, selected: layer === page.state.layer }, String(layer))));
    const open = this.root.querySelector("details")?.open ?? matchMedia("(min-width: 1100px)").matches;
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.part ?? document.activeElement.id : null;
    this.root.replaceChildren(
      h("div", { class: "line" }, h("label", { class: "choice" }, h("span", { class: "caption" }, page.words.layer), layers)),
      ...effect(data.cut, words),
      h("details", { open }, h("summary", {}, words.drawing), picture),
      this.cutLine(),
    );
    if (focused) (this.root.querySelector(`[data-part="${focused}"]`) ?? document.getElementById(focused))?.focus({ preventScroll: true });
  }

  /** The stacks that the held token goes through; in the boxes of `texts` it then stands alone, with what is written for it. */
  path(texts) {
    const { data, page } = this.live;
    const { held } = page.state;
    if (!held) return [];
    const stacks = data.machine.stacks.map((stack) => stack.name);
    const last = stacks.at(-1);
    const sides = [held.query, held.key].filter(Boolean).map(([side, at]) => [side === "source" ? "encoder" : last, at]);
    for (const [stack, at] of [...sides].reverse()) texts[stack] = [data.sides[stack === "encoder" && data.sides.source ? "source" : "read"].pieces[at]];
    const output = heldOutput(page.panels[0]);
    if (output >= 0) texts.answer = [texts.answer[output]];
    // What an encoder reads goes on into the decoder, by cross-attention.
    const lit = sides.map(([stack]) => stack);
    return lit.includes("encoder") && stacks.length > 1 ? ["encoder", "cross", ...(output >= 0 ? ["decoder"] : [])] : lit;
  }

  /** What can be switched off now, what is off, and the way back. */
  cutLine() {
    const { live, parts, box } = this;
    const { words, cuts } = live;
    const place = this.chosenHead();
    const add = (more) => live.cut([...new Set([...cuts, ...more])]);
    const button = (id, text, act, off = false) => h("button", { type: "button", class: "chip", id, disabled: off, onclick: act }, text);
    const layer = this.layerOf(box);
    const own = parts.of(box, layer);
    const others = parts.others(box, layer);
    const name = own.length === 1 ? own[0] : box.replace(".", `.${layer}.`);
    return h("div", { class: "line", id: "cuts" },
      own.length ? button("cut-part", `✂ ${name}`, () => add(own), own.every((part) => cuts.includes(part))) : "",
      others.length ? button("alone-part", words.alone, () => live.cut(others)) : "",
      place.head ? button("cut-head", `✂ ${words.cutHead}: ${place.head}`, () => add([place.head]), cuts.includes(place.head)) : "",
      place.head ? button("cut-others", words.only, () => live.cut(place.heads.filter((one) => one !== place.head)), place.heads.length < 2) : "",
      button("cut-layer", words.cutLayer, () => add(parts.layer(place.stack, place.layer))),
      this.list(),
      live.before.length ? button("undo", words.back, () => live.undo()) : "",
      cuts.length ? button("restore", words.clear, () => live.cut([])) : h("small", { class: "dim" }, words.uncut),
    );
  }

  list() {
    const { live } = this;
    return live.cuts.map((part) => h("button", { type: "button", class: "chip cut", "data-part": part, title: filled(live.words.restore, part), onclick: () => live.cut(live.cuts.filter((other) => other !== part)) }, `${part} ×`));
  }
}
