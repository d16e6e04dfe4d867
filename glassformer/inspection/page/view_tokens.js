// How sure the model was: probability, rank, entropy, alternatives.

import { partners } from "./beside.js";
import { css, inkOn, sizeColour } from "./colours.js";
import { unitsOf } from "./data.js";
import { h, number, share, token, visible } from "./elements.js";
import { legend } from "./heatmap.js";
import { heldOutput, positionOf } from "./held.js";
import { View } from "./view.js";
import { filled } from "./words.js";

/** Doubt is marked; what the model was sure of stays paper. */
function chip(label, probability, attributes) {
  const colour = sizeColour(1 - probability);
  return h("button", { type: "button", class: "chip", style: { background: css(colour), color: inkOn(colour) }, ...attributes }, visible(label));
}

export class TokensView extends View {
  static title = "tokens";

  static has(data) {
    return Boolean(data.outputs);
  }

  static about(data) {
    return data.outputs.labels ? "tokensAboutLabels" : "tokensAbout";
  }

  holds() {
    const at = heldOutput(this.panel);
    this.body.querySelectorAll("tr.lit").forEach((row) => row.classList.remove("lit"));
    const row = this.body.querySelector(`tr[data-at="${at}"]`);
    row?.classList.add("lit");
    return true;
  }

  choose(at) {
    const same = heldOutput(this.panel) === at;
    this.panel.hold(same ? null : { query: positionOf(this.data, "written", at), key: null });
    if (!same) this.body.querySelector(`tr[data-at="${at}"]`)?.scrollIntoView({ block: "nearest", behavior: "auto" });
  }

  /** How a token came to stand there, where that is not plain. */
  tag(at) {
    const { outputs } = this.data;
    const status = outputs.status[at];
    return status === "written" ? null : h("span", { class: "tag" }, this.words[`status_${status}`]);
  }

  /** The report beside this one says something else here, or is surer. */
  beside(at) {
    const { data, panel, words } = this;
    if (panel.index !== 1 || !panel.other) return null;
    const theirs = panel.other.outputs;
    const said = (report) => report.outputs.tokens.map((id) => report.names[id]);
    this.pairs ??= theirs ? partners(said(data), said(panel.other)) : [];
    const there = this.pairs[at] ?? -1;
    if (there < 0) return h("td", { class: "change differs", "data-label": words.change }, words.onlyHere);
    const other = panel.other.names[theirs.tokens[there]];
    const same = other === data.names[data.outputs.tokens[at]];
    const change = Math.exp(data.outputs.logprob[at]) - Math.exp(theirs.logprob[there]);
    return h("td", { class: `number change${same ? "" : " differs"}`, "data-label": words.change }, same ? `${change >= 0 ? "+" : "−"}${share(Math.abs(change))}` : [words.insteadOf, " ", token(other)]);
  }

  row(at) {
    const { words, data } = this;
    const { outputs, names } = data;
    const name = outputs.tokens[at];
    const p = Math.exp(outputs.logprob[at]);
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: { width: `${100 * p}%` } }));
    const others = outputs.best[at]
      .map((id, k) => [names[id], outputs.chances[at][k], id])
      .filter(([, , id]) => id !== name)
      .map(([text, chance]) => h("span", { class: "pair" }, token(text), " ", h("span", { class: "dim" }, share(chance))));
    return h(
      "tr",
      { "data-at": at, tabindex: "0", onclick: () => this.choose(at) },
      h("td", { class: "number" }, String(outputs.positions[at])),
      outputs.words ? h("td", {}, token(outputs.words[at])) : null,
      h("td", {}, token(names[name]), this.tag(at)),
      h("td", { class: "probability" }, bar, h("span", { class: "number" }, share(p))),
      h("td", { class: "number", "data-label": words.surprise }, number(-outputs.logprob[at])),
      h("td", { class: "number", "data-label": words.rank }, String(outputs.rank[at])),
      h("td", { class: "number", "data-label": words.entropy }, number(outputs.entropy[at])),
      this.beside(at),
      h("td", { class: "rest" }, h("div", { class: "others" }, others)),
    );
  }

  sentence() {
    const { data, words } = this;
    const { outputs, names } = data;
    let at = 0; // the least sure of those that were a choice
    outputs.logprob.forEach((value, i) => (value < outputs.logprob[at] ? (at = i) : null));
    const other = outputs.best[at].findIndex((id) => id !== outputs.tokens[at]);
    if (other < 0) return null;
    return filled(words.tokensRead, { token: names[outputs.tokens[at]], p: share(Math.exp(outputs.logprob[at])), rank: outputs.rank[at], other: names[outputs.best[at][other]], q: share(outputs.chances[at][other]) });
  }

  async draw() {
    const { words, data, state, panel } = this;
    const { outputs } = data;
    const units = unitsOf(data.sides.written, state.unit);
    this.body = h("tbody", {}, outputs.tokens.map((_, at) => this.row(at)));
    this.body.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const row = document.activeElement;
      if (event.shiftKey || !row.dataset.at) return;
      if (step) (step < 0 ? row.previousElementSibling : row.nextElementSibling)?.focus();
      else if (event.key === "Enter" || event.key === " ") this.choose(Number(row.dataset.at));
      else return;
      event.preventDefault();
    });
    const chips = units.starts.map((start, g) => {
      const end = units.starts[g + 1] ?? outputs.tokens.length;
      const joint = Math.exp(outputs.logprob.slice(start, end).reduce((a, b) => a + b, 0));
      const name = outputs.words ? `${outputs.words[g]}: ${units.labels[g]}` : units.labels[g];
      return chip(outputs.words?.[g] ?? units.labels[g], joint, { title: `${name} ${share(joint)}`, onclick: () => this.choose(start) });
    });
    const heads = [words.position, outputs.words ? words.word : null, outputs.labels ? words.label : words.token, words.probability, words.surprise, words.rank, words.entropy, panel.index === 1 ? words.change : null, words.alternatives];
    const loss = data.loss === null ? null : h("p", { class: "note" }, `${words.loss}: ${number(data.loss, 4)} (${words.lossAbout})`);
    requestAnimationFrame(() => this.body.isConnected && this.holds());
    return [
      this.howTo(this.sentence()),
      h("div", { class: "chips" }, chips),
      legend({ kind: "one", most: 1, name: words.doubt }, String, words, false),
      state.unit === "pieces" || outputs.labels ? null : h("p", { class: "note" }, words.joint),
      loss,
      h("div", { class: "scroll" }, h("table", { class: "tokens" }, h("thead", {}, h("tr", {}, heads.filter(Boolean).map((text) => h("th", { scope: "col" }, text)))), this.body)),
    ];
  }
}
