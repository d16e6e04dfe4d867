// The lenses: one line to type in, one answer, and the views of `look` below, drawn anew with every key; at `/` they stand below the
// translator, which is their host, and in whose field one types. Whatever is
// chosen in them, a head or a layer, can be switched off; the answer is then written anew, beside that of the whole model. Any
// token of the answer can be chosen anew (live_choose.js); the model then goes on from it.

import { ask, heldKey, heldToken, holdKey } from "./ask.js";
import { h, select, share, token } from "./elements.js";
import { askReport, reports } from "./live_arrays.js";
import { chooseView, samplingOf } from "./live_choose.js";
import { Compare } from "./live_compare.js";
import { Learning } from "./live_learning.js";
import { Sentences } from "./live_sentences.js";
import { Stage } from "./live_stage.js";
import { Take } from "./live_take.js";
import { Walk } from "./live_walk.js";
import { LIVE_EN } from "./live_words_en.js";
import { LIVE_ZH } from "./live_words_zh.js";
import { Why } from "./live_why.js";
import { show } from "./page.js";
import { remembered } from "./store.js";
import { filled, LANGUAGES } from "./words.js";

const PAUSE = 120; // ms after the last key, where an answer takes longer than QUICK; else none
const QUICK = 250; // ms: an answer that another key has overtaken is broken off anyway
const REST = 300; // ms without a key, after which the slow part is asked for: who types on does not wait for it
const MOST = 2048; // characters
const SLOW = ["attribution", "beam", "across"]; // views that the first, quick answer has nothing for
const LONG = 128; // tokens of a text, above which the slow part comes when it is asked for
const DOUBT = 0.5; // a token that was less probable than this is marked

export class Live {
  constructor(host = null) {
    const [root, walk, stage, views, both] = ["live", "walk", "stage", "page", "both"].map((id) => document.getElementById(id));
    Object.assign(this, { host, root, views, both });
    window.live = this;
    const address = new URLSearchParams(location.search);
    this.stage = new Stage(this, stage);
    this.walk = new Walk(this, walk, address.has("walk") ? Number(address.get("walk")) - 1 : null);
    // What stands beside the views begins below the line to type in, which stays.
    new ResizeObserver(() => document.documentElement.style.setProperty("--above", `${root.offsetHeight}px`)).observe(root);
    this.model = address.get("model");
    this.readAddress(address);
    window.addEventListener("popstate", () => this.goBack());
    reports.addEventListener("forgotten", () => this.later(0));
    this.sampling = { temperature: 1, topK: 51, topP: 1 };
    this.before = []; // earlier changes: what was cut and what was forced
    this.learning = new Learning(this, document.getElementById("learning"));
    this.why = new Why(this, document.getElementById("why"));
    this.compare = new Compare(this, document.getElementById("compare"));
    this.sentences = new Sentences(this, document.getElementById("sentences"));
    this.takeAway = new Take(this, document.getElementById("take"));
    this.models = [];
    this.examples = [];
    this.page = null;
    this.data = null;
  }

  /** What an address says of the text and of what is changed. */
  readAddress(address) {
    this.text = address.get("text") ?? "";
    this.cuts = address.getAll("cut");
    this.forced = (address.get("prefix") ?? "").split(".").filter(Boolean).map(Number); // ids that the answer is made to begin with
    this.place = address.has("at") ? Number(address.get("at")) : null; // of the token that is being chosen
    this.step = address.has("step") ? Number(address.get("step")) : null; // of the weights that answer; null: the latest
  }

  /** Back and forward, among texts, cuts and forced tokens; the views look after their own part of the address. */
  goBack() {
    const address = new URLSearchParams(location.search);
    const asked = () => JSON.stringify([this.text, this.cuts, this.forced, this.step]);
    const before = asked();
    this.readAddress(address);
    if (asked() === before) return;
    if (this.host) this.host.take(this.text);
    else this.input.value = this.text;
    this.later(0);
  }

  get language() {
    return this.page?.state.language ?? remembered("language", LANGUAGES) ?? ((navigator.language || "en").startsWith("zh") ? "zh" : "en");
  }

  get words() {
    return { en: LIVE_EN, zh: LIVE_ZH }[this.language];
  }

  async begin() {
    const settings = await ask("/frontend/settings");
    this.keyRequired = settings.keyRequired;
    await this.load();
    this.draw();
    this.show(true);
    await this.learning.begin();
    if (this.learning.runs.size) this.draw();
    if (this.text) await this.answer();
    if (this.host && matchMedia("(max-width: 720px)").matches) this.root.scrollIntoView({ block: "start" });
    document.documentElement.dataset.ready = "yes";
  }

  /** Below a translator they are opened and closed. */
  show(on) {
    this.root.hidden = this.both.hidden = !on;
    if (!on) this.under?.abort();
  }

  async load() {
    try {
      this.models = (await ask("/v1/models")).data.map((one) => one.id);
      this.refused = false;
    } catch (error) {
      if (![401, 403].includes(error.status)) throw error;
      this.models = [];
      this.refused = true;
    }
    if (!this.models.includes(this.model)) this.model = this.models[0] ?? null;
    const found = this.model ? await ask(`/open/${encodeURIComponent(this.model)}/examples`) : { examples: [], stray: null, tour: false };
    [this.examples, this.stray, this.hasTour] = [found.examples, found.stray, found.tour];
    if (!this.text && this.examples.length) this.text = this.examples[0];
  }

  draw() {
    const { words } = this;
    this.input = this.host?.input ?? this.field();
    this.said = h("output", { class: "said", id: "answer" });
    this.state = h("span", { id: this.host ? "live-state" : "state", role: "status", class: "dim" });
    const example = (text, name, title) => h("button", { type: "button", class: "chip example", title, "data-text": text, onclick: () => {
      this.input.value = text;
      this.input.dispatchEvent(new Event("input"));
    } }, name);
    const chips = [...this.examples.map((text) => example(text, text, text)), this.stray ? example(this.stray, `${this.stray} ⇄`, words.stray) : null];
    this.root.replaceChildren(
      h("div", { class: "line" }, ...(this.host ? [] : [this.modelField(), this.refused || (this.keyRequired && !heldToken()) ? this.keyField() : null, this.input, h("span", { class: "caption" }, "→")]), this.said, this.state),
      h("div", { class: "line rows" },
        this.tokenLine = h("div", { class: "line scroll", id: "tokens" }),
        h("nav", { class: "line", "aria-label": words.further }, h("span", { class: "caption" }, words.further), this.further()),
      ),
      this.examples.length ? h("div", { class: "line" }, h("span", { class: "caption" }, words.examples), chips) : "",
    );
    this.drawAnswer();
    this.learning.draw();
    this.takeAway.draw();
  }

  field() {
    const { words } = this;
    const input = h("input", { type: "text", id: "text", "aria-label": words.text, placeholder: words.type, maxlength: String(MOST), spellcheck: "false", autocomplete: "off" });
    input.value = this.text;
    input.addEventListener("input", () => this.typed(input.value));
    return input;
  }

  modelField() {
    const { words, models } = this;
    return models.length > 1 ? select(words.model, models.map((name) => [name, name]), this.model, (name) => this.choose(name)) : h("b", {}, this.model ?? words.none);
  }

  keyField() {
    const { words } = this;
    const key = h("input", { type: "password", id: "key", "aria-label": words.key, placeholder: words.key, value: heldKey(), onchange: async () => {
      holdKey(key.value);
      await this.load();
      this.draw();
      this.later(0);
    } });
    return key;
  }

  typed(text) {
    this.write(text, this.took < QUICK ? 0 : PAUSE);
  }

  /** The ways to what stands below the views. */
  further() {
    const names = { why: this.why.words.why, compare: this.compare.words.beside, learning: this.learning.words.title, sentences: this.sentences.words.title, take: this.takeAway.words.take };
    if (!this.examples.length) delete names.sentences; // a server for others shows neither its data nor a training
    if (!this.learning.runs.size) delete names.learning;
    return Object.entries(names).map(([id, name]) => h("button", { type: "button", class: "chip", "data-to": id, onclick: () => {
      const section = document.getElementById(id);
      for (const details of section.querySelectorAll("details")) details.open = true;
      section.scrollIntoView({ block: "start" });
      section.querySelector("button, summary, select, input")?.focus({ preventScroll: true });
    } }, name));
  }

  /** Another text: what was forced on the answer to the last one has no meaning for it. */
  write(text, pause) {
    this.text = text;
    this.forced = [];
    this.place = null;
    this.wanted = false;
    this.later(pause);
  }

  async choose(name) {
    if (name === this.model) return;
    this.model = name;
    this.step = null;
    this.cuts = [];
    this.forced = [];
    this.place = null;
    this.before = [];
    await this.load();
    this.draw();
    this.later(0);
  }

  later(milliseconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.answer(), milliseconds);
  }

  /** The address of what is seen: the text, the run and the cuts; the views keep their part behind the #. */
  remember() {
    if (this.root.hidden) return; // closed meanwhile: the address is the translator's again
    const address = new URLSearchParams([["model", this.model], ["text", this.text], ...this.cuts.map((part) => ["cut", part]), ...(this.step === null ? [] : [["step", this.step]]), ...this.compare.address]);
    if (this.forced.length) address.set("prefix", this.forced.join("."));
    if (this.place !== null) address.set("at", String(this.place));
    if (this.walk.at !== null) address.set("walk", String(this.walk.at + 1));
    history.replaceState(null, "", `?${address}${location.hash}`);
  }

  /** What is asked for. */
  asked() {
    return { model: this.model, text: this.text, cut: this.cuts, prefix: this.forced, step: this.step, data: true };
  }

  async answer() {
    this.under?.abort();
    const own = (this.under = new AbortController());
    this.state.textContent = "";
    this.state.classList.remove("failed");
    if (!this.text.trim() || !this.model) return;
    const asked = this.asked();
    const waiting = setTimeout(() => (this.state.textContent = this.words.reading), 300);
    try {
      const begun = performance.now();
      const view = this.page?.state.view ?? new URLSearchParams(location.hash.slice(1)).get("view");
      const beside = this.compare.asked(asked);
      if (!SLOW.includes(view) && !beside) {
        const draft = this.data ? this.answerIds() : []; // a letter more seldom changes all of the answer
        const quick = await askReport({ ...asked, explained: false, draft }, own.signal);
        quick.pending = this.wanted || !this.isLong(quick); // the views of the slow part stay among the tabs
        await this.take(quick, own);
        this.took = performance.now() - begun;
        await new Promise((rested) => setTimeout(rested, REST));
        if (own.signal.aborted) return;
        if (!quick.pending) return void (this.state.textContent = "");
      }
      const data = await askReport({ ...asked, across: this.learning.wantsAcross }, own.signal);
      await this.take(beside ? this.compare.joined(data, await askReport(beside, own.signal)) : data, own);
      this.state.textContent = "";
    } catch (error) {
      if (own.signal.aborted) return;
      this.state.classList.add("failed");
      this.state.textContent = error.message;
      this.remember();
    } finally {
      clearTimeout(waiting);
    }
  }

  /** Is a text so long that the slow part takes more than a few seconds? */
  isLong(data) {
    return Object.values(data.sides).some((side) => side.pieces.length > LONG);
  }

  async take(data, own) {
    if (own.signal.aborted) return;
    this.data = data;
    if (this.page === null) {
      this.page = await show(data, this.views, { forces: true, tools: !this.host, views: [chooseView(this)], words: { en: LIVE_EN, zh: LIVE_ZH } });
      this.page.listen((action) => action.type === "force" && this.force(action.ids));
      this.page.listen((action) => action.type === "carry" && this.compare.carry(action));
      this.page.store.subscribe((changed) => {
        if (changed.has("held")) this.why.draw();
        if (this.host) this.host.follow(this.page.state);
        else if (changed.has("language")) this.draw();
        if (changed.has("view")) this.drawTokens();
        if (["kind", "layer", "head", "part", "held"].some((name) => changed.has(name))) {
          this.stage.draw();
          this.sentences.draw();
        }
      });
      this.draw();
      if (this.walk.at !== null) this.walk.go(this.walk.at);
    } else await this.page.update(data);
    this.drawSaid();
    // The answer and the open view stand; what is around them comes when they are painted.
    cancelAnimationFrame(this.around);
    this.around = requestAnimationFrame(() => setTimeout(() => {
      this.drawAround();
      this.remember();
    }));
  }

  drawAnswer() {
    if (!this.data) return;
    this.drawSaid();
    this.drawAround();
  }

  drawSaid() {
    const { data, words } = this;
    const said = data.answer ?? data.says ?? "";
    const was = data.cut && data.cut.answer !== said ? h("span", { class: "was", title: words.whole }, data.cut.answer ?? "") : null;
    this.said.hidden = this.host && !was && !this.forced.length; // the translator says it
    this.said.replaceChildren(said, ...(was ? [" ", was] : []));
    this.drawTokens();
  }

  drawAround() {
    this.stage.draw();
    this.walk.draw();
    this.learning.drawWeights();
    this.why.draw();
    this.compare.rank();
    this.sentences.draw();
    this.drawn = this.data;
  }

  // ---- choosing the next token

  /** The number of the first output that is the answer's; those before it were given. */
  get first() {
    return Math.max(0, this.data.outputs.status.findIndex((status) => status !== "given"));
  }

  /** The ids of the answer, its end included. */
  answerIds() {
    const { outputs } = this.data;
    return outputs.ids.slice(this.first).filter((_, i) => outputs.status[this.first + i] !== "next");
  }

  placeNow() {
    return Math.max(0, Math.min(this.place ?? this.forced.length, this.answerIds().length - (this.data.outputs.status.at(-1) === "next" ? 0 : 1)));
  }

  prefixAt(place) {
    return this.answerIds().slice(0, place);
  }

  samplingNow(count) {
    return samplingOf(this.sampling, count);
  }

  /** The distribution at a place of the answer, asked for once. */
  async next(place) {
    const asked = { model: this.model, text: this.data.text, prefix: this.prefixAt(place), cut: this.data.cut?.parts ?? [], step: this.step };
    const key = JSON.stringify(asked);
    if (this.nextKey !== key) [this.nextKey, this.nextFound] = [key, await ask("/next", asked)];
    return this.nextFound;
  }

  /** To another place of the answer. */
  go(place) {
    this.place = place;
    this.remember();
    if (this.page.state.view === "choose") this.page.draw();
    else this.page.set({ view: "choose" });
    this.drawTokens();
  }

  /** The answer is made to begin with these ids. */
  force(ids) {
    this.change({ forced: ids });
    this.place = null;
  }

  /** The answer's tokens, each a button that opens the choice of it; what greedy would have said where that is something else. */
  drawTokens() {
    const { data, words } = this;
    if (data.answer === null || data.forced) return this.tokenLine.replaceChildren();
    const { outputs, names, greedy } = data;
    const now = this.page?.state.view === "choose" ? this.placeNow() : -1;
    const chips = this.answerIds().map((_, i) => {
      const p = Math.exp(outputs.logprob[this.first + i]);
      const kind = `chip one${i < this.forced.length ? " pinned" : ""}${p < DOUBT ? " doubt" : ""}`;
      return h("button", { type: "button", class: kind, "data-place": i, "aria-pressed": String(i === now), title: filled(words.chooseThis, share(p)), onclick: () => this.go(i) }, token(names[outputs.tokens[this.first + i]]));
    });
    const free = this.forced.length ? h("button", { type: "button", class: "chip", id: "free", onclick: () => this.force([]) }, words.free) : "";
    const explain = this.isLong(data) && !data.saliency ? h("button", { type: "button", class: "chip", id: "explain", title: words.explainAbout, onclick: () => {
      this.wanted = true;
      this.later(0);
    } }, words.explain) : "";
    const other = greedy && greedy.text !== data.answer ? h("span", { id: "greedy" }, h("span", { class: "caption" }, words.greedy), greedy.text || "∅") : "";
    return this.tokenLine.replaceChildren(h("span", { class: "caption" }, words.tokenByToken), ...chips, free, explain, other);
  }

  // ---- cutting

  /** Something is cut or forced; it can be undone. */
  change(changes) {
    this.before.push({ cuts: this.cuts, forced: this.forced });
    history.pushState(null, "", location.href); // Back takes it back, too
    Object.assign(this, changes);
    this.stage.draw();
    this.later(0);
  }

  cut(parts) {
    this.change({ cuts: parts });
  }

  undo() {
    Object.assign(this, this.before.pop(), { place: null });
    this.stage.draw();
    this.later(0);
  }
}

export async function begin() {
  await new Live().begin();
}
