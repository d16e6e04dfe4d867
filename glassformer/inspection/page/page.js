// The page: a header, a tab for each view, one panel for each report (one, or two side by side), and the keys.
//
//   const page = await show(data, element)    draws a report; it asks no server for anything. Of a server's own page, a third
//                                             argument brings more views, and their words by language: { views, words };
//                                             with `forces` a click on a node of the beam, or on an activation that
//                                             patching has measured, is told as an action; with
//                                             `tools: false` the page around it has the buttons of language and light
//   page.update(data)                         another report in the same page, the state kept where it still fits
//   page.dispatch({ type: "hold", held })     does what a reader could do; every action, a reader's own too, is told to
//   page.listen((action) => …)                whoever listens, so that a server can answer
//   page.destroy()                            takes all of it away again

import { isDark } from "./colours.js";
import { unitsOf } from "./data.js";
import { choice, h, isControl, visible } from "./elements.js";
import { helpDialog } from "./help.js";
import { Panel } from "./panel.js";
import { addressOf, beginning, bounded, remember, remembered, Store, THEMES, UNITS } from "./store.js";
import { LANGUAGES, wordsOf } from "./words.js";
import { AcrossView } from "./view_across.js";
import { AttributionView } from "./view_attribution.js";
import { BeamView } from "./view_beam.js";
import { HeadView } from "./view_head.js";
import { LensView } from "./view_lens.js";
import { LinesView } from "./view_lines.js";
import { MachineView } from "./view_machine.js";
import { MapsView } from "./view_maps.js";
import { NormsView } from "./view_norms.js";
import { PatchingView } from "./view_patching.js";
import { RolloutView } from "./view_rollout.js";
import { TokensView } from "./view_tokens.js";

const VIEWS = [MachineView, MapsView, LinesView, HeadView, TokensView, LensView, AttributionView, BeamView, AcrossView, PatchingView, NormsView, RolloutView];

const GROUPS = ["groupMachine", "groupAnswer", "groupAcross", "groupMore"];
const GROUP_OF = { machine: 0, maps: 0, lines: 0, head: 0, choose: 1, tokens: 1, beam: 1, lens: 1, attribution: 1, across: 2 };

/** Which of the four groups of tabs a view stands in; one of a server's own page may say it itself. */
function groupOf(view) {
  return view.group ?? GROUPS[GROUP_OF[view.title] ?? 3];
}

class Page {
  constructor(data, root, more = {}) {
    this.root = root;
    this.more = more;
    this.listeners = new Set();
    this.take(data);
    this.store = new Store(beginning(this.panels[0].data, this.views.map((view) => view.title)));
    this.content = h("div", { class: "view", role: "tabpanel", id: "view" });
    this.header = h("header");
    this.tabs = h("div", { class: "tabs", role: "tablist" });
    this.footer = h("footer");
    root.replaceChildren(this.header, this.tabs, h("main", {}, this.content), this.footer);
    this.stop = new AbortController();
    const { signal } = this.stop;
    document.addEventListener("keydown", (event) => this.key(event), { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      if (!remembered("theme", THEMES)) this.store.set({ theme: event.matches ? "dark" : "light" });
    }, { signal });
    // Back and forward, and an address typed by hand.
    for (const name of ["popstate", "hashchange"]) window.addEventListener(name, () => this.goToAddress(), { signal });
    // Paper is white, and it does not wait for a drawing.
    window.addEventListener("beforeprint", () => {
      document.documentElement.dataset.theme = "light";
      this.root.querySelectorAll("canvas").forEach((canvas) => canvas.repaint?.());
    }, { signal });
    window.addEventListener("afterprint", () => this.draw(), { signal });
    this.observer = new ResizeObserver(() => this.mounted?.forEach((view) => view.resize()));
    this.observer.observe(this.content);
    this.store.subscribe((changed) => this.changed(changed));
  }

  take(data) {
    this.panels = [data, ...(data.beside ? [data.beside] : [])].map((one, index) => new Panel(this, one, index));
    // Of a foreign model nothing may be known of how its tokens join.
    this.hasUnits = this.panels.some((panel) => Object.values(panel.data.sides).some((side) => unitsOf(side, "words").starts.length < side.pieces.length));
    const shown = (this.views ?? []).map((view) => view.title); // what is on its way keeps its place
    this.views = [...(this.more.views ?? []), ...VIEWS].sort((a, b) => GROUPS.indexOf(groupOf(a)) - GROUPS.indexOf(groupOf(b))).filter((view) => this.panels.some((panel) => view.has(panel.data) || (panel.data.pending && shown.includes(view.title))));
  }

  get state() {
    return this.store.state;
  }

  get data() {
    return this.panels[0].data;
  }

  get words() {
    return wordsOf(this.state.language, this.more.words?.[this.state.language]);
  }

  /** Another report, drawn in the same page. */
  update(data) {
    this.unmount();
    this.take(data);
    bounded(this.state, this.data);
    if (!this.views.some((view) => view.title === this.state.view)) this.state.view = this.views[0].title;
    return this.draw();
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** set {changes}, hold {held}, release, play {on}; anything else is only told to those who listen. */
  dispatch(action) {
    if (action.type === "set") this.store.set(action.changes);
    else if (action.type === "hold") this.store.set({ held: action.held });
    else if (action.type === "release") this.store.set({ held: null, candidate: null });
    else if (action.type === "play") this.play(action.on);
    for (const listener of this.listeners) listener(action);
    return this.drawing;
  }

  set(changes) {
    return this.dispatch({ type: "set", changes });
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = null;
    if (on) {
      const count = Math.max(...this.panels.map((panel) => panel.data.across?.length ?? 0));
      this.timer = setInterval(() => this.store.set({ moment: ((this.state.moment ?? count - 1) + 1) % count }), 700);
    }
    this.store.set({ playing: on });
  }

  changed(changed) {
    const { state } = this;
    bounded(state, this.data);
    if (changed.has("theme")) remember("theme", state.theme);
    if (changed.has("language")) remember("language", state.language);
    if (changed.has("view") && state.playing) this.play(false);
    this.drawing = this.show(changed);
  }

  async show(changed) {
    const { state } = this;
    try {
      const address = addressOf(state);
      // Another view is a place to come back to; whatever else changes is the same place.
      if (location.hash !== address) history[changed.has("view") && !this.returning ? "pushState" : "replaceState"](null, "", address);
    } catch {
      // a page without an address of its own
    }
    if (["theme", "language", "view"].some((name) => changed.has(name))) return this.draw();
    if (changed.has("unit")) this.frame();
    const before = this.remembering();
    this.content.setAttribute("aria-busy", "true");
    const turn = (this.turn = (this.turn ?? 0) + 1);
    for (const view of this.mounted) await this.guarded(view, () => view.update(changed));
    if (turn !== this.turn) return;
    before();
    this.content.setAttribute("aria-busy", "false");
  }

  /** Shows what the address says. */
  goToAddress() {
    const { view, kind, layer, head, unit, scale, held } = beginning(this.data, this.views.map((one) => one.title));
    this.returning = true;
    this.store.set({ view, kind, layer, head, unit, scale, held });
    this.returning = false;
  }

  unmount() {
    this.mounted?.forEach((view) => view.destroy());
    this.mounted = [];
  }

  /** Everything anew: the frame, and the view in each panel. */
  async draw() {
    const { state, words } = this;
    document.documentElement.dataset.theme = state.theme;
    document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const before = this.remembering();
    this.frame();
    this.unmount();
    this.content.setAttribute("aria-busy", "true");
    const kind = this.views.find((view) => view.title === state.view) ?? this.views[0];
    const about = kind.about?.(this.data) ?? `${kind.title}About`;
    const columns = h("div", { class: this.panels.length > 1 ? "panels two" : "panels" });
    this.content.replaceChildren(h("p", { class: "about" }, words[about]), columns);
    this.content.dataset.view = kind.title;
    for (const panel of this.panels) {
      panel.element.replaceChildren();
      const inner = h("div");
      panel.element.append(...(this.panels.length > 1 ? panel.heading() : []), inner);
      columns.append(panel.element);
      if (!kind.has(panel.data)) {
        inner.append(h("p", { class: "note" }, panel.data.pending ? words.reading : words.notHere));
        continue;
      }
      const view = new kind(panel);
      this.mounted.push(view);
      await this.guarded(view, () => view.mount(inner), inner);
      if (turn !== this.turn) return; // something newer is being drawn
    }
    before();
    this.content.setAttribute("aria-busy", "false");
  }

  /** A view that fails says so in its own place; the rest of the page goes on. */
  async guarded(view, work, root = view.root) {
    try {
      await work();
    } catch (error) {
      this.failed = error;
      const again = h("button", { type: "button", onclick: () => this.draw() }, this.words.tryAgain);
      root?.replaceChildren(h("div", { class: "failure", role: "alert" }, h("p", {}, this.words.failed), h("p", { class: "note" }, String(error?.message ?? error)), again));
    }
  }

  /** Focus and scrolling as they are; the function that is returned brings them back. */
  remembering() {
    const active = document.activeElement;
    const inside = this.root.contains(active);
    const all = () => [...this.root.querySelectorAll("button, select, input, [tabindex]")];
    const at = inside ? all().indexOf(active) : -1;
    const scrolled = [...this.content.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    const view = this.state.view;
    return () => {
      if (view === this.content.dataset.view) this.content.querySelectorAll(".scroll").forEach((box, i) => (box.scrollLeft = scrolled[i] ?? 0));
      if (at >= 0 && !this.root.contains(document.activeElement)) all()[at]?.focus({ preventScroll: true });
    };
  }

  frame() {
    const { state, words, data } = this;
    const line = (caption, text, kind) => {
      if (text === null || text === undefined) return null;
      const content = h("span", { class: "content", title: words.whole, onclick: () => content.classList.toggle("open") }, text);
      return h("p", { class: `text ${kind}` }, h("span", { class: "caption" }, caption), content);
    };
    const answered = data.forced ? words.forcedAnswer : data.kind === "gpt" ? words.goesOn : words.answer;
    const tool = (id, name, text, act) => h("button", { type: "button", id, title: name, "aria-label": name, onclick: act }, text);
    this.header.replaceChildren(
      h(
        "div",
        { class: "bar" },
        h("h1", {}, [...new Set(this.panels.map((panel) => panel.data.title))].join(" | "), h("small", {}, [...new Set(this.panels.map((panel) => panel.data.about[state.language]))].join(" | "))),
        h(
          "div",
          { class: "tools" },
          this.hasUnits ? choice(words.units, UNITS.map((unit) => [unit, words[unit]]), state.unit, (unit) => this.set({ unit })) : null,
          this.more.tools === false ? null : h("button", { type: "button", id: "language", onclick: () => this.set({ language: state.language === "en" ? "zh" : "en" }) }, words.language),
          this.more.tools === false ? null : tool("theme", words.theme, isDark() ? "☀" : "☾", () => this.set({ theme: isDark() ? "light" : "dark" })),
          tool("help", `${words.help} (?)`, "?", () => this.help()),
        ),
      ),
      this.panels.length > 1 ? "" : h("div", { class: "texts" }, line(words.text, data.text, "source"), line(data.answer === null ? words.says : answered, data.answer ?? data.says, "answer")),
    );
    this.drawTabs();
    const notes = this.panels.flatMap((panel) => panel.data.notes.map((note) => h("p", {}, note[state.language])));
    const precision = data.precision ? h("p", {}, `${words.precision}: ${data.precision[state.language]}`) : "";
    this.footer.replaceChildren(...notes, precision, h("p", {}, words.counting), this.hasUnits ? h("p", {}, words.unitsAbout) : "", h("p", {}, `glassformer ${data.version}`));
  }

  /** The tabs, where they are others than before: to scroll to the one that is selected costs a layout of the page. */
  drawTabs() {
    const { state, words } = this;
    const drawn = [state.view, state.language, ...this.views.map((view) => view.title)].join();
    if (drawn === this.drawnTabs) return;
    this.drawnTabs = drawn;
    const begins = (i) => i === 0 || groupOf(this.views[i]) !== groupOf(this.views[i - 1]);
    this.tabs.replaceChildren(...this.views.flatMap((view, i) => [begins(i) ? h("span", { class: "group", role: "presentation" }, words[groupOf(view)]) : null, this.tab(view.title, i)]).filter(Boolean));
    const selected = this.tabs.querySelector('[aria-selected="true"]');
    if (selected) this.tabs.scrollLeft = selected.offsetLeft - this.tabs.clientWidth / 2 + selected.offsetWidth / 2;
  }

  tab(name, i) {
    const { state, words } = this;
    const on = name === state.view;
    const title = `${words[name]}${i < 10 ? ` (${(i + 1) % 10})` : ""}`;
    return h("button", { type: "button", role: "tab", "aria-selected": String(on), "aria-controls": "view", tabindex: on ? "0" : "-1", "data-view": name, title, onclick: () => this.set({ view: name }) }, words[name]);
  }

  help() {
    const dialog = helpDialog(this.words, this.views.length, Boolean(this.data.across?.length));
    this.root.append(dialog);
    dialog.showModal();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && (this.state.held || this.state.candidate)) {
      this.dispatch({ type: "release" });
      event.preventDefault();
      return;
    }
    if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.key !== "?") return;
    const { state, data } = this;
    const layers = data.attentions[state.kind].layers;
    const arrows = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const next = (list, value) => list[(list.indexOf(value) + 1) % list.length];
    const digit = /^\d$/.test(event.key) ? Number(event.key) || 10 : NaN;
    const turn = { "[": -1, "]": 1 }[event.key];
    const thumb = event.target.closest?.(".thumb");
    if (event.target.getAttribute?.("role") === "tab" && arrows[event.key] && !event.shiftKey) {
      const names = this.views.map((view) => view.title);
      this.set({ view: names[(names.indexOf(state.view) + (arrows[event.key][1] || arrows[event.key][0]) + names.length) % names.length] });
      this.tabs.querySelector('[aria-selected="true"]').focus();
    } else if (arrows[event.key] && (event.shiftKey || thumb)) {
      const [down, right] = arrows[event.key];
      const layer = (state.layer + down + layers.length) % layers.length;
      const heads = Math.max(1, layers[layer].head_ids.length);
      Promise.resolve(this.set({ layer, head: (Math.min(state.head, heads - 1) + right + heads) % heads })).then(() => {
        if (thumb) this.root.querySelector('.thumb[aria-pressed="true"]')?.focus({ preventScroll: true });
      });
    } else if (digit >= 1 && digit <= this.views.length) this.set({ view: this.views[digit - 1].title });
    else if (turn) this.set({ view: this.views.at((this.views.findIndex((view) => view.title === state.view) + turn) % this.views.length).title });
    else if (event.key === "k") this.set({ kind: next(Object.keys(data.attentions), state.kind) });
    else if (event.key === "u") this.set({ unit: next(UNITS, state.unit) });
    else if (event.key === "d") this.set({ theme: isDark() ? "light" : "dark" });
    else if (event.key === "l") this.set({ language: next(LANGUAGES, state.language) });
    else if (event.key === "p" && state.view === "across") this.dispatch({ type: "play", on: !state.playing });
    else if (event.key === "?") this.help();
    else return;
    event.preventDefault();
  }

  destroy() {
    clearInterval(this.timer);
    this.stop.abort();
    this.observer.disconnect();
    this.unmount();
    this.root.replaceChildren();
  }
}

/** Draws the page into `root`; the promise is kept when the first view stands. */
export async function show(data, root, more = {}) {
  const page = new Page(data, root, more);
  document.title = `${data.title}: ${isControl(data.text) ? data.text : visible(data.text).slice(0, 60)}`;
  await page.draw();
  return page;
}
