// The guided walk: the typed sentence through the machine in twelve steps. Each step is a place in the views, three sentences about
// it, an address, and a page of the tour.

import { h, share } from "./elements.js";
import { filled } from "./words.js";

/** name, the page of the tour, and where it is seen: what is set in the page, given the data. */
const STEPS = [
  ["token", "dictionary", (w) => ({ view: "machine", part: `${w.reader}.tokens` })],
  ["vector", "embeddings", (w) => ({ view: "machine", part: `${w.reader}.embedding` })],
  ["position", "positions", (w) => ({ view: "machine", part: w.addsPositions ? `${w.reader}.positions` : `${w.reader}.attention` })],
  ["scores", "dictionary", (w) => ({ view: "head", kind: w.reader, layer: 0, head: 0, held: w.hold })],
  ["softmax", "scaling", (w) => ({ view: "maps", kind: w.reader, layer: 0, head: 0, held: w.hold, part: `${w.reader}.attention` })],
  ["mix", "heads", (w) => ({ view: "lines", kind: w.reader, layer: 0, held: w.hold, part: `${w.reader}.attention` })],
  ["residual", "residuals", (w) => ({ view: "norms", part: `${w.reader}.attention_add` })],
  ["mlp", "feed-forward", (w) => ({ view: "machine", part: `${w.reader}.mlp` })],
  ["cross", "cross-attention", (w) => ({ view: "maps", kind: "cross", layer: w.last, part: "decoder.cross", held: null })],
  ["logits", "whole", () => ({ view: "lens", part: "output.output" })],
  ["choice", "decoding", () => ({ view: "choose", part: "output.softmax", place: 0 })],
  ["again", "caches", () => ({ view: "choose", part: "output.tokens", place: 1 })],
];

export class Walk {
  constructor(live, root, at) {
    Object.assign(this, { live, root, at });
    document.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const free = event.target === document.body || this.root.contains(event.target);
      if (this.at === null || !move || !free || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      this.go(this.at + move);
    });
  }

  /** The steps that this model has: a GPT has no cross-attention, and a BERT writes nothing. */
  get steps() {
    const { data } = this.live;
    return STEPS.filter(([name]) => (name !== "cross" || data.attentions.cross) && (!["choice", "again"].includes(name) || data.answer !== null));
  }

  /** What the steps speak of. */
  get facts() {
    const { data } = this.live;
    const reader = data.attentions.encoder ? "encoder" : "decoder";
    const side = data.sides.source ? "source" : "read";
    const { pieces } = data.sides[side];
    const { sizes, positions } = data.machine;
    const at = Math.max(0, data.outputs.status.findIndex((status) => status !== "given"));
    const names = (ids) => ids.map((id) => data.names[id]);
    const said = names(data.outputs.tokens.slice(at));
    const { H } = data.machine.stacks.find((stack) => stack.name === reader).sizes;
    return {
      reader, positions, last: (data.attentions.cross?.layers.length ?? 1) - 1, addsPositions: !["rotary", "alibi", "none"].includes(positions), hold: { query: [side, 0], key: null },
      count: pieces.length, first: pieces[0], width: sizes.C, vocabulary: sizes.V, heads: H, depth: data.machine.stacks.map((stack) => stack.depth).join(" + "),
      said: said[0], second: said[1] ?? said[0], p: share(Math.exp(data.outputs.logprob[at])), other: names(data.outputs.best[at])[1] ?? "", q: share(data.outputs.chances[at][1] ?? 0),
    };
  }

  /** To a step; before the first and after the last there is none. */
  go(at) {
    const { live } = this;
    this.at = at === null ? null : Math.max(0, Math.min(at, this.steps.length - 1));
    if (this.at !== null) {
      const { place, ...changes } = this.steps[this.at][2](this.facts);
      const known = live.page.views.some((view) => view.title === changes.view);
      if (place !== undefined) live.place = Math.min(place, live.answerIds().length - 1);
      live.page.set(known ? changes : { ...changes, view: "machine" });
      if (changes.view === "choose") live.go(live.place);
    }
    live.remember();
    this.draw();
    if (this.at !== null) this.root.querySelector("#walk-next")?.focus({ preventScroll: true });
  }

  draw() {
    const { live } = this;
    if (!live.data || !live.page) return;
    const { words } = live;
    const button = (id, text, act, off = false) => h("button", { type: "button", class: "chip", id, disabled: off, onclick: act }, text);
    if (this.at === null) {
      this.root.replaceChildren(button("walk-begin", words.walk, () => this.go(0)));
      return;
    }
    const { steps } = this;
    this.at = Math.min(this.at, steps.length - 1);
    const [name, page] = steps[this.at];
    const tour = live.hasTour ? h("a", { id: "walk-tour", href: `/tour/${page}${live.language === "zh" ? ".zh" : ""}`, target: "_blank" }, words.walkTour) : h("span", { class: "dim" }, `docs/tour/${page}.md`);
    this.root.replaceChildren(
      h("div", { class: "line" },
        button("walk-back", "‹", () => this.go(this.at - 1), this.at === 0),
        h("b", {}, `${this.at + 1} / ${steps.length} · ${words[`walk_${name}`]}`),
        button("walk-next", "›", () => this.go(this.at + 1), this.at === steps.length - 1),
        tour,
        button("walk-end", "×", () => this.go(null)),
      ),
      h("p", { id: "walk-text", "aria-live": "polite" }, filled(words[`walk_${name}_text`], this.facts)),
    );
  }
}
