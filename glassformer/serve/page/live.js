// The page at `/open`: one line to type in, one answer, and the views of `look` below, drawn anew with every key. Whatever is
// chosen in them, a head or a layer, can be switched off; the answer is then written anew, beside that of the whole model.

import { ask, heldKey, holdKey } from "./ask.js";
import { h, number, select, token } from "./elements.js";
import { Compare } from "./live_compare.js";
import { Learning } from "./live_learning.js";
import { Sentences } from "./live_sentences.js";
import { Take } from "./live_take.js";
import { LIVE_EN } from "./live_words_en.js";
import { LIVE_ZH } from "./live_words_zh.js";
import { Why } from "./live_why.js";
import { show } from "./page.js";
import { remembered } from "./store.js";
import { filled, LANGUAGES } from "./words.js";

const PAUSE = 120; // ms after the last key
const MOST = 400; // characters
const SLOW = ["attribution", "across"]; // views that the first, quick answer has nothing for

class Live {
  constructor(root, stage) {
    Object.assign(this, { root, stage });
    const address = new URLSearchParams(location.search);
    this.text = address.get("text") ?? "";
    this.model = address.get("model");
    this.cuts = address.getAll("cut");
    this.before = []; // earlier lists of cuts
    this.step = address.has("step") ? Number(address.get("step")) : null; // of the weights that answer; null: the latest
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
    await this.learning.begin();
    if (this.text) await this.answer();
    document.documentElement.dataset.ready = "yes";
  }

  async load() {
    try {
      this.models = (await ask("/v1/models")).data.map((one) => one.id);
    } catch (error) {
      if (![401, 403].includes(error.status)) throw error;
      this.models = [];
    }
    if (!this.models.includes(this.model)) this.model = this.models[0] ?? null;
    this.examples = this.model ? (await ask(`/open/${encodeURIComponent(this.model)}/examples`)).examples : [];
    if (!this.text && this.examples.length) this.text = this.examples[0];
  }

  draw() {
    const { words } = this;
    this.input = h("input", { type: "text", id: "text", "aria-label": words.text, placeholder: words.type, maxlength: String(MOST), spellcheck: "false", autocomplete: "off" });
    this.input.value = this.text;
    this.input.addEventListener("input", () => {
      this.text = this.input.value;
      this.later(PAUSE);
    });
    this.said = h("output", { class: "said", id: "answer" });
    this.state = h("span", { id: "state", role: "status", class: "dim" });
    this.cutLine = h("div", { class: "line", id: "cuts" });
    this.effect = h("div", { id: "effects" });
    const key = h("input", { type: "password", id: "key", "aria-label": words.key, placeholder: words.key, value: heldKey(), onchange: async () => {
      holdKey(key.value);
      await this.load();
      this.draw();
      this.later(0);
    } });
    const chips = this.examples.map((text) => h("button", { type: "button", class: "chip example", title: text, onclick: () => {
      this.text = this.input.value = text;
      this.later(0);
    } }, text));
    this.root.replaceChildren(
      h("div", { class: "line" },
        this.models.length > 1 ? select(words.model, this.models.map((name) => [name, name]), this.model, (name) => this.choose(name)) : h("b", {}, this.model ?? words.none),
        this.keyRequired ? key : null,
        this.input,
      ),
      h("div", { class: "line" }, h("span", { class: "caption" }, "→"), this.said, this.state),
      chips.length ? h("div", { class: "line" }, h("span", { class: "caption" }, words.examples), chips) : "",
      this.cutLine,
      this.effect,
    );
    this.drawAnswer();
    this.learning.draw();
    this.takeAway.draw();
  }

  async choose(name) {
    this.model = name;
    this.step = null;
    this.cuts = [];
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
    const address = new URLSearchParams([["model", this.model], ["text", this.text], ...this.cuts.map((part) => ["cut", part]), ...(this.step === null ? [] : [["step", this.step]]), ...this.compare.address]);
    history.replaceState(null, "", `?${address}${location.hash}`);
  }

  /** What is asked for. */
  asked() {
    return { model: this.model, text: this.text, cut: this.cuts, step: this.step, data: true };
  }

  async answer() {
    this.under?.abort();
    const own = (this.under = new AbortController());
    this.state.textContent = "";
    this.state.classList.remove("failed");
    if (!this.text.trim() || !this.model) return;
    this.remember();
    const asked = this.asked();
    const waiting = setTimeout(() => (this.state.textContent = this.words.reading), 300);
    try {
      const view = this.page?.state.view ?? new URLSearchParams(location.hash.slice(1)).get("view");
      const beside = this.compare.asked(asked);
      if (!SLOW.includes(view) && !beside) await this.take(await ask("/look", { ...asked, explained: false }, own.signal), own);
      const data = await ask("/look", { ...asked, across: this.learning.wantsAcross }, own.signal);
      await this.take(beside ? this.compare.joined(data, await ask("/look", beside, own.signal)) : data, own);
      this.state.textContent = "";
    } catch (error) {
      if (own.signal.aborted) return;
      this.state.classList.add("failed");
      this.state.textContent = error.message;
    } finally {
      clearTimeout(waiting);
    }
  }

  async take(data, own) {
    if (own.signal.aborted) return;
    this.data = data;
    if (this.page === null) {
      this.page = await show(data, this.stage);
      this.page.store.subscribe((changed) => {
        if (changed.has("held")) this.why.draw();
        if (changed.has("language")) this.draw();
        else if (["kind", "layer", "head"].some((name) => changed.has(name))) {
          this.drawCuts();
          this.sentences.draw();
        }
      });
      this.draw();
    } else await this.page.update(data);
    this.drawAnswer();
  }

  drawAnswer() {
    const { data, words } = this;
    this.drawCuts();
    if (!data) return;
    const said = data.answer ?? data.says ?? "";
    const was = data.cut && data.cut.answer !== said ? h("span", { class: "was", title: words.whole }, data.cut.answer ?? "") : null;
    this.said.replaceChildren(said, ...(was ? [" ", was] : []));
    this.drawEffect();
    this.learning.drawWeights();
    this.why.draw();
    this.compare.rank();
    this.sentences.draw();
  }

  /** The part of the machine that the views have chosen. */
  chosen() {
    const { kind, layer, head } = this.page.state;
    const attention = this.data.attentions[kind].layers[layer];
    const stack = kind === "encoder" ? "encoder" : "decoder";
    const module = `${stack}.${layer}.${kind === "cross" ? "cross" : "attention"}`;
    const heads = attention.head_ids.map((id) => `${module}:${id}`);
    return { head: heads[head], heads, mlp: `${stack}.${layer}.mlp`, stack, layer };
  }

  /** All that a layer adds to the stream: the heads of its attentions, and its MLP. */
  layerParts({ stack, layer, mlp }) {
    const kinds = Object.keys(this.data.attentions).filter((kind) => (kind === "encoder") === (stack === "encoder"));
    const heads = kinds.flatMap((kind) => this.data.attentions[kind].layers[layer].head_ids.map((id) => `${stack}.${layer}.${kind === "cross" ? "cross" : "attention"}:${id}`));
    return [...heads, mlp];
  }

  cut(parts) {
    this.before.push(this.cuts);
    this.cuts = parts;
    this.drawCuts();
    this.later(0);
  }

  drawCuts() {
    const { words, cuts } = this;
    if (!this.page || !this.data) return;
    const place = this.chosen();
    const add = (parts) => this.cut([...new Set([...cuts, ...parts])]);
    const button = (id, text, act, off = false) => h("button", { type: "button", class: "chip", id, disabled: off, onclick: act }, text);
    this.cutLine.replaceChildren(
      place.head ? button("cut-head", `✂ ${words.cutHead}: ${place.head}`, () => add([place.head]), cuts.includes(place.head)) : "",
      place.head ? button("cut-others", words.only, () => this.cut(place.heads.filter((name) => name !== place.head)), place.heads.length < 2) : "",
      button("cut-attention", words.cutAttention, () => add(place.heads)),
      button("cut-mlp", `${words.cutMlp}: ${place.mlp}`, () => add([place.mlp]), cuts.includes(place.mlp)),
      button("cut-layer", words.cutLayer, () => add(this.layerParts(place))),
      ...cuts.map((part) => h("button", { type: "button", class: "chip cut", "data-part": part, title: filled(words.restore, part), onclick: () => this.cut(cuts.filter((other) => other !== part)) }, `${part} ×`)),
      this.before.length ? button("undo", words.back, () => {
        this.cuts = this.before.pop();
        this.drawCuts();
        this.later(0);
      }) : "",
      cuts.length ? button("restore", words.clear, () => this.cut([])) : h("small", { class: "dim" }, words.uncut),
    );
  }

  /** What the cut does to the whole model's answer, token by token. */
  drawEffect() {
    const { words } = this;
    const cut = this.data.cut;
    if (!cut?.tokens.length) {
      this.effect.replaceChildren();
      return;
    }
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
    this.effect.replaceChildren(h("p", { class: "dim", id: "loss" }, filled(words.effect, { before: number(before, 3), after: number(after, 3), change })), h("div", { id: "effect" }, bars));
  }
}

const live = new Live(document.getElementById("live"), document.getElementById("page"));
window.live = live;
await live.begin();
