// The logit lens: layers from bottom to top, positions from left to right.

import { partners } from "./beside.js";
import { css, inkOn, paint, sizeColour } from "./colours.js";
import { h, number, share, shortened, token, visible } from "./elements.js";
import { legend } from "./heatmap.js";
import { heldOutput, positionOf } from "./held.js";
import { View } from "./view.js";
import { filled } from "./words.js";

const LONG = 40;

export class LensView extends View {
  static title = "lens";

  static has(data) {
    return Boolean(data.lens?.length);
  }

  depth(d) {
    const { words, data } = this;
    if (d === 0) return words.embeddings;
    return filled(words.afterLayer, d - 1) + (d === data.lens.length - 1 ? ` (${words.output})` : "");
  }

  /** The cell that is held: [depth, output], or null. */
  heldCell() {
    const at = heldOutput(this.panel);
    return at < 0 ? null : [Math.min(this.state.depth ?? this.data.lens.length - 1, this.data.lens.length - 1), at];
  }

  show(cell) {
    const { words, data } = this;
    if (!cell) return this.readout.replaceChildren(h("span", { class: "note" }, words.hover));
    const [d, at] = cell;
    const layer = data.lens[d];
    const { outputs, names } = data;
    const best = layer.best[at].map((id, k) => h("span", { class: "pair" }, token(names[id]), " ", h("b", {}, share(layer.chances[at][k]))));
    const status = words[`status_${outputs.status[at]}`];
    return this.readout.replaceChildren(
      h(
        "div",
        {},
        h("p", {}, `${words.position} ${outputs.positions[at]}, ${this.depth(d)} · `, token(names[outputs.tokens[at]]), ` (${status}) ${share(Math.exp(layer.logprob[at]))}, ${words.rank} ${layer.rank[at]}, ${words.entropy} ${number(layer.entropy[at])}`),
        h("p", { class: "strongest" }, h("span", { class: "caption" }, words.most), best),
      ),
    );
  }

  holds() {
    this.body.querySelector("td.locked")?.classList.remove("locked");
    const cell = this.heldCell();
    if (cell) this.body.querySelector(`td[data-depth="${cell[0]}"][data-at="${cell[1]}"]`)?.classList.add("locked");
    this.show(cell);
    return true;
  }

  async patch(changed) {
    return [...changed].every((name) => name === "held" || name === "depth") && this.holds();
  }

  choose(d, at) {
    const held = this.heldCell();
    const same = held && held[0] === d && held[1] === at;
    this.panel.set({ depth: d, held: same ? null : { query: positionOf(this.data, "written", at), key: null } });
  }

  /** Whether the report on the left says something else at the same depth and token. */
  differing() {
    const { data, panel } = this;
    const theirs = panel.index === 1 ? panel.other : null;
    if (theirs?.lens?.length !== data.lens.length) return () => false;
    const said = (report) => report.outputs.tokens.map((id) => report.names[id]);
    const there = partners(said(data), said(theirs));
    return (d, at) => there[at] >= 0 && theirs.names[theirs.lens[d].best[there[at]][0]] !== data.names[data.lens[d].best[at][0]];
  }

  cells() {
    const { data } = this;
    const { lens, outputs, names } = data;
    const body = h("tbody");
    const differs = this.differing();
    for (let d = lens.length - 1; d >= 0; d--) {
      const layer = lens[d];
      const row = h("tr", {}, h("th", { scope: "row" }, this.depth(d)));
      for (let at = 0; at < outputs.tokens.length; at++) {
        const colour = sizeColour(layer.chances[at][0]);
        // Before the first layer nothing was computed: a match there is chance, or the embedding read back.
        const right = d > 0 && layer.best[at][0] === outputs.tokens[at];
        const ink = inkOn(colour);
        const style = { background: css(colour), color: ink, boxShadow: right ? `inset 0 0 0 2px ${css(colour)}, inset 0 0 0 4px ${ink}` : "" };
        row.append(h("td", { style, class: [right ? "right" : "", differs(d, at) ? "differs" : ""].join(" ").trim(), tabindex: d === lens.length - 1 && at === 0 ? "0" : "-1", "data-depth": d, "data-at": at }, shortened(visible(names[layer.best[at][0]]), 10)));
      }
      body.append(row);
    }
    return body;
  }

  listen() {
    const place = (event) => {
      const cell = event.target.closest?.("td");
      return cell ? [Number(cell.dataset.depth), Number(cell.dataset.at)] : null;
    };
    for (const kind of ["pointerover", "focusin"]) this.body.addEventListener(kind, (event) => !this.heldCell() && this.show(place(event)));
    this.body.addEventListener("click", (event) => place(event) && this.choose(...place(event)));
    this.body.addEventListener("keydown", (event) => {
      const at = place(event);
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!at || event.shiftKey) return;
      if (step) this.body.querySelector(`td[data-depth="${at[0] + step[0]}"][data-at="${at[1] + step[1]}"]`)?.focus();
      else if (event.key === "Enter" || event.key === " ") this.choose(...at);
      else return;
      event.preventDefault();
    });
  }

  /** Of a long text: the probability of each token at every depth; a click goes there. */
  strip(scroll, table) {
    const { data, words } = this;
    const count = data.outputs.tokens.length;
    const canvas = h("canvas", { class: "strip", style: { height: `${10 * data.lens.length}px` }, title: words.stripAbout });
    const values = new Float32Array(data.lens.length * count);
    data.lens.forEach((layer, d) => layer.logprob.forEach((value, at) => (values[(data.lens.length - 1 - d) * count + at] = Math.exp(value))));
    paint(canvas, { values, rows: data.lens.length, columns: count }, { kind: "one", most: 1 });
    canvas.addEventListener("click", (event) => {
      scroll.scrollLeft = (event.offsetX / canvas.clientWidth) * table.scrollWidth - scroll.clientWidth / 2;
    });
    return h("div", {}, canvas, h("p", { class: "note" }, words.stripAbout));
  }

  /** The token that took longest to become the likeliest. */
  sentence() {
    const { data, words } = this;
    const { lens, outputs, names } = data;
    let best = null;
    outputs.tokens.forEach((id, at) => {
      const first = lens.findIndex((layer, d) => d > 0 && lens.slice(d).every((later) => later.best[at][0] === id));
      if (first > 0 && (!best || first > best.first)) best = { first, at };
    });
    if (!best) return words.lensReadNone;
    const before = lens[best.first - 1];
    return filled(words.lensRead, { token: names[outputs.tokens[best.at]], layer: best.first - 1, before: this.depth(best.first - 1), other: names[before.best[best.at][0]], p: share(Math.exp(lens[best.first].logprob[best.at])) });
  }

  async draw() {
    const { words, data } = this;
    const { outputs, names } = data;
    this.readout = h("div", { class: "readout", "aria-live": "polite" });
    this.body = this.cells();
    this.listen();
    const room = (this.panel.width() - 180) / Math.max(1, outputs.tokens.length) - 20; // less padding and borders
    const table = h("table", { class: "lens", style: { "--cell": `${Math.round(Math.max(26, Math.min(72, room)))}px` } });
    const title = outputs.words ? words.word : `${words.token} →`;
    table.append(h("thead", {}, h("tr", {}, h("th", { scope: "col" }, title), outputs.tokens.map((id, at) => h("th", { scope: "col" }, outputs.words ? token(outputs.words[at]) : token(names[id]))))));
    table.append(this.body);
    const scroll = h("div", { class: "scroll" }, table);
    this.holds();
    const tied = data.machine?.tied ? words.lensTied : words.lensUntied;
    return [
      this.howTo(this.sentence()),
      h("p", { class: "note" }, `${tied} ${words.piecesOnly}`),
      h("div", { class: "sticky" }, this.readout),
      outputs.tokens.length > LONG ? this.strip(scroll, table) : null,
      scroll,
      legend({ kind: "one", most: 1, name: words.lensLegend }, String, words, false),
      this.body.querySelector("td.differs") ? h("p", { class: "note" }, words.lensDiffers) : null,
    ];
  }
}
