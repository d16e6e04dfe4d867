// The part of the live page that follows runs while they are trained, by whatever process: curves, samples, a slider over the weights
// that were kept, which drives all views, and runs begun from here.

import { ask } from "./ask.js";
import { LINES } from "./colours.js";
import { h, number, select, token } from "./elements.js";
import { chart, smoothed, tick } from "./live_chart.js";
import { LEARNING_EN } from "./live_learning_words_en.js";
import { LEARNING_ZH } from "./live_learning_words_zh.js";
import { filled } from "./words.js";

const [SOON, LATER] = [1000, 4000]; // ms between two looks, while something is trained and otherwise
const COLUMNS = 8; // validations in the table of samples
const SCORES = ["exact_match", "bleu", "accuracy", "f1"]; // the first that a run has is drawn

export class Learning {
  constructor(live, root) {
    Object.assign(this, { live, root, runs: new Map(), recipes: [], failed: {}, begun: [], hidden: new Set(), keep: 0.6, across: false, open: null });
    document.addEventListener("visibilitychange", () => document.hidden || this.poll());
  }

  get words() {
    return { en: LEARNING_EN, zh: LEARNING_ZH }[this.live.language];
  }

  get run() {
    return this.runs.get(this.live.model);
  }

  /** Whether an answer should come with what each of the kept weights makes of it. */
  get wantsAcross() {
    return this.run?.kept.length > 1 && (this.run.light || this.across);
  }

  async begin() {
    if (this.live.refused) return;
    await this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    if (document.hidden) return; // until it is looked at again
    try {
      const seen = Object.fromEntries([...this.runs].map(([name, run]) => [name, run.seen]));
      await this.take(await ask("/open/runs", { seen }));
    } catch {
      // the server is busy or has ended; it is asked again
    }
    const busy = this.begun.length || [...this.runs.values()].some((run) => !run.ended);
    if (this.recipes.length) this.timer = setTimeout(() => this.poll(), busy ? SOON : LATER);
  }

  async take(told) {
    Object.assign(this, { recipes: told.recipes, failed: told.failed, begun: told.begun });
    const before = this.run?.kept.join();
    const known = new Map(this.runs);
    let news = told.runs.length !== known.size;
    this.runs.clear();
    for (const run of told.runs) {
      const old = known.get(run.name)?.seen.id === run.seen.id ? known.get(run.name) : { metrics: [], samples: [] };
      news ||= run.metrics.length || run.samples.length || run.ended !== old.ended || run.served !== old.served || run.kept.join() !== old.kept?.join();
      // A run that was gone on with writes the steps after its checkpoint again.
      const joined = (earlier, later) => [...(later[0]?.step < earlier.at(-1)?.step ? earlier.filter((line) => line.step < later[0].step) : earlier), ...later];
      this.runs.set(run.name, { ...run, metrics: joined(old.metrics, run.metrics), samples: joined(old.samples, run.samples) });
    }
    const served = told.runs.filter((run) => run.served).map((run) => run.name);
    if (served.some((name) => !this.live.models.includes(name))) {
      const had = this.live.model;
      await this.live.load();
      this.live.draw();
      if (had === null) this.live.later(0);
    } else if (news || JSON.stringify([told.failed, told.begun]) !== this.drawn) this.draw();
    this.drawn = JSON.stringify([told.failed, told.begun]);
    // The weights that answer are newer now, or there are more of them to compare.
    if (before !== undefined && before !== this.run?.kept.join() && this.live.step === null) this.live.later(0);
  }

  draw() {
    const { words, runs } = this;
    if (!runs.size) return;
    const active = this.root.contains(document.activeElement) ? document.activeElement.id : null;
    this.weights ??= h("div", { id: "weights" });
    this.open = this.root.querySelector("#curves")?.open ?? this.open; // opened just now, and not yet told
    this.open ??= [...runs.values()].some((run) => !run.ended);
    this.form ??= this.makeForm();
    this.form.update();
    const scrolled = this.root.querySelector(".table")?.scrollTop ?? 0;
    const box = h("details", { id: "curves", open: this.open, ontoggle: () => {
      if (this.open !== box.open) {
        this.open = box.open;
        this.draw();
      }
    } }, h("summary", {}, h("b", {}, words.title), " ", h("span", { class: "dim" }, this.summary())));
    if (this.open) box.append(this.legend(), this.charts(), ...this.samples(), this.form.element);
    this.root.replaceChildren(this.weights, box);
    if (scrolled) this.root.querySelector(".table").scrollTop = scrolled;
    if (active) document.getElementById(active)?.focus({ preventScroll: true });
    this.drawWeights();
  }

  colour(name) {
    return LINES[[...this.runs.keys()].indexOf(name) % LINES.length];
  }

  /** Where a run stands, in a line. */
  stand(run) {
    const last = run.metrics.at(-1);
    const loss = run.metrics.findLast((line) => "loss" in line)?.loss;
    const parts = [filled(this.words.line, { step: last?.step ?? 0, steps: run.steps }), ...(Number.isFinite(loss) ? [`${this.words.loss} ${number(loss, 3)}`] : []), ...(run.ended ? [this.words.ended] : [])];
    return parts.join(" · ");
  }

  summary() {
    const run = this.run ?? [...this.runs.values()][0];
    return `${run.name}: ${this.stand(run)}${this.runs.size > 1 ? ` (+${this.runs.size - 1})` : ""}`;
  }

  legend() {
    const { words } = this;
    const chips = [...this.runs.values()].map((run) => h("button", { type: "button", class: "chip run", "data-run": run.name, "aria-pressed": String(!this.hidden.has(run.name)), title: filled(words.hide, run.name), onclick: () => {
      if (!this.hidden.delete(run.name)) this.hidden.add(run.name);
      this.draw();
    } }, h("i", { style: { background: this.colour(run.name) } }), `${run.name} · ${this.stand(run)}`));
    const stops = this.begun.map((name) => h("button", { type: "button", class: "chip stop", onclick: () => ask(`/open/train/${encodeURIComponent(name)}/stop`, {}) }, `■ ${filled(words.stop, name)}`));
    const failed = Object.entries(this.failed).map(([name, why]) => h("span", { class: "failed" }, `${name}: ${filled(words.failed, why)}`));
    const smoothing = h("input", { type: "range", id: "smoothing", min: 0, max: 0.99, step: 0.01, value: this.keep, "aria-label": words.smoothing, oninput: (event) => {
      this.keep = Number(event.target.value);
      this.root.querySelector(".charts").replaceWith(this.charts());
    } });
    return h("div", { class: "line" }, chips, stops, failed, h("label", { class: "line" }, h("span", { class: "caption" }, words.smoothing), smoothing));
  }

  charts() {
    const { words, keep } = this;
    const shown = [...this.runs.values()].filter((run) => !this.hidden.has(run.name));
    const points = (run, name) => run.metrics.filter((line) => Number.isFinite(line[name])).map((line) => [line.step, line[name]]);
    const lines = (of, kind = "line") => shown.map((run) => ({ name: run.name, colour: this.colour(run.name), kind, points: of(run) }));
    const speed = (run) => {
      const logged = run.metrics.filter((line) => "tokens" in line);
      return logged.slice(1).flatMap((line, i) => (line.clock > logged[i].clock ? [[line.step, (line.tokens - logged[i].tokens) / (line.clock - logged[i].clock)]] : []));
    };
    const score = SCORES.find((name) => shown.some((run) => run.metrics.some((line) => `val_${name}` in line)));
    const raw = lines((run) => points(run, "loss"), "raw");
    const loss = [...raw, ...raw.map((one) => ({ ...one, kind: "line", points: smoothed(one.points, keep) })), ...lines((run) => points(run, "val_loss"), "dots")];
    const common = { now: this.live.step, stepWord: words.step };
    const drawn = [
      chart({ ...common, title: words.loss, about: words.lossAbout, series: loss }),
      score ? chart({ ...common, title: filled(words.score, score.replace("_", " ")), series: [...lines((run) => points(run, `val_${score}`)), ...lines((run) => points(run, `val_${score}`), "dots")] }) : null,
      chart({ ...common, title: words.rate, series: lines((run) => points(run, "lr")) }),
      chart({ ...common, title: words.speed, series: lines((run) => smoothed(speed(run), Math.min(keep, 0.8))) }),
    ].filter(Boolean);
    return h("div", { class: "charts" }, drawn.length ? drawn : h("p", { class: "dim" }, words.nothing));
  }

  /** What was written at each validation: a row for each text, the newest step first. */
  samples() {
    const { words, live } = this;
    const named = [...this.runs.values()].filter((run) => run.samples.length);
    if (!named.length) return [];
    const run = named.find((one) => one.name === (this.sampled ?? live.model)) ?? named[0];
    const steps = [...new Set(run.samples.map((line) => line.step))].sort((a, b) => b - a).slice(0, COLUMNS);
    const rows = new Map();
    for (const line of run.samples) rows.set(line.source, { ...(rows.get(line.source) ?? { wanted: line.wanted }), [line.step]: line.written });
    const cell = (text, wanted) => h("td", { class: text !== undefined && wanted && text.trim() === wanted.trim() ? "right" : null, title: text }, text ?? "");
    const read = (source) => h("button", { type: "button", class: "chip", title: words.load, onclick: () => {
      live.input.value = source;
      live.input.dispatchEvent(new Event("input"));
    } }, source);
    return [
      h("div", { class: "line" }, h("b", {}, words.samples), named.length > 1 ? select(words.run, named.map((one) => [one.name, one.name]), run.name, (name) => {
        this.sampled = name;
        this.draw();
      }) : null),
      h("div", { class: "table", tabindex: "0" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, words.source), h("th", {}, words.wanted), steps.map((step) => h("th", {}, filled(words.stepN, step))))),
        h("tbody", {}, [...rows].map(([source, row]) => h("tr", {}, h("td", {}, read(source)), h("td", {}, row.wanted ?? ""), steps.map((step) => cell(row[step], row.wanted))))),
      )),
    ];
  }

  /** The slider over the weights that were kept, and the step at which each token of the answer first came first. */
  drawWeights() {
    const { words, live, run } = this;
    if (!this.weights) return;
    if (!run || run.kept.length < 2 || !run.served) {
      this.weights.replaceChildren();
      return;
    }
    const at = live.step === null ? run.kept.length : Math.max(0, run.kept.findLastIndex((step) => step <= live.step));
    const told = live.step === null ? words.latest : filled(words.ofStep, live.step);
    if (!this.slider?.isConnected || this.slider.dataset.kept !== run.kept.join()) {
      this.slider = h("input", { type: "range", id: "step", min: 0, max: run.kept.length, "data-kept": run.kept.join(), oninput: () => this.to(this.run.kept[Number(this.slider.value)] ?? null) });
      this.told = h("b", { id: "of-step" });
      this.marks = h("div", { class: "line", id: "learned" });
      this.label = h("span", { class: "caption" });
      this.weights.replaceChildren(h("label", { class: "line" }, this.label, this.slider, this.told), this.marks);
    }
    this.label.textContent = words.weights;
    this.slider.value = at;
    this.slider.setAttribute("aria-label", words.weights);
    this.slider.setAttribute("aria-valuetext", told);
    this.told.textContent = told;
    const { data } = live;
    const more = this.wantsAcross ? "" : h("button", { type: "button", class: "chip", id: "find", onclick: () => {
      this.across = true;
      live.later(0);
    } }, words.find);
    const there = Boolean(data?.across?.length);
    this.marks.classList.toggle("stale", !there); // those of the answer before, until the new ones are there
    if (!there) {
      if (more) this.marks.replaceChildren(more);
      return;
    }
    const chips = data.outputs.tokens.flatMap((id, place) => {
      if (!["written", "forced"].includes(data.outputs.status[place])) return [];
      const first = data.across.find((moment) => moment.rank[place] === 1);
      const ranks = data.across.map((moment) => filled(words.rankAt, { rank: moment.rank[place], step: moment.name })).join(", ");
      return h("button", { type: "button", class: "chip mark", "data-first": first?.step ?? "", disabled: !first, title: filled(words.firstAbout, { token: data.names[id], ranks }), onclick: () => this.to(run.kept.includes(first.step) ? first.step : null) }, token(data.names[id]), h("small", { class: "dim" }, first ? tick(first.step) : words.notYet));
    });
    this.marks.replaceChildren(h("span", { class: "caption" }, words.first), ...chips);
  }

  /** The weights of another step; null: the latest. */
  to(step) {
    this.live.step = step;
    this.drawWeights();
    this.root.querySelector(".charts")?.replaceWith(this.charts());
    this.live.later(60);
  }

  makeForm() {
    const recipe = h("select", { id: "recipe" }, this.recipes.map((name) => h("option", { value: name }, name)));
    const changes = h("input", { type: "text", id: "changes", spellcheck: "false", autocomplete: "off" });
    const name = h("input", { type: "text", id: "name", maxlength: "100", spellcheck: "false", autocomplete: "off" });
    const start = h("button", { type: "button", id: "start" });
    const state = h("span", { id: "begun", role: "status" });
    const [title, about] = [h("summary", {}), h("p", { class: "dim" })];
    start.addEventListener("click", async () => {
      state.textContent = "";
      try {
        await ask("/open/train", { recipe: recipe.value, changes: changes.value.split(/\s+/).filter(Boolean), name: name.value.trim() });
        await this.poll();
      } catch (error) {
        state.className = "failed";
        state.textContent = error.message;
      }
    });
    const update = () => {
      const { words } = this;
      [title.textContent, about.textContent, start.textContent] = [words.begin, words.beginAbout, words.start];
      for (const [field, word] of [[changes, words.changes], [name, words.name]]) field.placeholder = word;
      for (const [field, word] of [[recipe, words.recipe], [changes, words.changes], [name, words.name]]) field.setAttribute("aria-label", word);
    };
    return { update, element: h("details", { id: "begin" }, title, about, h("div", { class: "line" }, recipe, changes, name, start, state)) };
  }
}
