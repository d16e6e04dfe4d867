// Tokens in two columns with lines where attention went: any attention, heads as coloured chips, several at once.

import { headMap, headName, mapSentence, meanMap, readCell } from "./attention.js";
import { LINES } from "./colours.js";
import { strongest } from "./data.js";
import { h, isControl, select, shortened, svg, visible, widthOf } from "./elements.js";
import { heldCell, holdCell } from "./held.js";
import { View } from "./view.js";

const PAGE = 80; // tokens of a side that are drawn at once
const FAINTEST = 0.08; // weaker links are drawn only for the token one points at
const MOST_HEADS = 8;
const APART = 5; // pixels at most between the lines of two heads that join the same tokens

/** How a weight is drawn. */
function strokeOf(weight) {
  return { "stroke-width": 0.6 + 5 * weight, "stroke-opacity": 0.25 + 0.7 * Math.min(1, weight) };
}

/** What the lines of some weights look like. */
function thickness(words, colour) {
  const sample = (weight) => {
    const line = svg("path", { d: "M2,7 H46", stroke: colour, ...strokeOf(weight) });
    return [svg("svg", { class: "links", width: 48, height: 14, "aria-hidden": "true" }, line), h("span", {}, String(weight))];
  };
  return h("div", { class: "legend" }, h("span", {}, words.lineLegend), [0.1, 0.5, 1].flatMap(sample));
}

/** Two columns of tokens and the lines between them, for several maps of the same shape. */
class Lines {
  constructor(panel, maps, colours, titles) {
    Object.assign(this, { panel, maps, colours, titles });
    const [first] = maps;
    this.rows = first.rows.slice(0, PAGE);
    this.columns = first.columns.slice(0, PAGE);
    this.pointed = null;
    this.readout = h("div", { class: "readout", "aria-live": "polite" });
    this.box = h("div", { class: "scroll" });
    // Few tokens have room to breathe.
    this.step = Math.max(24, Math.min(40, 520 / Math.max(this.rows.length, this.columns.length)));
    this.element = h("div", {}, h("div", { class: "sticky" }, this.readout), this.box, thickness(panel.words, colours[0]));
  }

  shown() {
    const { panel } = this;
    const text = (label) => shortened(visible(label), 18);
    const wide = (labels) => Math.max(40, ...labels.map((label) => widthOf(text(label), "14px system-ui, sans-serif"))) + 20;
    this.left = Math.max(wide(this.rows), widthOf(this.titles[0]) + 12);
    const right = Math.max(wide(this.columns), widthOf(this.titles[1]) + 12);
    this.middle = Math.max(90, Math.min(1000, panel.width() - this.left - right - 8));
    const high = Math.max(this.rows.length, this.columns.length) * this.step + 40;
    this.picture = svg("svg", { class: "links", width: this.left + this.middle + right, height: high, role: "group", "aria-label": panel.words.lines });
    this.lines = svg("g", {});
    this.picture.append(this.lines);
    this.picture.append(svg("text", { class: "axis", x: this.left - 8, y: 14, "text-anchor": "end" }, this.titles[0]));
    this.picture.append(svg("text", { class: "axis", x: this.left + this.middle + 8, y: 14 }, this.titles[1]));
    this.rows.forEach((label, i) => this.picture.append(this.word("row", label, i, text(label))));
    this.columns.forEach((label, j) => this.picture.append(this.word("column", label, j, text(label))));
    this.box.replaceChildren(this.picture);
    this.hold();
  }

  resize() {
    if (this.drawn !== this.panel.width()) this.shown();
    this.drawn = this.panel.width();
  }

  /** What is held: [side, number] or null. */
  held() {
    const cell = heldCell(this.panel, ...this.maps[0].sides);
    return cell ? ["row", cell[0], cell[1]] : null;
  }

  hold() {
    this.trace(this.held() ?? this.pointed);
  }

  y(at) {
    return 40 + at * this.step;
  }

  trace(at) {
    this.lines.replaceChildren();
    const [side, number] = at ?? [null, null];
    this.maps.forEach((found, which) => {
      const { map } = found;
      const aside = (which - (this.maps.length - 1) / 2) * Math.min(APART, (0.7 * this.step) / this.maps.length); // no head hides another
      this.rows.forEach((_, i) => {
        if (side === "row" && i !== number) return;
        for (const [weight, j] of strongest(map, i, at ? map.columns : 3)) {
          if (j >= this.columns.length || (side === "column" && j !== number)) continue;
          if (weight < (at ? 0.01 : FAINTEST)) continue;
          const [x1, x2, m] = [this.left, this.left + this.middle, this.left + this.middle / 2];
          const [from, to] = [this.y(i) + aside, this.y(j) + aside];
          const path = `M${x1},${from} C${m},${from} ${m},${to} ${x2},${to}`;
          this.lines.append(svg("path", { d: path, stroke: this.colours[which], ...strokeOf(weight) }));
        }
      });
    });
    const { panel } = this;
    if (!at) this.readout.replaceChildren(h("span", { class: "note" }, panel.words.hoverToken));
    else {
      const found = this.maps[0];
      const values = found.rows.map((_, i) => [found.map.values[i * found.map.columns + number], i]).sort((a, b) => b[0] - a[0]);
      const cell = side === "row" ? [number, at[2] ?? strongest(found.map, number, 1)[0][1]] : [values[0][1], number];
      this.readout.replaceChildren(readCell(panel, found, ...cell));
    }
    this.picture.querySelectorAll("text.word").forEach((word) => {
      const key = side === "row" && word.dataset.side === "column" && Number(word.dataset.at) === at[2];
      word.classList.toggle("lit", key || (side !== null && word.dataset.side === side && Number(word.dataset.at) === number));
    });
  }

  word(side, label, at, text) {
    const x = side === "row" ? this.left - 8 : this.left + this.middle + 8;
    const where = { x, y: this.y(at), "text-anchor": side === "row" ? "end" : "start", "dominant-baseline": "central" };
    const kind = isControl(label) ? "word control" : "word";
    const element = svg("text", { ...where, class: kind, tabindex: "0", role: "button", "data-side": side, "data-at": at }, text);
    const point = (to) => () => {
      this.pointed = to;
      if (!this.held()) this.trace(to);
    };
    const choose = () => {
      const sides = this.maps[0].sides;
      const held = this.held();
      if (side === "row") return holdCell(this.panel, ...sides, held && held[1] === at && held[2] === null ? null : [at, null]);
      const row = held ? held[1] : this.maps[0].rows.map((_, i) => [this.maps[0].map.values[i * this.maps[0].map.columns + at], i]).sort((a, b) => b[0] - a[0])[0][1];
      return holdCell(this.panel, ...sides, held && held[2] === at ? [row, null] : [row, at]);
    };
    element.addEventListener("pointerenter", point([side, at, null]));
    element.addEventListener("pointerleave", point(null));
    element.addEventListener("focus", point([side, at, null]));
    element.addEventListener("blur", point(null));
    element.addEventListener("click", choose);
    element.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const other = { ArrowLeft: "row", ArrowRight: "column" }[event.key];
      if (event.shiftKey) return;
      if (step || (other && other !== side)) {
        const to = step ? [side, at + step] : [other, Math.min(at, (other === "row" ? this.rows : this.columns).length - 1)];
        this.picture.querySelector(`[data-side="${to[0]}"][data-at="${to[1]}"]`)?.focus();
      } else if (event.key === "Enter" || event.key === " ") choose();
      else return;
      event.preventDefault();
    });
    return element;
  }
}

export class LinesView extends View {
  static title = "lines";

  static has() {
    return true;
  }

  /** The heads that are drawn, as [layer, head]; none means the mean of all. */
  chosen(kind) {
    const { layers } = this.data.attentions[kind];
    return this.state.lines.filter(([k, layer, head]) => k === kind && head < (layers[layer]?.head_ids.length ?? 0)).slice(0, MOST_HEADS);
  }

  chips(kind, chosen) {
    const { data, state, words, panel } = this;
    const others = state.lines.filter(([k]) => k !== kind);
    const mean = h("button", { type: "button", class: "headchip", "aria-pressed": String(!chosen.length), "data-head": "mean", onclick: () => panel.set({ lines: others }) }, words.meanOfHeads);
    const rows = data.attentions[kind].layers.map((layer, l) =>
      h(
        "div",
        { class: "chiprow" },
        h("span", { class: "layer" }, String(l)),
        layer.head_ids.map((number, head) => {
          const at = chosen.findIndex(([, a, b]) => a === l && b === head);
          const toggled = at < 0 ? [...chosen, [kind, l, head]].slice(-MOST_HEADS) : chosen.filter((_, i) => i !== at);
          const style = at < 0 ? {} : { background: LINES[at], borderColor: LINES[at], color: "#fff" };
          const name = headName(panel, kind, l, head);
          return h("button", { type: "button", class: "headchip", style, title: name, "aria-label": name, "aria-pressed": String(at >= 0), "data-head": `${l}.${head}`, onclick: () => panel.set({ lines: [...others, ...toggled] }) }, `${l}.${number}`);
        }),
      ),
    );
    return h("div", { class: "headchips", role: "group", "aria-label": words.headNumber }, mean, rows);
  }

  async draw() {
    const { data, state, words, panel } = this;
    const kind = state.kind;
    const chosen = this.chosen(kind);
    const maps = [];
    for (const [, layer, head] of chosen) maps.push(await headMap(panel, kind, layer, head));
    if (!maps.length) maps.push(await meanMap(panel, kind));
    const kinds = Object.keys(data.attentions).map((name) => [name, words[name]]);
    const controls = h("div", { class: "controls" }, select(words.kind, kinds, kind, (name) => panel.set({ kind: name, layer: 0, head: 0 })));
    if (!maps[0]) return [controls, h("p", {}, words.noHeads)];
    const long = Math.max(maps[0].rows.length, maps[0].columns.length) > PAGE;
    const colours = chosen.length ? chosen.map((_, i) => LINES[i]) : [LINES[0]];
    const titles = [`${words.queryAxis} (${words[`side_${maps[0].sides[0]}`]})`, `${words.keyAxis} (${words[`side_${maps[0].sides[1]}`]})`];
    return [
      controls,
      this.chips(kind, chosen),
      long ? h("p", { class: "note" }, words.firstOnly.replace("{}", PAGE)) : null,
      this.howTo(mapSentence(panel, maps[0], chosen.length ? words.linesRead : words.linesReadMean)),
      this.keep(new Lines(panel, maps, colours, titles)),
    ];
  }
}
