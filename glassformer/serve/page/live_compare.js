// Beside what is on the screen: another text, run or step, or the same without its cuts; and where the two differ most. Of two texts,
// the activations that carry the difference, each of which can be carried over: the answer is then written anew.

import { headMap, tapName } from "./attention.js";
import { ask } from "./ask.js";
import { difference, distance, partners } from "./beside.js";
import { matrix, unpack } from "./data.js";
import { h, number, select, share, token, visible } from "./elements.js";
import { positionOf } from "./held.js";
import { COMPARE_EN } from "./live_compare_words_en.js";
import { COMPARE_ZH } from "./live_compare_words_zh.js";
import { filled } from "./words.js";

const [HEADS, TOKENS, CELLS, SAME] = [5, 4, 6, 0.005]; // named at most, and what is not worth naming

export class Compare {
  constructor(live, root) {
    const [, kind, value] = /^(text|run|step|whole):(.*)$/s.exec(new URLSearchParams(location.search).get("beside") ?? "") ?? [];
    Object.assign(this, { live, root, kind: kind ?? null, value: value ?? "" });
  }

  get words() {
    return { en: COMPARE_EN, zh: COMPARE_ZH }[this.live.language];
  }

  /** What the address holds of it. */
  get address() {
    return this.kind ? [["beside", `${this.kind}:${this.value}`]] : [];
  }

  /** The request for what stands beside; null where nothing does. */
  asked(own) {
    const { kind, value } = this;
    if (kind === "text") return value.trim() ? { ...own, text: value } : null;
    if (kind === "run") return this.live.models.includes(value) ? { ...own, model: value, step: null, cut: [] } : null;
    if (kind === "step") return { ...own, step: value === "" ? null : Number(value) };
    if (kind === "whole") return own.cut.length ? { ...own, cut: [] } : null;
    return null;
  }

  /** Both reports as one, each with a title that tells it from the other. */
  joined(data, other) {
    const { words } = this;
    const titled = (report) => ({ ...report, title: this.kind === "step" && report.step !== null ? filled(words.ofStep, report) : this.kind === "whole" && !report.cut ? filled(words.wholeTitle, report) : report.title });
    return { ...titled(data), beside: titled(other) };
  }

  choose(kind, value = "") {
    Object.assign(this, { kind, value });
    this.draw();
    if (kind !== "text" || value) this.live.later(0);
    else document.getElementById("other")?.focus();
  }

  draw() {
    const { words, live, kind } = this;
    const kept = live.learning.run?.kept ?? [];
    const others = live.models.filter((name) => name !== live.model);
    const can = { text: true, run: others.length, step: kept.length, whole: live.cuts.length };
    const first = { text: "", run: others[0], step: String(kept[0]), whole: "" };
    const kinds = [["", words.nothing], ...Object.keys(can).filter((name) => can[name] || name === kind).map((name) => [name, words[name]])];
    const values = kind === "run" ? others : kind === "step" ? kept.map(String) : null;
    const signature = JSON.stringify([kinds, values, kind, live.language]);
    if (signature === this.signature) return;
    this.signature = signature;
    const typed = h("input", { type: "text", id: "other", "aria-label": words.type, placeholder: words.type, maxlength: "2048", spellcheck: "false", autocomplete: "off", oninput: () => {
      this.value = typed.value;
      live.later(200);
    } });
    typed.value = this.value;
    this.ranked ??= h("div", { class: "line", id: "apart" });
    this.cells ??= h("div", { class: "line", id: "cells" });
    this.written ??= h("div", { class: "line", id: "carried", role: "status" });
    this.root.replaceChildren(
      h("div", { class: "line" },
        select(words.beside, kinds, kind ?? "", (name) => this.choose(name || null, first[name])),
        values ? select(words.which, values.map((value) => [value, value]), this.value, (value) => this.choose(kind, value)) : null,
        kind === "text" ? typed : null,
      ),
      this.ranked, this.cells, this.written,
    );
  }

  /** What is asked of the two texts. */
  pair() {
    const { live } = this;
    return { model: live.model, text: live.text, other: this.value, step: live.step, cut: live.cuts };
  }

  drawCells() {
    const { words, live } = this;
    const pair = JSON.stringify(this.pair());
    if (this.kind === "text" && this.value.trim() && this.patched === pair) return; // the cells of what is on the screen
    this.patched = null;
    this.written.replaceChildren();
    this.cells.replaceChildren(...(this.kind === "text" && live.data.beside ? [h("button", { type: "button", class: "chip", id: "patch", title: words.patchAbout, onclick: () => this.patch() }, words.patch)] : []));
  }

  /** Each activation of the other text put into this one: which of them turn the answer. */
  async patch() {
    const { words, live } = this;
    const [pair, data] = [this.pair(), live.data];
    try {
      const found = await ask("/open/patching", pair);
      const { values, columns, rows } = matrix(await unpack(found.panels[0].effects), 0);
      if (live.data !== data) return; // something newer is on the screen
      this.patched = JSON.stringify(pair);
      const cells = Array.from({ length: rows * columns }, (_, i) => ({ layer: Math.floor(i / columns), position: i % columns, effect: values[i] }));
      cells.sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect));
      this.tokensOf = found.panels[0].tokens;
      this.cells.replaceChildren(h("span", { class: "caption" }, words.carriers), ...cells.slice(0, CELLS).filter(({ effect }) => Math.abs(effect) > SAME).map((cell) => h("button", { type: "button", class: "chip cell", "data-cell": `${cell.layer}.${cell.position}`, title: words.carryAbout, onclick: () => this.carry(cell) }, ...this.cellName(cell), ` ${number(cell.effect)}`)));
      data.patching = found;
      await live.page.update(data);
    } catch (error) {
      this.written.replaceChildren(h("span", { class: "failed" }, error.message));
    }
  }

  cellName({ layer, position }) {
    return [token(this.tokensOf[position]), ` · ${layer ? filled(this.words.afterLayer, layer - 1) : this.words.embedding}`];
  }

  /** The answer to this text with one activation of the other in it. */
  async carry({ layer, position }) {
    const { words, live } = this;
    try {
      const { answer } = await ask("/open/patching", { ...this.pair(), layer, position });
      const turned = answer === live.data.beside?.answer ? words.turned : answer === live.data.answer ? words.unmoved : "";
      this.written.replaceChildren(h("span", { class: "caption" }, words.carried), ...this.cellName({ layer, position }), h("b", {}, answer || "∅"), h("span", { class: "dim" }, turned));
    } catch (error) {
      this.written.replaceChildren(h("span", { class: "failed" }, error.message));
    }
  }

  /** Heads by how far apart they look and tokens by how much their probabilities differ, each a link. */
  async rank() {
    this.draw();
    const { words, live } = this;
    const { data, page } = live;
    if (data) this.drawCells();
    if (!data?.beside) return void this.ranked.replaceChildren();
    const [heads, tokens] = [await this.heads(data), this.tokens(data)];
    if (live.data !== data) return; // something newer is on the screen
    const chips = [
      ...tokens.map(({ at, left, right }) => h("button", { type: "button", class: "chip", "data-apart": `token ${at}`, title: filled(words.tokenAbout, { token: visible(data.names[data.outputs.tokens[at]]), left: share(left), right: share(right) }), onclick: () => page.set({ view: "tokens", held: { query: positionOf(data, "written", at), key: null } }) }, token(data.names[data.outputs.tokens[at]]), ` ${share(left)} | ${share(right)}`)),
      ...heads.map(({ kind, layer, head, part, value }) => h("button", { type: "button", class: "chip", "data-apart": part, title: filled(words.headAbout, { part, value: number(value) }), onclick: () => page.set({ view: "maps", kind, layer, head }) }, `${part} Δ ${number(value)}`)),
    ];
    this.ranked.replaceChildren(h("span", { class: "caption" }, chips.length ? words.apart : words.alike), ...chips);
  }

  async heads(data) {
    const pieces = (report) => ({ data: report, state: { unit: "pieces" }, words: this.words });
    const found = [];
    for (const [kind, attention] of Object.entries(data.attentions)) {
      for (const [layer, { head_ids: ids }] of attention.layers.entries()) {
        for (const [head, id] of ids.entries()) {
          const there = data.beside.attentions[kind]?.layers[layer]?.head_ids.indexOf(id) ?? -1;
          if (there < 0) continue;
          const less = difference(await headMap(pieces(data.beside), kind, layer, there), await headMap(pieces(data), kind, layer, head));
          if (less) found.push({ kind, layer, head, part: tapName(data, kind, layer, head), value: distance(less) });
        }
      }
    }
    return found.filter(({ value }) => value > SAME).sort((a, b) => b.value - a.value).slice(0, HEADS);
  }

  /** Tokens that stand at the same place of both answers, or are the same; one that the other says otherwise has no probability there. */
  tokens(data) {
    const said = (report) => report.outputs.tokens.map((id) => report.names[id]);
    const [ours, theirs] = [said(data), said(data.beside)];
    const found = partners(ours, theirs).flatMap((there, at) => (there < 0 ? [] : [{ at, left: Math.exp(data.outputs.logprob[at]), right: ours[at] === theirs[there] ? Math.exp(data.beside.outputs.logprob[there]) : 0 }]));
    const far = ({ left, right }) => Math.abs(left - right);
    return found.filter((one) => far(one) > SAME).sort((a, b) => far(b) - far(a)).slice(0, TOKENS);
  }
}
