// A map with labels, axis titles and a legend: hover, hold, arrow keys, and for long texts an overview in which a window is moved.
//
// What is held is the page's business (`held()` asks, `hold(cell)` tells); the map keeps only where the pointer is and, of a long
// text, which window is shown.

import { css, maskedColour, paint, shareOf, signColour, sizeColour } from "./colours.js";
import { h, isControl, shortened, svg, visible, widthOf } from "./elements.js";

const SMALLEST = 15; // pixels a cell; below this labels would run into each other
const LARGEST = 58;
const WIDEST_LABEL = 150;
const ASIDE = 330; // pixels beside a map in which its readout stands, where there are so many

function labelled(text) {
  return shortened(visible(text), 16);
}

/** The scale beneath a map, in words where it is not a plain one. */
export function legend(scale, format, words, masked) {
  const colour = scale.kind === "sign" ? (at) => signColour(2 * at - 1) : (at) => sizeColour(shareOf(at * scale.most, scale.kind === "row" ? { kind: "one", most: scale.most } : scale));
  const stops = Array.from({ length: 21 }, (_, i) => css(colour(i / 20))).join(",");
  const ends = scale.kind === "sign" ? [format(-scale.most), format(scale.most)] : scale.kind === "row" ? ["0", words.rowMost] : [format(0), format(scale.most)];
  return h(
    "div",
    { class: "legend" },
    h("span", {}, ends[0]),
    h("span", { class: "ramp", style: { background: `linear-gradient(90deg,${stops})` } }),
    h("span", {}, ends[1]),
    scale.name ? h("span", {}, scale.name) : null,
    masked ? h("span", { class: "maskedkey" }, h("i", { style: { background: css(maskedColour()) } }), words.maskedCells) : null,
  );
}

/**
 * options: map {values, rows, columns}; rows, columns (labels); axes [row title, column title]; scale {kind, most, name};
 * masked (bytes) or null; say(i, j): the readout; held(): [i, j] or null; hold(cell); name; words; format; plainRows;
 * example {i, j}: the cell that the sentence above the map speaks of, outlined; a map that shows a part of itself begins with it.
 */
export class Heatmap {
  constructor(options) {
    Object.assign(this, options);
    this.rowLabels = this.plainRows ? this.rows : this.rows.map(labelled);
    this.columnLabels = this.columns.map(labelled);
    this.widths = this.columnLabels.map((text) => widthOf(text));
    this.left = Math.ceil(Math.min(WIDEST_LABEL, Math.max(12, widthOf(this.axes?.[0] ?? ""), ...this.rowLabels.map((t) => widthOf(t))))) + 10;
    this.first = this.example ? [this.example.i - 2, this.example.j - 2] : [0, 0];
    this.cell = 0;
    this.cursor = null;
    this.readout = h("div", { class: "readout", "aria-live": "polite" });
    this.stage = h("div", { class: "stage", tabindex: "0", role: "group", "aria-label": this.name });
    this.overview = h("div", { class: "overview" });
    this.element = h("div", { class: "heatmap" }, h("div", { class: "sticky" }, this.readout), this.overview, this.stage);
    this.element.append(legend(this.scale, this.format, this.words, this.masked?.includes(1)));
    this.element.map = this.map; // what is drawn, for whoever asks
    this.listen();
  }

  shown() {
    this.draw();
  }

  resize() {
    if (this.drawn !== this.element.clientWidth) this.draw();
  }

  hold() {
    this.cursor = null;
    this.mark();
  }

  destroy() {
    this.stopMoving?.();
  }

  fit() {
    const [rows, columns] = [this.rows.length, this.columns.length];
    this.drawn = this.element.clientWidth;
    const wide = (this.drawn || 340) - this.left - 4;
    const tall = Math.max(300, Math.min(760, window.innerHeight * 0.78));
    if (this.cell === 0) {
      const natural = Math.floor(Math.min(wide / columns, Math.max((tall - 60) / rows, SMALLEST + 5), LARGEST));
      this.cell = Math.max(SMALLEST, natural);
    }
    // A label stands upright where its cell is wide enough for it, and lies on its side where it is not.
    this.upright = (j) => this.widths[j] <= this.cell - 2;
    const lying = this.widths.filter((_, j) => !this.upright(j));
    this.above = (lying.length ? Math.ceil(Math.min(WIDEST_LABEL, Math.max(...lying))) + 10 : 20) + (this.axes ? 16 : 0);
    const high = tall - this.above;
    this.window = [Math.min(rows, Math.max(4, Math.floor(high / this.cell))), Math.min(columns, Math.max(4, Math.floor(wide / this.cell)))];
    // A few rows too many are scrolled past rather than hidden.
    if (rows <= 48 && rows * this.cell < 1100) this.window[0] = rows;
    this.first = this.first.map((at, axis) => Math.max(0, Math.min(at, [rows, columns][axis] - this.window[axis])));
  }

  draw() {
    this.fit();
    const { first, cell, left, above } = this;
    const [n, m] = this.window;
    const cut = { values: new Float32Array(n * m), rows: n, columns: m };
    const masked = this.masked ? new Uint8Array(n * m) : null;
    for (let i = 0; i < n; i++) {
      const start = (first[0] + i) * this.columns.length + first[1];
      cut.values.set(this.map.values.subarray(start, start + m), i * m);
      masked?.set(this.masked.subarray(start, start + m), i * m);
    }
    const canvas = h("canvas", { class: "cells", style: { left: `${left}px`, top: `${above}px`, width: `${m * cell}px`, height: `${n * cell}px` } });
    paint(canvas, cut, this.scale, masked);
    const labels = svg("svg", { width: left + m * cell + 1, height: above + n * cell + 1, "aria-hidden": "true" });
    if (this.axes) {
      labels.append(svg("text", { class: "axis", x: left - 5, y: above - 6, "text-anchor": "end" }, `${this.axes[0]} ↓`));
      labels.append(svg("text", { class: "axis", x: left, y: 11 }, `${this.axes[1]} →`));
    }
    for (let i = 0; i < n; i++) {
      const at = first[0] + i;
      const where = { x: left - 5, y: above + (i + 0.5) * cell, "text-anchor": "end", "dominant-baseline": "central" };
      labels.append(svg("text", { ...where, "data-row": at, class: isControl(this.rows[at]) ? "control" : "" }, this.rowLabels[at]));
    }
    for (let j = 0; j < m; j++) {
      const at = first[1] + j;
      const x = left + (j + 0.5) * cell;
      const where = this.upright(at) ? { x, y: above - 6, "text-anchor": "middle" } : { transform: `translate(${x},${above - 5}) rotate(-90)`, "dominant-baseline": "central" };
      labels.append(svg("text", { ...where, "data-column": at, class: isControl(this.columns[at]) ? "control" : "" }, this.columnLabels[at]));
    }
    labels.append(svg("rect", { class: "frame", x: left, y: above, width: m * cell, height: n * cell }));
    const [down, across] = this.example ? [this.example.i - first[0], this.example.j - first[1]] : [-1, -1];
    if (down >= 0 && down < n && across >= 0 && across < m) labels.append(svg("rect", { class: "example", x: left + across * cell, y: above + down * cell, width: cell, height: cell }));
    this.bands = svg("g", { class: "bands" });
    labels.append(this.bands);
    this.stage.replaceChildren(canvas, labels);
    this.stage.style.width = `${left + m * cell + 2}px`;
    this.stage.style.height = `${above + n * cell + 2}px`;
    this.element.classList.toggle("aside", this.drawn - left - m * cell > ASIDE);
    this.drawOverview();
    this.mark();
  }

  drawOverview() {
    const { first, window: shown, overview, words } = this;
    const [rows, columns] = [this.rows.length, this.columns.length];
    const whole = shown[0] === rows && shown[1] === columns;
    overview.hidden = whole;
    if (whole) return overview.replaceChildren();
    const wide = Math.min(240, (this.element.clientWidth || 300) - 20);
    const high = Math.max(40, Math.min(240, (wide * rows) / columns));
    const canvas = h("canvas", { style: { width: `${wide}px`, height: `${high}px` } });
    paint(canvas, pooled(this.map, 240), this.scale);
    const share = (axis, size) => `${(first[axis] / [rows, columns][axis]) * size}px`;
    const length = (axis, size) => `${(shown[axis] / [rows, columns][axis]) * size}px`;
    const frame = h("div", { class: "window", style: { left: share(1, wide), top: share(0, high), width: length(1, wide), height: length(0, high) } });
    const box = h("div", { class: "whole", style: { width: `${wide}px`, height: `${high}px` }, title: words.move }, canvas, frame);
    const go = (event) => {
      const place = overview.firstElementChild.getBoundingClientRect();
      this.first = [Math.round(((event.clientY - place.top) / high) * rows - shown[0] / 2), Math.round(((event.clientX - place.left) / wide) * columns - shown[1] / 2)];
      this.draw();
    };
    box.addEventListener("pointerdown", (event) => {
      go(event);
      const stop = () => {
        window.removeEventListener("pointermove", go);
        window.removeEventListener("pointerup", stop);
      };
      this.stopMoving = stop;
      window.addEventListener("pointermove", go);
      window.addEventListener("pointerup", stop);
      event.preventDefault();
    });
    const button = (sign, name, step) => h("button", { type: "button", "aria-label": name, title: name, onclick: () => this.zoom(step) }, sign);
    overview.replaceChildren(box, h("div", { class: "zoom" }, button("+", words.zoomIn, 5), button("−", words.zoomOut, -5), h("span", { class: "note" }, words.overview)));
  }

  zoom(step) {
    this.cell = Math.max(SMALLEST, Math.min(LARGEST, this.cell + step));
    this.draw();
  }

  /** The bands and the readout of what is held, or pointed at. */
  mark() {
    this.stage.querySelectorAll("text.lit").forEach((text) => text.classList.remove("lit"));
    if (!this.bands) return;
    this.bands.replaceChildren();
    const held = this.held?.() ?? null;
    const at = held ?? this.cursor;
    if (!at) return this.readout.replaceChildren(h("span", { class: "note" }, this.words.hover));
    const [i, j] = at;
    const { first, window: shown, cell, left, above } = this;
    this.stage.querySelector(`text[data-row="${i}"]`)?.classList.add("lit");
    this.stage.querySelector(`text[data-column="${j}"]`)?.classList.add("lit");
    const kind = held ? "band locked" : "band";
    if (i >= first[0] && i < first[0] + shown[0]) {
      this.bands.append(svg("rect", { class: kind, x: left, y: above + (i - first[0]) * cell, width: shown[1] * cell, height: cell }));
    }
    if (j !== null && j >= first[1] && j < first[1] + shown[1]) {
      this.bands.append(svg("rect", { class: kind, x: left + (j - first[1]) * cell, y: above, width: cell, height: shown[0] * cell }));
    }
    this.readout.replaceChildren(this.say(i, j ?? this.strongest(i)) ?? "");
  }

  strongest(i) {
    let best = 0;
    const row = i * this.map.columns;
    for (let j = 1; j < this.map.columns; j++) if (Math.abs(this.map.values[row + j]) > Math.abs(this.map.values[row + best])) best = j;
    return best;
  }

  cellAt(event) {
    const place = this.stage.getBoundingClientRect();
    const j = Math.floor((event.clientX - place.left - this.left) / this.cell) + this.first[1];
    const i = Math.floor((event.clientY - place.top - this.above) / this.cell) + this.first[0];
    const inside = [i, j].every((at, axis) => at >= this.first[axis] && at < this.first[axis] + this.window[axis]);
    return inside ? [i, j] : null;
  }

  choose(cell) {
    if (this.setHold) this.setHold(cell);
    else this.cursor = cell;
    this.mark();
  }

  listen() {
    const { stage } = this;
    stage.addEventListener("pointermove", (event) => {
      if (this.held?.() || event.pointerType === "touch") return;
      this.cursor = this.cellAt(event);
      this.mark();
    });
    stage.addEventListener("pointerleave", () => {
      this.cursor = null;
      this.mark();
    });
    stage.addEventListener("click", (event) => {
      const cell = this.cellAt(event);
      const held = this.held?.();
      if (cell) this.choose(held && held[0] === cell[0] && held[1] === cell[1] ? null : cell);
    });
    stage.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = event.shiftKey || event.ctrlKey || event.altKey || event.metaKey ? null : steps[event.key];
    const held = this.held?.() ?? null;
    if (step) {
      const from = held ?? this.cursor;
      const [i, j] = from ? [from[0], from[1] ?? this.strongest(from[0])] : [this.first[0] - step[0], this.first[1] - step[1]];
      const next = [Math.max(0, Math.min(this.rows.length - 1, i + step[0])), Math.max(0, Math.min(this.columns.length - 1, j + step[1]))];
      const hidden = next.some((at, axis) => at < this.first[axis] || at >= this.first[axis] + this.window[axis]);
      if (hidden) this.first = next.map((at, axis) => at - Math.floor(this.window[axis] / 2));
      if (held) this.setHold(next);
      else this.cursor = next;
      if (hidden) this.draw();
      else this.mark();
    } else if ((event.key === "Enter" || event.key === " ") && (held || this.cursor)) this.choose(held ? null : this.cursor);
    else if ((event.key === "+" || event.key === "-") && !this.overview.hidden) this.zoom(event.key === "+" ? 5 : -5);
    else return;
    event.preventDefault();
  }
}

/** The strongest of each block of cells, so that no side has more than `most` of them. */
export function pooled(map, most) {
  const rows = Math.min(map.rows, most);
  const columns = Math.min(map.columns, most);
  if (rows === map.rows && columns === map.columns) return map;
  const values = new Float32Array(rows * columns);
  for (let i = 0; i < map.rows; i++) {
    const a = Math.floor((i * rows) / map.rows);
    for (let j = 0; j < map.columns; j++) {
      const at = a * columns + Math.floor((j * columns) / map.columns);
      const value = map.values[i * map.columns + j];
      if (Math.abs(value) > Math.abs(values[at])) values[at] = value;
    }
  }
  return { values, rows, columns };
}
