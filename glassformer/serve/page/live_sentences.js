// Sentences of the run's own test data, by their loss, or by what a head is worth to each; a click loads one.

import { ask } from "./ask.js";
import { tapName } from "./attention.js";
import { h, number } from "./elements.js";
import { ACROSS_EN } from "./live_sentences_words_en.js";
import { ACROSS_ZH } from "./live_sentences_words_zh.js";
import { filled } from "./words.js";

export class Sentences {
  constructor(live, root) {
    Object.assign(this, { live, root, found: null, open: false });
  }

  get words() {
    return { en: ACROSS_EN, zh: ACROSS_ZH }[this.live.language];
  }

  /** The head that the views have chosen. */
  get part() {
    const { data, page } = this.live;
    const { kind, layer, head } = page.state;
    return data.attentions[kind].layers[layer].head_ids.length ? tapName(data, kind, layer, head) : null;
  }

  async measure(part) {
    const { live } = this;
    this.under?.abort(); // what is not waited for any more ends
    const own = (this.under = new AbortController());
    this.note = filled(this.words.reading, live.model);
    this.draw();
    try {
      const told = await ask("/open/sentences", { model: live.model, step: live.step, part }, own.signal);
      const rise = (one) => (part ? one.without - one.loss : one.loss);
      this.found = { ...told, part, model: live.model, sentences: told.sentences.sort((a, b) => rise(b) - rise(a)) };
      this.note = told.sentences.length ? null : this.words.none;
    } catch (error) {
      if (own.signal.aborted) return;
      this.note = error.message;
    }
    this.draw();
  }

  draw() {
    const { words, live } = this;
    if (!live.page || !live.examples.length) return void this.root.replaceChildren(); // this server shows nothing of the data
    if (this.found?.model !== live.model) this.found = null;
    const { part } = this;
    this.open = this.root.querySelector("details")?.open ?? this.open; // opened just now, and not yet told
    const button = (id, text, act) => h("button", { type: "button", class: "chip", id, onclick: act }, text);
    const box = h("details", { open: this.open, ontoggle: () => (this.open = box.open) },
      h("summary", {}, h("b", {}, words.title)),
      h("div", { class: "line" }, button("by-loss", words.byLoss, () => this.measure(null)), part ? button("by-part", filled(words.byPart, part), () => this.measure(part)) : null, h("span", { class: "dim", role: "status" }, this.note ?? "")),
      this.found?.sentences.length ? this.table() : null,
    );
    this.root.replaceChildren(box);
  }

  table() {
    const { words, live, found } = this;
    const pairs = found.sentences[0].target !== null;
    const about = filled(found.part ? words.aboutPart : pairs ? words.about : words.aboutText, { count: found.sentences.length, split: found.split, part: found.part });
    const heads = [words.text, ...(pairs ? [words.answer] : []), words.loss, ...(found.part ? [words.without, words.rise] : [])];
    const load = (text) => h("button", { type: "button", class: "chip", title: `${words.load}: ${text}`, onclick: () => {
      live.input.value = text;
      live.input.dispatchEvent(new Event("input"));
    } }, text.length > 60 ? `${text.slice(0, 59)}…` : text);
    const row = (one) => h("tr", {}, h("td", {}, load(one.text)), pairs ? h("td", {}, one.target) : null, h("td", {}, number(one.loss, 3)), found.part ? [h("td", {}, number(one.without, 3)), h("td", {}, number(one.without - one.loss, 3))] : null);
    return [h("p", { class: "dim" }, about), h("div", { class: "table", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", {}, name)))), h("tbody", {}, found.sentences.map(row))))];
  }
}
