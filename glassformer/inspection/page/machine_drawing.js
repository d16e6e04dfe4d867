// The drawing of a model, made from its config: a box for each part, an arrow wherever numbers flow, and the shape of what flows on
// every arrow. The same drawing is the first view of the page and the figure of the tour; one block alone is drawn by the same lines.

import { shortened, svg, visible } from "./elements.js";
import { filled } from "./words.js";

const WIDE = 206;
const HIGH = 34;
const GAP = 36; // between boxes: an arrow and its shape
const PITCH = WIDE + 118; // from one stack to the next
const EDGE = 28; // from a block's frame to its first and last box
const LEFT = 60;

/** Positions that are not added to the stream but turn or bend the scores inside attention. */
function insideAttention(machine) {
  return ["rotary", "alibi"].includes(machine.positions);
}

/** The first tokens of a text, as many as a box has room for. */
function sample(pieces) {
  const text = pieces.slice(0, 24).map(visible).join(" ");
  return shortened(text, 30);
}

/** The parts of one block from its input upwards. */
function blockBoxes(stack, machine, words) {
  const shape = `${stack.length} × C`;
  const own = (part) => `${stack.name}.${part}`;
  const found = [];
  const sub = (part, label, second = null) => {
    const norm = { id: own(`${part}_norm`), label: `${machine.norm} norm`, leaves: shape, block: true, small: true };
    const body = { id: own(part), label, second, leaves: shape, block: true };
    const add = { id: own(`${part}_add`), label: "+", leaves: shape, block: true, add: true, from: machine.norm !== "none" && stack.pre_norm ? own(`${part}_norm`) : own(part) };
    const middle = stack.residual ? [body, add] : [body];
    if (machine.norm === "none") found.push(...middle);
    else if (stack.pre_norm) found.push(norm, ...middle);
    else found.push(...middle, norm);
  };
  const turned = insideAttention(machine) ? `${words.positions}: ${machine.positions}` : null;
  sub("attention", `${stack.name === "decoder" ? words.maskedSelf : words.selfAttention} · H = ${stack.sizes.H}`, turned);
  if (stack.cross) sub("cross", `${words.crossPart} · H = ${stack.sizes.H}`);
  sub("mlp", `${words.mlp} · ${machine.activation} · F = ${stack.sizes.F}`);
  return found;
}

/** The boxes of one stack from its input upwards: {id, label, second line, shape of what leaves it}. */
function stackBoxes(stack, machine, words, pieces) {
  const shape = `${stack.length} × C`;
  const own = (part) => `${stack.name}.${part}`;
  const isSource = stack.name === "encoder" && machine.family === "transformer";
  const found = [
    { id: own("tokens"), label: words[isSource ? "side_source" : "side_read"], second: pieces ? sample(pieces) : null, leaves: stack.length },
    { id: own("embedding"), label: words.embeddingPart + (machine.scaled_embeddings ? " × √C" : ""), leaves: shape },
  ];
  if (machine.positions !== "none" && !insideAttention(machine)) found.push({ id: own("positions"), label: `${words.positions}: ${machine.positions}`, leaves: shape });
  if (machine.embedding_norm) found.push({ id: own("embedding_norm"), label: `${machine.norm} norm`, leaves: shape, small: true });
  found.push(...blockBoxes(stack, machine, words));
  if (stack.final_norm && machine.norm !== "none") found.push({ id: own("final_norm"), label: `${machine.norm} norm`, leaves: shape, small: true });
  return found;
}

/** Sizes in the place of letters: "T × C" is "10 × 64". */
export function sized(shape, sizes) {
  return shape.replace(/Hk|Dv|[STCHDFV]/g, (letter) => String(sizes[letter] ?? letter));
}

export class Drawing {
  /**
   * `pick(id)`: what to do when a box is chosen; without it nothing can be. `texts`: the pieces that each stack reads, and `answer`.
   * `lit`: the stacks that a held token goes through; from one to the next is the way `cross`.
   */
  constructor(machine, words, { pick = null, chosen = null, texts = {}, lit = [] } = {}) {
    Object.assign(this, { machine, words, pick, chosen, texts, lit, stack: null });
  }

  arrow(path, kind = "") {
    this.picture.append(svg("path", { class: `arrow ${kind}${this.lit.includes(this.stack) ? " lit" : ""}`, d: path, "marker-end": "url(#tip)" }));
  }

  shape(text, x, y, more = {}) {
    this.picture.append(svg("text", { class: "shape", x, y, "dominant-baseline": "central", ...more }, text));
  }

  withNumbers(shape) {
    return `${shape} = ${sized(shape, this.machine.sizes)}`;
  }

  box(one, x, y) {
    const wide = one.add ? 28 : one.small ? WIDE - 60 : WIDE;
    const middle = x + WIDE / 2;
    const kind = one.id.split(".")[1].split("_")[0];
    const acts = this.pick ? { role: "button", tabindex: "0", "data-part": one.id, "aria-pressed": String(one.id === this.chosen), "aria-label": one.label } : {};
    const group = svg("g", { class: `box ${kind}${one.add ? " add" : ""}`, ...acts });
    group.append(svg("rect", { x: middle - wide / 2, y, width: wide, height: HIGH, rx: one.add ? 14 : 6 }));
    const centre = { x: middle, "text-anchor": "middle", "dominant-baseline": "central" };
    group.append(svg("text", { ...centre, y: y + HIGH / 2 - (one.second ? 6 : 0) }, one.label));
    if (one.second) group.append(svg("text", { ...centre, class: "second", y: y + HIGH / 2 + 9 }, one.second));
    if (this.pick) {
      group.addEventListener("click", () => this.pick(one.id));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        this.pick(one.id);
        event.preventDefault();
      });
    }
    this.picture.append(group);
  }

  /** Boxes from `bottom` upwards, an arrow from each to the next, and round each residual connection. Returns where each stands. */
  column(found, x, bottom) {
    const y = (i) => bottom - i * (HIGH + GAP);
    const middle = x + WIDE / 2;
    found.forEach((one, i) => {
      if (i + 1 < found.length) {
        this.arrow(`M${middle},${y(i)} L${middle},${y(i + 1) + HIGH + 3}`);
        this.shape(this.withNumbers(one.leaves), middle + 8, y(i) - GAP / 2);
      }
      if (one.add) {
        const from = found.findIndex((other) => other.id === one.from);
        const [y0, y1] = [y(from) + HIGH + 10, y(i) + HIGH / 2];
        this.arrow(`M${middle},${y0} H${x - 14} V${y1} H${middle - 17}`, "residual");
        this.shape(one.leaves, 0, 0, { transform: `translate(${x - 23},${0.72 * y0 + 0.28 * y1}) rotate(-90)`, "text-anchor": "middle" });
      }
      this.box(one, x, y(i));
    });
    return { top: y(found.length - 1), y: (id) => y(found.findIndex((one) => one.id === id)) };
  }

  frame(stack, x, high, low, count = `× ${stack.depth}`) {
    this.picture.append(svg("rect", { class: "block", x: x - 36, y: high - EDGE, width: WIDE + 58, height: low - high + HIGH + 2 * EDGE, rx: 10 }));
    this.picture.append(svg("text", { class: "times", x: x - 28, y: high - EDGE + 16 }, `${this.words[stack.name]} ${count}`));
  }

  begin(wide, high, name) {
    this.picture = svg("svg", { class: "machine", viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: this.pick ? "group" : "img", "aria-label": name });
    this.picture.append(svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerUnits: "userSpaceOnUse", markerWidth: 9, markerHeight: 9, orient: "auto" }, svg("path", { class: "tip", d: "M0,0 L8,4 L0,8 z" }))));
  }

  /** The whole model: its stacks side by side, the way from the encoder into the decoder, the output above. */
  whole() {
    const { machine, words, texts } = this;
    const columns = machine.stacks.map((stack) => stackBoxes(stack, machine, words, texts[stack.name]));
    const last = machine.stacks[machine.stacks.length - 1];
    columns[columns.length - 1].push(
      { id: "output.output", label: machine.tied ? words.outputTied : words.outputLayer, leaves: machine.pooled ? "V" : `${last.length} × V` },
      { id: "output.softmax", label: "softmax", leaves: machine.pooled ? "V" : `${last.length} × V` },
      { id: "output.tokens", label: words[machine.labels ? "label" : "side_written"], second: texts.answer ? sample(texts.answer) : null, leaves: "" },
    );
    const high = Math.max(...columns.map((boxes) => boxes.length)) * (HIGH + GAP) + 4;
    const wide = (machine.stacks.length - 1) * PITCH + LEFT + WIDE + 40;
    this.begin(wide, high, words.machine);
    const bottom = high - HIGH - 6;
    const drawn = machine.stacks.map((stack, i) => {
      const x = LEFT + i * PITCH;
      const inside = columns[i].flatMap((one, n) => (one.block ? [n] : []));
      this.frame(stack, x, bottom - inside[inside.length - 1] * (HIGH + GAP), bottom - inside[0] * (HIGH + GAP));
      this.stack = stack.name;
      return this.column(columns[i], x, bottom);
    });
    this.stack = "cross";
    if (machine.stacks.length > 1) {
      const from = [LEFT + WIDE / 2, drawn[0].top];
      const x = LEFT + PITCH;
      const turn = from[1] - 26;
      this.arrow(`M${from[0]},${from[1]} V${turn} H${x - 56} V${drawn[1].y("decoder.cross") + HIGH / 2} H${x - 3}`);
      this.shape(this.withNumbers("S × C"), from[0] + 8, turn - 10);
    }
    return this.picture;
  }

  /** One block of a stack, with what enters it and what leaves it. */
  block(stack) {
    const { machine, words } = this;
    const found = blockBoxes(stack, machine, words);
    const shape = `${stack.length} × C`;
    const high = found.length * (HIGH + GAP) + 2 * GAP + 24;
    this.begin(LEFT + WIDE + (stack.cross ? 130 : 40), high, words.part_block);
    const bottom = high - HIGH - GAP - 26;
    const middle = LEFT + WIDE / 2;
    const top = bottom - (found.length - 1) * (HIGH + GAP);
    this.frame(stack, LEFT, top, bottom, `· ${filled(words.oneBlock, stack.depth)}`);
    this.arrow(`M${middle},${high - 6} L${middle},${bottom + HIGH + 3}`);
    this.shape(`x: ${this.withNumbers(shape)}`, middle + 8, high - 16);
    const drawn = this.column(found, LEFT, bottom);
    this.arrow(`M${middle},${top} L${middle},10`);
    this.shape(this.withNumbers(shape), middle + 8, top - EDGE - 12);
    if (stack.cross) {
      const y = drawn.y(`${stack.name}.cross`) + HIGH / 2;
      this.arrow(`M${LEFT + WIDE + 122},${y} L${LEFT + WIDE + 4},${y}`);
      this.shape(words.fromEncoder, LEFT + WIDE + 28, y - 24);
      this.shape(this.withNumbers("S × C"), LEFT + WIDE + 28, y - 10);
    }
    return this.picture;
  }
}
