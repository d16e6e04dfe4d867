// The same sentence at every kept checkpoint: a strip, an animation, the loss and the probabilities.

import { headControls, headName, mergedMap, readCell, tapName, weightMap, weightScale } from "./attention.js";
import { paint } from "./colours.js";
import { matrix, unpack } from "./data.js";
import { choice, h, number, share, svg, token, widthOf } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { heldOutput, positionOf } from "./held.js";
import { View } from "./view.js";
import { filled } from "./words.js";

/** A short number for an axis. */
function tick(value) {
  if (value > 0 && value < 0.01) return value.toExponential(1).replace("e-", "e−");
  return String(Number(value.toPrecision(3)));
}

export class AcrossView extends View {
  static title = "across";

  static has(data) {
    return Boolean(data.across?.length);
  }

  get moment() {
    const { across } = this.data;
    const own = across.findIndex((m) => m.own);
    return Math.min(this.state.moment ?? (own < 0 ? across.length - 1 : own), across.length - 1);
  }

  get facts() {
    return this.data.across[this.moment];
  }

  /** Steps on a scale that has room for 0, 10, 30, 100 …: the logarithm of the step and ten. */
  place(step) {
    return Math.log10(step + 10);
  }

  lossCurve() {
    const { data, words, panel } = this;
    const losses = data.across.map((m) => m.loss);
    if (losses.some((loss) => loss === null)) return null;
    const wide = Math.max(200, Math.min(520, (panel.width() > 860 ? panel.width() * 0.38 : panel.width()) - 10));
    const [high, top] = [150, 14];
    const bottom = high - 40;
    const low = Math.min(...losses);
    const span = Math.max(...losses) - low || 1;
    const left = 14 + Math.max(34, ...[low, low + span].map((value) => widthOf(tick(value))));
    const first = this.place(data.across[0].step);
    const reach = this.place(data.across[data.across.length - 1].step) - first || 1;
    const x = (m) => left + 6 + ((wide - left - 20) * (this.place(m.step) - first)) / reach;
    const y = (loss) => bottom - ((bottom - top) * (loss - low)) / span;
    const picture = svg("svg", { class: "curve", width: wide, height: high, role: "img", "aria-label": words.loss });
    picture.append(svg("line", { class: "line", x1: left, x2: wide - 8, y1: bottom, y2: bottom }), svg("line", { class: "line", x1: left, x2: left, y1: top, y2: bottom }));
    picture.append(svg("polyline", { points: data.across.map((m) => `${x(m)},${y(m.loss)}`).join(" ") }));
    let end = -Infinity;
    data.across.forEach((m, i) => {
      const dot = svg("circle", { cx: x(m), cy: y(m.loss), r: 4, "data-moment": i }, svg("title", {}, `${m.name}: ${number(m.loss, 4)}`));
      dot.addEventListener("click", () => panel.set({ moment: i }));
      picture.append(dot);
      const half = widthOf(m.name) / 2;
      if (x(m) - half > end + 6) {
        picture.append(svg("text", { x: x(m), y: bottom + 16, "text-anchor": "middle" }, m.name));
        end = x(m) + half;
      }
    });
    for (const value of [low, low + span]) picture.append(svg("text", { x: left - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, tick(value)));
    picture.append(svg("text", { class: "axis", x: (left + wide) / 2, y: high - 6, "text-anchor": "middle" }, words.stepAxis));
    return picture;
  }

  async map(moment, kind, layer, head) {
    const attention = this.data.attentions[kind];
    return mergedMap(this.panel, matrix(await unpack(this.data.across[moment].weights[kind][layer]), head), attention.queries, attention.keys, attention);
  }

  async strip(kind, layer, head, small) {
    const { data, panel } = this;
    const row = h("div", { class: small ? "strip small" : "strip" });
    for (const [i, m] of data.across.entries()) {
      const found = await this.map(i, kind, layer, head);
      const canvas = h("canvas", { "aria-hidden": "true" });
      paint(canvas, found.map, weightScale(panel), found.masked);
      row.append(h("button", { type: "button", class: "frame", title: m.name, "data-moment": i, onclick: () => panel.set({ moment: i, kind, layer, head }) }, canvas, small ? null : h("span", {}, m.own ? `${m.name} ★` : m.name)));
    }
    return row;
  }

  /** All that depends on the checkpoint that is shown; the slider itself stays, so that it can be dragged. */
  async showMoment() {
    const { state, words, panel } = this;
    this.play.setAttribute("aria-pressed", String(Boolean(state.playing)));
    this.play.textContent = state.playing ? `❚❚ ${words.pause}` : `▶ ${words.play}`;
    this.slider.value = this.moment;
    const { loss, name } = this.facts;
    const losses = loss === null ? "" : `${words.loss} ${number(loss, 4)} · ${words.perToken} ${share(Math.exp(-loss))}`;
    this.caption.replaceChildren(h("b", {}, filled(words.stepN, name)), " ", h("span", { class: "note" }, losses));
    this.root.querySelectorAll(".frame[data-moment]").forEach((frame) => frame.setAttribute("aria-pressed", String(Number(frame.dataset.moment) === this.moment)));
    this.root.querySelectorAll("circle[data-moment]").forEach((dot) => dot.classList.toggle("now", Number(dot.dataset.moment) === this.moment));
    const found = await this.map(this.moment, state.kind, state.layer, state.head);
    const drawn = weightMap(panel, found, headName(panel, state.kind, state.layer, state.head), { say: (i, j) => readCell(panel, found, i, j) });
    this.live = this.live.filter((part) => part !== this.large);
    this.large?.destroy?.();
    this.large = drawn;
    this.box.replaceChildren(this.keep(drawn));
    drawn.shown();
  }

  async patch(changed) {
    if (![...changed].every((name) => name === "moment" || name === "playing")) return false;
    if (this.box) await this.showMoment();
    return Boolean(this.box);
  }

  async render() {
    await super.render();
    if (this.box) await this.showMoment();
  }

  chances() {
    const { data, words, panel } = this;
    const count = data.outputs.tokens.length;
    const values = new Float32Array(count * data.across.length);
    data.across.forEach((m, i) => m.logprob.forEach((value, at) => (values[i * count + at] = Math.exp(value))));
    const tokens = data.outputs.tokens.map((id, at) => data.outputs.words?.[at] ?? data.names[id]);
    return new Heatmap({
      map: { values, rows: data.across.length, columns: count },
      rows: data.across.map((m) => m.name),
      plainRows: true,
      columns: tokens,
      axes: [words.step, words.token],
      scale: { kind: "one", most: 1, name: words.probability },
      masked: null,
      say: (i, j) => h("p", {}, `${filled(words.stepN, data.across[i].name)}: `, token(tokens[j]), " ", h("b", {}, share(values[i * count + j])), `, ${words.rank} ${data.across[i].rank[j]}`),
      held: () => (heldOutput(panel) < 0 ? null : [this.moment, heldOutput(panel)]),
      setHold: (cell) => panel.hold(cell ? { query: positionOf(data, "written", cell[1]), key: null } : null),
      name: words.chances,
      words,
      format: String,
    });
  }

  sentence() {
    const { data, words } = this;
    const [first, last] = [data.across[0], data.across[data.across.length - 1]];
    let at = 0;
    const gain = (i) => Math.exp(last.logprob[i]) - Math.exp(first.logprob[i]);
    data.outputs.tokens.forEach((_, i) => (gain(i) > gain(at) ? (at = i) : null));
    return filled(words.acrossRead, { token: data.names[data.outputs.tokens[at]], first: first.name, p: share(Math.exp(first.logprob[at])), last: last.name, q: share(Math.exp(last.logprob[at])) });
  }

  async draw() {
    const { words, data, state, panel } = this;
    const attention = data.attentions[state.kind];
    const scales = [["one", words.scaleOne], ["root", words.scaleRoot], ["row", words.scaleRow]];
    const controls = h("div", { class: "controls" }, headControls(panel), choice(words.colour, scales, state.scale, (scale) => panel.set({ scale })));
    this.box = null;
    if (!attention.layers[state.layer].head_ids.length) return [controls, h("p", {}, words.noHeads)];
    this.play = h("button", { type: "button", class: "play", onclick: () => panel.page.dispatch({ type: "play", on: !this.state.playing }) });
    this.slider = h("input", { type: "range", min: 0, max: data.across.length - 1, value: this.moment, "aria-label": words.step, oninput: (event) => {
      if (this.state.playing) panel.page.dispatch({ type: "play", on: false });
      panel.set({ moment: Number(event.target.value) });
    } });
    this.caption = h("span", {});
    this.box = h("div", {});
    const every = h("div", { class: "every" });
    for (const [l, one] of attention.layers.entries()) {
      for (const [at, head] of one.head_ids.entries()) every.append(h("span", { class: "layer" }, `${l}.${head}`), await this.strip(state.kind, l, at, true));
    }
    const curve = this.lossCurve();
    return [
      controls,
      this.howTo(this.sentence()),
      h("h3", {}, `${words.strip}: ${headName(panel, state.kind, state.layer, state.head)} `, h("code", { class: "note" }, tapName(data, state.kind, state.layer, state.head))),
      h("div", { class: "scroll" }, await this.strip(state.kind, state.layer, state.head, false)),
      data.across.some((m) => m.own) ? h("p", { class: "note" }, `★ ${words.theseWeights}`) : null,
      h("div", { class: "player" }, this.play, this.slider, this.caption),
      h("div", { class: "twocolumns even" }, this.box, h("div", {}, curve ? [h("h3", {}, words.loss), curve] : null, h("h3", {}, words.chances), this.keep(this.chances()))),
      h("h3", {}, `${words.everyHead}: ${words[`${state.kind}Long`]}`),
      h("div", { class: "scroll" }, every),
    ];
  }
}
