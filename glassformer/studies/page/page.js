// The page: a header, a tab for each view, and the keys. `show(data, root)` draws all of it from one data object; it asks
// no server for anything.

import { isDark } from "./colours.js";
import { choice, h, isControl, visible } from "./elements.js";
import { LANGUAGES, wordsOf } from "./words.js";
import { drawAcross, ticking } from "./view_across.js";
import { drawAlignment } from "./view_alignment.js";
import { drawBeam } from "./view_beam.js";
import { drawHead } from "./view_head.js";
import { drawLens } from "./view_lens.js";
import { drawMaps } from "./view_maps.js";
import { drawNorms } from "./view_norms.js";
import { drawRollout } from "./view_rollout.js";
import { drawTokens } from "./view_tokens.js";

const VIEWS = [
  { name: "maps", draw: drawMaps, has: () => true },
  { name: "alignment", draw: drawAlignment, has: (data) => Boolean(data.alignment) },
  { name: "tokens", draw: drawTokens, has: () => true },
  { name: "lens", draw: drawLens, has: () => true },
  { name: "norms", draw: drawNorms, has: () => true },
  { name: "rollout", draw: drawRollout, has: () => true },
  { name: "head", draw: drawHead, has: () => true },
  { name: "beam", draw: drawBeam, has: (data) => Boolean(data.beam) },
  { name: "across", draw: drawAcross, has: (data) => Boolean(data.across?.length) },
];
const UNITS = ["pieces", "words", "characters"];
const FOCUSABLE = "button, select, input, [tabindex]";

function remembered(name, allowed) {
  try {
    const value = localStorage.getItem(`glassformer.${name}`);
    return allowed.includes(value) ? value : null;
  } catch {
    return null; // a browser may refuse storage to files
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(`glassformer.${name}`, value);
  } catch {
    // nothing is lost but the habit
  }
}

function beginning(data) {
  const hash = new URLSearchParams(location.hash.slice(1));
  const kinds = Object.keys(data.attentions);
  const state = { view: data.across?.length ? "across" : "maps", kind: kinds[kinds.length - 1], layer: 0, head: 0, unit: "pieces", colour: "map", acrossColour: "one", alignment: "mean", measure: "length", output: null };
  const preferred = (navigator.language || "en").startsWith("zh") ? "zh" : "en";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  state.language = remembered("language", LANGUAGES) ?? preferred;
  state.theme = remembered("theme", ["light", "dark"]) ?? system;
  const allowed = { view: VIEWS.filter((v) => v.has(data)).map((v) => v.name), kind: kinds, unit: UNITS, language: LANGUAGES, theme: ["light", "dark"] };
  for (const [name, values] of Object.entries(allowed)) if (values.includes(hash.get(name))) state[name] = hash.get(name);
  for (const name of ["layer", "head"]) if (/^\d+$/.test(hash.get(name) ?? "")) state[name] = Number(hash.get(name));
  const layers = data.attentions[state.kind].layers;
  state.layer = Math.min(state.layer, layers.length - 1);
  state.head = Math.max(0, Math.min(state.head, layers[state.layer].head_ids.length - 1));
  return state;
}

class Page {
  constructor(data, root) {
    this.data = data;
    this.root = root;
    this.state = beginning(data);
    this.drawing = 0;
    this.views = VIEWS.filter((view) => view.has(data));
    this.content = h("div", { class: "view", role: "tabpanel", id: "view" });
    document.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      if (!remembered("theme", ["light", "dark"])) this.set({ theme: event.matches ? "dark" : "light" });
    });
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return; // a phone's bars come and go
      width = window.innerWidth;
      this.draw();
    });
    // Paper is white, and it does not wait for a drawing.
    window.addEventListener("beforeprint", () => {
      document.documentElement.dataset.theme = "light";
      this.root.querySelectorAll("canvas").forEach((canvas) => canvas.repaint?.());
    });
    window.addEventListener("afterprint", () => this.set({}));
  }

  get words() {
    return wordsOf(this.state.language);
  }

  width() {
    return this.content.clientWidth || 800;
  }

  /** The held cell, where it exists in this map. */
  lockFor({ rows, columns }) {
    const cell = this.state.locked;
    return cell && cell[0] < rows.length && cell[1] < columns.length ? cell : null;
  }

  remember(changes) {
    Object.assign(this.state, changes);
  }

  set(changes) {
    const before = { ...this.state };
    this.remember(changes);
    const { state, data } = this;
    if (state.unit !== before.unit || state.view !== before.view) state.locked = null;
    const layers = data.attentions[state.kind].layers;
    state.layer = Math.max(0, Math.min(state.layer, layers.length - 1));
    state.head = Math.max(0, Math.min(state.head, layers[state.layer].head_ids.length - 1));
    if (state.view !== "across" && state.playing) this.play(false);
    if ("theme" in changes && changes.theme !== before.theme) keep("theme", state.theme);
    if ("language" in changes) keep("language", state.language);
    return this.draw(state.view === before.view);
  }

  play(on) {
    this.stop?.();
    this.stop = null;
    this.state.playing = on;
    if (on) {
      const last = this.data.across.length - 1;
      this.stop = ticking(() => this.set({ moment: ((this.state.moment ?? last) + 1) % (last + 1) }));
    }
    this.draw(true);
  }

  async draw(same = false) {
    const { state, words } = this;
    const turn = ++this.drawing;
    document.documentElement.dataset.theme = state.theme;
    document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
    const hash = new URLSearchParams({ view: state.view, kind: state.kind, layer: state.layer, head: state.head, unit: state.unit });
    try {
      history.replaceState(null, "", `#${hash}`);
    } catch {
      // a page without an address of its own
    }
    const focusable = () => [...this.root.querySelectorAll(FOCUSABLE)];
    const focused = focusable().indexOf(document.activeElement);
    const scrolled = [...this.content.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    this.frame();
    this.content.setAttribute("aria-busy", "true");
    const view = this.views.find((one) => one.name === state.view);
    const about = view.name === "tokens" && this.data.outputs.labels ? "tokensAboutLabels" : `${view.name}About`;
    const parts = await view.draw(this);
    if (turn !== this.drawing) return; // something newer is being drawn
    this.content.replaceChildren(h("p", { class: "about" }, words[about]), ...parts.filter(Boolean));
    this.content.dataset.view = view.name;
    if (same) {
      this.content.querySelectorAll(".scroll").forEach((box, i) => (box.scrollLeft = scrolled[i] ?? 0));
      if (focused >= 0) focusable()[focused]?.focus({ preventScroll: true });
    }
    this.content.setAttribute("aria-busy", "false");
  }

  frame() {
    const { state, words, data } = this;
    if (!this.header) {
      this.header = h("header");
      this.tabs = h("div", { class: "tabs", role: "tablist" });
      this.footer = h("footer");
      this.root.replaceChildren(this.header, this.tabs, h("main", {}, this.content), this.footer);
    }
    const line = (caption, text, kind) => (text === null ? null : h("p", { class: `text ${kind}` }, h("span", { class: "caption" }, caption), h("span", { class: "content" }, text)));
    const answered = data.forced ? words.forced : data.kind === "gpt" ? words.goesOn : words.answer;
    const unitNames = UNITS.map((unit) => [unit, words[unit]]);
    this.header.replaceChildren(
      h(
        "div",
        { class: "bar" },
        h("h1", {}, data.title, h("small", {}, data.about[state.language])),
        h(
          "div",
          { class: "tools" },
          choice(words.units, unitNames, state.unit, (unit) => this.set({ unit })),
          h("button", { type: "button", id: "language", onclick: () => this.set({ language: state.language === "en" ? "zh" : "en" }) }, words.language),
          h("button", { type: "button", id: "theme", title: words.theme, "aria-label": words.theme, onclick: () => this.set({ theme: isDark() ? "light" : "dark" }) }, isDark() ? "☀" : "☾"),
          h("button", { type: "button", id: "help", title: `${words.help} (?)`, "aria-label": words.help, onclick: () => this.help() }, "?"),
        ),
      ),
      h("div", { class: "texts" }, line(words.text, data.text, "source"), line(data.answer === null ? words.says : answered, data.answer ?? data.says, "answer")),
    );
    this.tabs.replaceChildren(
      ...this.views.map((view, i) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            "aria-selected": String(view.name === state.view),
            "aria-controls": "view",
            tabindex: view.name === state.view ? "0" : "-1",
            "data-view": view.name,
            title: `${words[view.name]} (${i + 1})`,
            onclick: () => this.set({ view: view.name }),
          },
          words[view.name],
        ),
      ),
    );
    const selected = this.tabs.querySelector('[aria-selected="true"]');
    if (selected) this.tabs.scrollLeft = selected.offsetLeft - this.tabs.clientWidth / 2 + selected.offsetWidth / 2;
    this.footer.replaceChildren(
      ...data.notes.map((note) => h("p", {}, note[state.language])),
      h("p", {}, `${words.precision}: ${data.precision[state.language]}`),
      h("p", {}, words.unitsAbout),
      h("p", {}, `glassformer ${data.version}`),
    );
  }

  help() {
    const { words } = this;
    const row = (keys, text) => h("tr", {}, h("td", {}, keys.map((key) => h("kbd", {}, key))), h("td", {}, text));
    const dialog = h(
      "dialog",
      { class: "help", "aria-label": words.help },
      h("h2", {}, words.keys),
      h(
        "table",
        {},
        row(["1", "–", String(this.views.length)], words.keyViews),
        row(["⇧←", "⇧→", "⇧↑", "⇧↓"], words.keyHeads),
        row(["←", "→", "↑", "↓"], words.keyTokens),
        row(["⏎", "Esc"], words.keyLock),
        row(["+", "−"], words.keyZoom),
        row(["k"], words.keyKind),
        row(["u"], words.keyUnits),
        row(["d"], words.keyTheme),
        row(["l"], words.keyLanguage),
        this.data.across?.length ? row(["p"], words.keyPlay) : null,
        row(["?"], words.keyHelp),
      ),
      h("h2", {}, words.mouse),
      h("p", {}, words.mouseAbout),
      h("p", {}, words.unitsAbout),
      h("button", { type: "button", class: "close", onclick: () => dialog.close() }, words.close),
    );
    dialog.addEventListener("close", () => dialog.remove());
    this.root.append(dialog);
    dialog.showModal();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.key !== "?") return;
    const { state, data } = this;
    const layers = data.attentions[state.kind].layers;
    const onTab = event.target.getAttribute?.("role") === "tab";
    const arrows = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const kinds = Object.keys(data.attentions);
    const next = (list, value) => list[(list.indexOf(value) + 1) % list.length];
    const digit = Number(event.key);
    const thumb = event.target.closest?.(".thumb");
    if (onTab && arrows[event.key] && !event.shiftKey) {
      const names = this.views.map((view) => view.name);
      const at = (names.indexOf(state.view) + (arrows[event.key][1] || arrows[event.key][0]) + names.length) % names.length;
      this.set({ view: names[at] });
      this.tabs.querySelector('[aria-selected="true"]').focus();
    } else if (arrows[event.key] && (event.shiftKey || thumb)) {
      const [down, right] = arrows[event.key];
      const layer = (state.layer + down + layers.length) % layers.length;
      const heads = Math.max(1, layers[layer].head_ids.length);
      const head = (Math.min(state.head, heads - 1) + right + heads) % heads;
      this.set({ layer, head, query: state.query, key: null }).then(() => {
        if (thumb) this.root.querySelector('.thumb[aria-pressed="true"]')?.focus({ preventScroll: true });
      });
    } else if (digit >= 1 && digit <= this.views.length) this.set({ view: this.views[digit - 1].name });
    else if (event.key === "k") this.set({ kind: next(kinds, state.kind), locked: null, query: null, key: null });
    else if (event.key === "u") this.set({ unit: next(UNITS, state.unit) });
    else if (event.key === "d") this.set({ theme: isDark() ? "light" : "dark" });
    else if (event.key === "l") this.set({ language: next(LANGUAGES, state.language) });
    else if (event.key === "p" && state.view === "across") this.play(!state.playing);
    else if (event.key === "?") this.help();
    else if (event.key === "Escape" && state.locked) this.set({ locked: null });
    else return;
    event.preventDefault();
  }
}

/** Draws the page into `root`; the promise is kept when the first view stands. */
export async function show(data, root) {
  const page = new Page(data, root);
  document.title = `${data.title}: ${isControl(data.text) ? data.text : visible(data.text).slice(0, 60)}`;
  await page.draw();
  return page;
}
