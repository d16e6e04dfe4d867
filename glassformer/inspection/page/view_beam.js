// The tree of a beam search: the best candidates of each step, their scores, and where the survivors went.

import { h, isControl, number, share, shortened, svg, token, visible } from "./elements.js";
import { heldOutput, positionOf } from "./held.js";
import { View } from "./view.js";
import { filled } from "./words.js";

const WIDE = 118;
const HIGH = 44;
const MARGIN = 76;
const ABOVE = 30;
const PACE = 700; // ms a step, when it plays

/** What the length rule (decode/lengths.py) divides the sum of an answer's log-probabilities by. */
function divisor(rule, alpha, { length, ended }) {
  const counted = length + (ended === "eos" ? 1 : 0);
  if (rule === "gnmt") return ((5 + counted) / 6) ** alpha;
  return Math.max(1, rule === "power" ? counted : length) ** alpha;
}

/** The answers of a beam as another alpha ranks them: best first, what was cut at the limit behind what ended. */
export function reranked({ answers, rule, alpha: own }, alpha) {
  const scored = answers.map((one) => ({ ...one, score: (one.score * divisor(rule, own, one)) / divisor(rule, alpha, one) }));
  return scored.sort((a, b) => (a.ended === "length") - (b.ended === "length") || b.score - a.score);
}

export class BeamView extends View {
  static title = "beam";

  static has(data) {
    return Boolean(data.beam);
  }

  /** The candidate that is held: by name, or the one on the way to the answer at the output that is held. */
  chosen() {
    const { state, data } = this;
    if (state.candidate) return this.entries.find((entry) => `${entry.step}.${entry.rank}` === state.candidate) ?? null;
    const output = heldOutput(this.panel);
    if (output < 0) return null;
    const step = output - (data.outputs.tokens.length - this.answerLength());
    return this.entries.find((entry) => entry.step === step && entry.candidate.best) ?? null;
  }

  answerLength() {
    const { outputs } = this.data;
    const first = outputs.status.findIndex((status) => status !== "given");
    return outputs.tokens.length - Math.max(0, first);
  }

  holds() {
    this.light(this.chosen());
    return true;
  }

  async patch(changed) {
    if (![...changed].every((name) => ["held", "candidate", "alpha", "beamStep"].includes(name))) return false;
    if (changed.has("alpha")) this.rank();
    if (changed.has("beamStep")) this.grow();
    return this.holds();
  }

  destroy() {
    clearInterval(this.timer);
    super.destroy();
  }

  /** The answers under the length penalty that is chosen. */
  rank() {
    const { words, data, state } = this;
    const alpha = state.alpha ?? data.beam.alpha;
    const row = (a) => h("tr", {}, h("td", { class: "path" }, a.text || "∅"), h("td", { class: "number" }, share(Math.exp(a.logprob))), h("td", { class: "number" }, number(a.logprob, 3)), h("td", { class: "number" }, number(a.score, 3)));
    this.ranking.replaceChildren(...(data.beam.rule ? reranked(data.beam, alpha) : data.beam.answers).map(row));
    if (this.alpha) this.alpha.textContent = `${number(alpha)}${alpha === data.beam.alpha ? ` (${words.recipeAlpha})` : ""}`;
  }

  /** The tree up to the step that is chosen. */
  grow() {
    const { data, state } = this;
    const count = data.beam.steps.length;
    const last = Math.min(state.beamStep ?? count, count);
    for (const { step, node, line } of this.entries) for (const part of [node, line]) if (part) part.style.display = step < last ? "" : "none";
    this.slider.value = String(last);
    this.atStep.textContent = `${last} / ${count}`;
    if (last === count) this.play(false);
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.panel.set({ beamStep: (this.state.beamStep ?? 0) + 1 }), PACE) : null;
    this.playing.textContent = on ? this.words.pause : this.words.play;
  }

  /** Play, pause, a step at a time; and the length penalty. */
  controls() {
    const { words, data, state } = this;
    const count = data.beam.steps.length;
    const last = () => Math.min(this.state.beamStep ?? count, count);
    this.playing = h("button", { type: "button", id: "beam-play", class: "play", onclick: () => {
      const on = !this.timer;
      if (on && last() === count) this.panel.set({ beamStep: 1 });
      this.play(on);
    } }, words.play);
    this.slider = h("input", { type: "range", id: "beam-step", min: "1", max: String(count), "aria-label": words.stepUpTo, oninput: () => {
      this.play(false);
      this.panel.set({ beamStep: Number(this.slider.value) });
    } });
    this.atStep = h("span", { class: "number" });
    const next = h("button", { type: "button", id: "beam-next", onclick: () => {
      this.play(false);
      this.panel.set({ beamStep: last() % count + 1 });
    } }, words.oneStep);
    const player = h("div", { class: "player" }, this.playing, next, this.slider, this.atStep);
    if (!data.beam.rule) return [player, null];
    const slider = h("input", { type: "range", id: "beam-alpha", min: "-1", max: "2", step: "0.05", "aria-label": words.lengthPenalty, oninput: () => this.panel.set({ alpha: Number(slider.value) }) });
    slider.value = String(state.alpha ?? data.beam.alpha);
    this.alpha = h("output", { class: "number" });
    return [player, h("div", { class: "player" }, h("label", { class: "choice" }, h("span", { class: "caption" }, `${words.lengthPenalty} (${data.beam.rule})`), slider), this.alpha, h("span", { class: "note" }, words.rerankAbout))];
  }

  choose(entry) {
    if (this.panel.page.more.forces) return this.panel.page.dispatch({ type: "force", ids: [...entry.path, entry].map((one) => one.candidate.id) });
    const name = `${entry.step}.${entry.rank}`;
    if (this.chosen() === entry) return this.panel.set({ candidate: null, held: null });
    const at = this.data.outputs.tokens.length - this.answerLength() + entry.step;
    const held = entry.candidate.best && at < this.data.outputs.tokens.length ? { query: positionOf(this.data, "written", at), key: null } : null;
    return this.panel.set({ candidate: name, held });
  }

  light(entry) {
    const { words, data } = this;
    const lit = new Set(entry ? [...entry.path, entry] : []);
    this.picture.classList.toggle("dimmed", Boolean(entry));
    for (const one of this.entries) {
      one.node.classList.toggle("lit", lit.has(one));
      one.line?.classList.toggle("lit", lit.has(one));
    }
    if (!entry) return this.readout.replaceChildren(h("span", { class: "note" }, words.beamHover));
    const { candidate: c, step, rank } = entry;
    return this.readout.replaceChildren(
      h(
        "div",
        {},
        h(
          "p",
          {},
          `${filled(words.stepN, step)}, ${words.rank} ${rank + 1}: `,
          token(data.names[c.token]),
          ` · ${words.probability} ${share(Math.exp(c.logprob))} (${words.log} ${number(c.logprob, 3)}) · ${words.total} ${share(Math.exp(c.total))} (${words.log} ${number(c.total, 3)}) · ${words.score} ${number(c.score, 3)} · ${words[c.fate]}`,
        ),
        h("p", { class: "path" }, c.text),
      ),
    );
  }

  node(candidate, s, rank, slots) {
    const { words, data } = this;
    const x = MARGIN + s * WIDE;
    const y = ABOVE + rank * HIGH + HIGH / 2;
    const parent = slots.get(candidate.parent);
    const from = parent ?? { x, y, path: [] };
    const kind = `${candidate.fate}${candidate.best ? " best" : ""}`;
    const line = parent ? svg("path", { class: `branch ${kind}`, d: `M${from.x},${from.y} C${from.x + 14},${from.y} ${x - 14},${y} ${x},${y}` }) : null;
    if (line) this.lines.append(line);
    const name = data.names[candidate.token];
    const width = WIDE - 34;
    const node = svg(
      "g",
      { class: `node ${kind}`, tabindex: "-1", role: "button", "data-step": s, "data-rank": rank, "aria-label": `${name} ${share(Math.exp(candidate.logprob))} ${words[candidate.fate]}` },
      svg("rect", { x, y: y - 18, width, height: 36, rx: 4 }),
      svg("text", { x: x + 6, y: y - 7, "dominant-baseline": "central", class: isControl(name) ? "control" : "" }, shortened(visible(name), 8)),
      svg("text", { class: "score", x: x + 6, y: y + 9, "dominant-baseline": "central" }, share(Math.exp(candidate.logprob))),
      svg("text", { class: "score", x: x + width - 5, y: y + 9, "text-anchor": "end", "dominant-baseline": "central" }, number(candidate.score, candidate.score <= -9.995 ? 1 : 2)),
      candidate.fate === "ended" ? svg("text", { class: "flag", x: x + width - 5, y: y - 8, "text-anchor": "end", "dominant-baseline": "central" }, "■") : null,
    );
    const entry = { candidate, node, line, step: s, rank, x: x + width, y, path: from.path };
    node.addEventListener("pointerenter", () => !this.chosen() && this.light(entry));
    node.addEventListener("pointerleave", () => !this.chosen() && this.light(null));
    node.addEventListener("focus", () => !this.chosen() && this.light(entry));
    node.addEventListener("click", () => this.choose(entry));
    this.nodes.append(node);
    this.entries.push(entry);
    return entry;
  }

  tree() {
    const { words, data } = this;
    const { steps, root } = data.beam;
    const rows = Math.max(1, ...steps.map((step) => step.length));
    this.picture = svg("svg", { class: "tree", width: MARGIN + steps.length * WIDE + 20, height: ABOVE + rows * HIGH + 10, role: "group", "aria-label": words.beam });
    this.lines = svg("g", { class: "branches" });
    this.nodes = svg("g", {});
    this.picture.append(this.lines, this.nodes);
    this.entries = [];
    const start = { x: MARGIN - 24, y: ABOVE + HIGH / 2, path: [] };
    this.nodes.append(svg("text", { class: "root", x: MARGIN - 30, y: start.y, "text-anchor": "end", "dominant-baseline": "central" }, shortened(visible(data.names[root]), 6)));
    let slots = new Map([[0, start]]);
    steps.forEach((step, s) => {
      const next = new Map();
      this.picture.append(svg("text", { class: "axis", x: MARGIN + s * WIDE + 4, y: 16 }, filled(words.stepN, s)));
      step.forEach((candidate, rank) => {
        const entry = this.node(candidate, s, rank, slots);
        if (candidate.slot !== null) next.set(candidate.slot, { x: entry.x, y: entry.y, path: [...entry.path, entry] });
      });
      slots = next;
    });
    this.entries[0]?.node.setAttribute("tabindex", "0");
    this.picture.addEventListener("keydown", (event) => {
      const node = event.target.closest?.("g.node");
      const move = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
      if (!node || event.shiftKey) return;
      if (move) {
        const s = Number(node.dataset.step) + move[0];
        const r = Math.min(Number(node.dataset.rank) + move[1], (steps[s]?.length ?? 1) - 1);
        this.picture.querySelector(`g.node[data-step="${s}"][data-rank="${r}"]`)?.focus();
      } else if (event.key === "Enter" || event.key === " ") node.dispatchEvent(new MouseEvent("click"));
      else return;
      event.preventDefault();
    });
    return this.picture;
  }

  sentence() {
    const { words, data } = this;
    const { answers } = data.beam;
    if (answers.length < 2) return null;
    return filled(words.beamRead, { first: answers[0].text || "∅", p: share(Math.exp(answers[0].logprob)), second: answers[1].text || "∅", q: share(Math.exp(answers[1].logprob)) });
  }

  async draw() {
    const { words, data } = this;
    const { beam } = data;
    this.readout = h("div", { class: "readout", "aria-live": "polite" });
    const tree = this.tree();
    this.holds();
    const key = h(
      "p",
      { class: "key" },
      h("span", { class: "swatch kept" }, words.kept),
      h("span", { class: "swatch ended" }, `■ ${words.ended}`),
      h("span", { class: "swatch dropped" }, words.dropped),
      beam.has_best ? h("span", { class: "swatch best" }, words.lookedAt) : null,
      h("span", { class: "note" }, filled(words.beamOf, { width: beam.width, most: 2 * beam.width })),
    );
    const captions = [words.answers, words.probability, words.logprob, words.score];
    this.ranking = h("tbody");
    const answers = h("table", { class: "answers" }, h("thead", {}, h("tr", {}, captions.map((text) => h("th", { scope: "col" }, text)))), this.ranking);
    const [player, penalty] = this.controls();
    this.rank();
    this.grow();
    const greedy = beam.recipe === 1 && beam.width > 1 && !data.forced ? h("p", { class: "note greedy" }, filled(words.greedyRecipe, beam.width)) : null;
    return [this.howTo(this.sentence()), greedy, key, h("div", { class: "sticky" }, this.readout), player, h("div", { class: "scroll" }, tree), penalty, h("div", { class: "scroll" }, answers)];
  }
}
