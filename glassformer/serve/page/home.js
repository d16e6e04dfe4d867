// The page at `/`: type, and see the translation being written; then alternatives, confidence, and what each word looked at. The
// lenses of live.js open below, on the same text.

import { AnswerView } from "./answer_view.js";
import { ask, events, heldKey, holdKey } from "./ask.js";
import { h, select } from "./elements.js";
import { HOME_EN } from "./home_words_en.js";
import { HOME_ZH } from "./home_words_zh.js";
import { remember, remembered, Store, THEMES } from "./store.js";
import { filled, LANGUAGES } from "./words.js";

const ALTERNATIVES = 3;
const PAUSE = 500; // ms after the last key

const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const preferred = (navigator.language || "en").startsWith("zh") ? "zh" : "en";
const address = new URLSearchParams(location.search);
const store = new Store({
  language: remembered("language", LANGUAGES) ?? preferred,
  theme: remembered("theme", THEMES) ?? system,
  text: address.get("text") ?? "",
  source: "auto",
  target: null,
  model: address.get("model"),
  found: null,
});
let settings = { models: {}, keyRequired: false };
let languages = [];
let models = [];
let under = null; // what is being asked

class Home {
  constructor(root) {
    this.root = root;
    this.live = null; // the lenses, once they are open
    store.subscribe((changed) => {
      if (!changed.has("language") && !changed.has("theme")) return;
      this.lenses?.page?.set({ language: store.state.language, theme: store.state.theme });
      this.draw();
    });
  }

  get words() {
    return { en: HOME_EN, zh: HOME_ZH }[store.state.language];
  }

  tools() {
    const { words } = this;
    const other = store.state.language === "en" ? "zh" : "en";
    return h("div", { class: "tools" },
      h("a", { href: "/docs" }, words.routes),
      h("button", { type: "button", id: "language", lang: other, onclick: () => { remember("language", other); store.set({ language: other }); } }, words.language),
      h("button", { type: "button", id: "theme", "aria-label": words.theme, title: words.theme, onclick: () => {
        const theme = store.state.theme === "dark" ? "light" : "dark";
        remember("theme", theme);
        store.set({ theme });
      } }, "◐"),
    );
  }

  keyField() {
    if (!settings.keyRequired) return null;
    const input = h("input", { type: "password", id: "key", autocomplete: "off", value: heldKey(), "aria-label": this.words.key, placeholder: this.words.key });
    input.addEventListener("change", async () => {
      holdKey(input.value);
      await this.load();
      await this.live?.load();
      this.draw();
      if (store.state.text) this.take(store.state.text);
    });
    return h("form", { onsubmit: (event) => event.preventDefault() }, input);
  }

  choices() {
    const { words } = this;
    const { source, target, model } = store.state;
    const set = (changes) => { store.set(changes); this.draw(); this.later(0); };
    if (this.writes()) return h("div", { class: "controls" }, this.modelChoice(set), this.keyField());
    const targets = [...new Set(languages.flatMap((one) => one.targets))];
    const sources = languages.filter((one) => one.targets.includes(target));
    const name = (code) => languages.find((one) => one.code === code)?.name ?? code;
    // One pair of languages without names is no choice.
    if (languages.every((one) => one.code === "und" && one.targets.every((code) => code === "und"))) return h("div", { class: "controls" }, models.length > 1 ? this.modelChoice(set) : null, this.keyField());
    return h("div", { class: "controls" },
      select(words.from, [["auto", words.auto], ...sources.map((one) => [one.code, one.name])], source, (value) => set({ source: value })),
      select(words.to, targets.map((code) => [code, name(code)]), target, (value) => { set({ target: value, model: null }); this.live?.choose(this.chosen()); }),
      models.length > 1 ? this.modelChoice(set) : null,
      this.keyField(),
    );
  }

  modelChoice(set) {
    return select(this.words.model, models.map((name) => [name, name]), store.state.model ?? models[0], (value) => { set({ model: value }); this.live?.choose(value); });
  }

  /** Is the chosen model one that writes on? */
  writes() {
    const chosen = store.state.model ?? models[0];
    return Boolean(chosen) && !(chosen in settings.models);
  }

  draw() {
    const { words } = this;
    document.documentElement.lang = store.state.language;
    document.documentElement.dataset.theme = store.state.theme;
    const writes = this.writes();
    this.input = h("textarea", { id: "text", rows: "5", placeholder: words.type, "aria-label": writes ? words.prompt : words.source, maxlength: String(settings.charLimit ?? 20000), spellcheck: "false" });
    this.input.value = store.state.text;
    this.input.addEventListener("input", () => { store.set({ text: this.input.value }); if (!writes) this.later(PAUSE); this.live?.typed(this.input.value); });
    this.input.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.later(0); });
    this.answer = new AnswerView(words);
    this.state = h("p", { id: "state", role: "status", class: "dim" });
    this.unknown = h("p", { id: "unknown", class: "dim", hidden: true });
    this.others = h("ol", { id: "alternatives" });
    this.otherBox = h("section", { hidden: true }, h("h3", {}, words.alternatives), this.others);
    this.correctButton = h("button", { type: "button", id: "correct", hidden: true, onclick: () => this.correct() }, words.correct);
    this.undoButton = h("button", { type: "button", id: "undo-correction", hidden: true, onclick: () => this.undo() }, words.undo);
    this.correction = h("textarea", { id: "correction", rows: "2", hidden: true, "aria-label": words.correction, spellcheck: "false" });
    this.correction.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.correct(); } });
    this.lookButton = h("button", { type: "button", id: "look", "aria-expanded": String(this.live !== null), "aria-controls": "both", onclick: () => this.look() }, words.look);
    this.root.replaceChildren(
      h("header", {}, h("div", { class: "bar" }, h("h1", {}, "glassformer", h("small", {}, writes ? words.goesOn : words.title)), this.tools())),
      h("main", { id: "main" },
        models.length || settings.keyRequired ? this.choices() : h("p", {}, words.none),
        h("div", { class: "desk" },
          h("section", {}, h("h3", {}, writes ? words.prompt : words.source), this.input, h("div", { class: "tools" }, h("button", { type: "button", id: "go", onclick: () => this.later(0) }, writes ? words.write : words.go)), this.answer.source),
          h("section", {}, h("h3", {}, writes ? words.goesOn : words.answer), this.answer.target, this.answer.readout, this.correction, this.unknown, this.state, h("div", { class: "tools" }, this.correctButton, this.undoButton, this.lookButton)),
        ),
        writes ? null : h("p", { class: "howto" }, words.confidence),
        this.otherBox,
      ),
    );
    if (store.state.found) this.show(store.state.found);
    this.live?.draw();
    document.documentElement.dataset.ready = "yes";
  }

  later(milliseconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), milliseconds);
  }

  async run() {
    under?.abort();
    const own = (under = new AbortController());
    const { text, source, target, model } = store.state;
    store.set({ found: null });
    this.otherBox.hidden = this.unknown.hidden = this.correction.hidden = this.correctButton.hidden = this.undoButton.hidden = true;
    this.answer.write("");
    this.state.classList.remove("failed");
    if (!text.trim()) {
      this.state.textContent = "";
      return;
    }
    this.state.textContent = this.words.writing;
    try {
      if (this.writes()) await this.goOn(text, own.signal);
      else await this.translate({ q: text, source, target, ...(model ? { model } : {}) }, own.signal);
      this.state.textContent = "";
    } catch (error) {
      if (own.signal.aborted) return;
      this.state.classList.add("failed");
      this.state.textContent = error.message;
    }
  }

  /** Greedily, as it is written, for the eye; and by the search, with all there is to know, for good. */
  async translate(asked, signal) {
    let written = "";
    const whole = ask("/translate", { ...asked, alternatives: ALTERNATIVES, scores: true, alignment: true }, signal);
    let settled = false;
    whole.then(() => (settled = true), () => (settled = true));
    for await (const event of events("/translate", { ...asked, stream: true }, signal)) {
      if (settled) break;
      if (event.error) throw new Error(event.error);
      if (event.delta !== undefined) this.answer.write((written += event.delta));
    }
    const found = await whole;
    store.set({ found });
    this.show(found);
  }

  async goOn(text, signal) {
    let written = "";
    const asked = { model: store.state.model ?? models[0], prompt: text, max_tokens: 120, temperature: 0.8, stream: true };
    for await (const event of events("/v1/completions", asked, signal)) {
      if (event.error) throw new Error(event.error.message);
      this.answer.write((written += event.choices[0]?.text ?? ""));
      this.tellUnknown(event.unknown);
    }
  }

  /** Words or characters that the model has never seen, and reads all alike. */
  tellUnknown(found) {
    if (!found?.length) return;
    this.unknown.textContent = filled(this.words.unknown, found.join(" "));
    this.unknown.hidden = false;
  }

  show(found) {
    this.answer.show(found);
    this.tellUnknown(found.unknown);
    const others = [...new Set(found.alternatives ?? [])].filter((text) => text !== found.translatedText);
    this.others.replaceChildren(...others.map((text) => h("li", {}, text)));
    this.otherBox.hidden = !others.length;
    this.live?.choose(this.chosen());
    this.correctButton.hidden = !settings.suggestions;
    if (found.detectedLanguage) {
      const code = found.detectedLanguage.language;
      this.state.textContent = `${this.words.auto}: ${languages.find((one) => one.code === code)?.name ?? code}`;
    }
  }

  /** First the answer to be changed; then it is sent, kept, and asked for again. */
  async correct() {
    const { text, source, target, model, found } = store.state;
    if (this.correction.hidden) {
      this.correction.value = found.translatedText;
      this.correction.hidden = false;
      this.correction.focus();
      return;
    }
    await this.change(async () => {
      const from = source === "auto" ? found.detectedLanguage.language : source;
      const kept = await ask("/suggest", { q: text, s: this.correction.value, source: from, target, ...(model ? { model } : {}) });
      await this.run();
      this.kept = kept;
      this.undoButton.hidden = false;
      this.state.textContent = this.words.kept;
    });
  }

  async undo() {
    await this.change(async () => {
      await ask("/undo", { id: this.kept.id, model: this.kept.model });
      await this.run();
    });
  }

  /** Something of which it is told if it fails. */
  async change(work) {
    this.correctButton.disabled = this.undoButton.disabled = true;
    this.state.classList.remove("failed");
    try {
      await work();
    } catch (error) {
      this.state.classList.add("failed");
      this.state.textContent = error.message;
    }
    this.correctButton.disabled = this.undoButton.disabled = false;
  }

  /** The model that answers what is on the screen. */
  chosen() {
    return store.state.model ?? this.translator() ?? models[0];
  }

  /** Another text than was typed: one that a lens names, or that of an earlier address. */
  take(text) {
    this.input.value = text;
    store.set({ text });
    if (!this.writes()) this.later(0);
  }

  /** Language and light are changed in the lenses, too. */
  follow({ language, theme }) {
    store.set({ language, theme });
  }

  /** Open the lenses below, on the text and the model of the translator; or close them. */
  async look() {
    if (this.live) {
      this.live.show(false);
      this.live = null;
      history.replaceState(null, "", "/");
    } else {
      const { Live } = await import("./live.js");
      this.lenses ??= new Live(this);
      this.live = Object.assign(this.lenses, { model: this.chosen() ?? null, text: store.state.text });
      await this.live.begin();
    }
    this.lookButton.setAttribute("aria-expanded", String(this.live !== null));
  }

  /** Who translates what is chosen. */
  translator() {
    const { source, target, found } = store.state;
    const from = source === "auto" ? found?.detectedLanguage?.language : source;
    return Object.keys(settings.models).find((name) => settings.models[name].target === target && settings.models[name].sources.includes(from));
  }

  async load() {
    settings = await ask("/frontend/settings");
    try {
      languages = await ask("/languages");
      models = (await ask("/v1/models")).data.map((one) => one.id);
    } catch (error) {
      if (![401, 403].includes(error.status)) throw error;
      languages = [];
      models = [];
    }
    if (models.length && !models.includes(store.state.model)) store.set({ model: null });
    if (!store.state.target) store.set({ target: settings.language?.target?.code ?? null });
  }
}

export async function begin() {
  const home = new Home(document.getElementById("home"));
  await home.load();
  home.draw();
  if (!address.has("text")) return;
  home.later(0);
  await home.look();
}
