// A map with labels: hover, lock, arrow keys, and for long texts an overview in which a window is moved.

import { css, paint, sizeColour } from "./colours.js";
import { h, shortened, svg, visible, widthOf, isControl } from "./elements.js";
import { largest } from "./data.js";

const SMALLEST = 15; // pixels a cell; below this labels would run into each other
const WIDEST_LABEL = 150;

function labelled(text) {
  return shortened(visible(text), 16);
}

/** The scale beneath a map. */
function legend(most, format) {
  const stops = Array.from({ length: 11 }, (_, i) => css(sizeColour(i / 10))).join(",");
  return h(
    "div",
    { class: "legend" },
    h("span", {}, format(0)),
    h("span", { class: "ramp", style: { background: `linear-gradient(90deg,${stops})` } }),
    h("span", {}, format(most)),
  );
}

/**
 * map: {values, rows, columns}; rows, columns: labels; most: the value of the strongest colour; say(i, j): the readout,
 * an element or null; locked: [i, j] or null; lock(cell): called when a cell is locked or released; words: captions.
 */
export function heatmap({ map, rows, columns, most, say, locked, lock, name, words, format, plainRows }) {
  const top = most || largest(map.values) || 1;
  const rowLabels = plainRows ? rows : rows.map(labelled);
  const columnLabels = columns.map(labelled);
  const left = Math.ceil(Math.min(WIDEST_LABEL, Math.max(12, ...rowLabels.map((t) => widthOf(t))))) + 10;
  const widths = columnLabels.map((t) => widthOf(t));
  const upright = (j) => widths[j] <= SMALLEST - 2; // a letter or two stand, the rest lie on their side
  const above = columnLabels.every((_, j) => upright(j)) ? 20 : Math.ceil(Math.min(WIDEST_LABEL, Math.max(...widths))) + 10;
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const stage = h("div", { class: "stage", tabindex: "0", role: "group", "aria-label": name });
  const overview = h("div", { class: "overview" });
  const root = h("div", { class: "heatmap" }, h("div", { class: "sticky" }, readout), overview, stage);
  let cell = 0;
  let first = [0, 0]; // the first row and column of the window
  let shown = [rows.length, columns.length];
  let cursor = locked;
  let bands = null;

  function fit() {
    const wide = (root.clientWidth || 800) - left - 2;
    const high = Math.max(300, Math.min(760, window.innerHeight * 0.78)) - above;
    const natural = Math.floor(Math.min(wide / columns.length, Math.max(high / rows.length, SMALLEST), 36));
    if (cell === 0) cell = Math.max(SMALLEST, natural);
    shown = [Math.min(rows.length, Math.max(4, Math.floor(high / cell))), Math.min(columns.length, Math.max(4, Math.floor(wide / cell)))];
    // A few rows too many are scrolled past rather than hidden.
    if (rows.length <= 48 && rows.length * cell < 1100) shown[0] = rows.length;
    first = [Math.max(0, Math.min(first[0], rows.length - shown[0])), Math.max(0, Math.min(first[1], columns.length - shown[1]))];
  }

  function draw() {
    fit();
    const [n, m] = shown;
    const window_ = { values: new Float32Array(n * m), rows: n, columns: m };
    for (let i = 0; i < n; i++) {
      const start = (first[0] + i) * columns.length + first[1];
      window_.values.set(map.values.subarray(start, start + m), i * m);
    }
    const canvas = h("canvas", { class: "cells", style: { left: `${left}px`, top: `${above}px`, width: `${m * cell}px`, height: `${n * cell}px` } });
    paint(canvas, window_, top);
    const labels = svg("svg", { width: left + m * cell + 1, height: above + n * cell + 1, "aria-hidden": "true" });
    for (let i = 0; i < n; i++) {
      const text = rowLabels[first[0] + i];
      const attributes = { x: left - 5, y: above + (i + 0.5) * cell, "text-anchor": "end", "dominant-baseline": "central", "data-row": first[0] + i };
      labels.append(svg("text", { ...attributes, class: isControl(rows[first[0] + i]) ? "control" : "" }, text));
    }
    for (let j = 0; j < m; j++) {
      const x = left + (j + 0.5) * cell;
      const where = upright(first[1] + j)
        ? { x, y: above - 6, "text-anchor": "middle" }
        : { transform: `translate(${x},${above - 5}) rotate(-90)`, "dominant-baseline": "central" };
      const kind = isControl(columns[first[1] + j]) ? "control" : "";
      labels.append(svg("text", { ...where, "data-column": first[1] + j, class: kind }, columnLabels[first[1] + j]));
    }
    labels.append(svg("rect", { class: "frame", x: left, y: above, width: m * cell, height: n * cell }));
    bands = svg("g", { class: "bands" });
    labels.append(bands);
    stage.replaceChildren(canvas, labels);
    stage.style.width = `${left + m * cell + 2}px`;
    stage.style.height = `${above + n * cell + 2}px`;
    drawOverview();
    mark();
  }

  function drawOverview() {
    const whole = shown[0] === rows.length && shown[1] === columns.length;
    overview.hidden = whole;
    if (whole) return overview.replaceChildren();
    const wide = Math.min(240, (root.clientWidth || 300) - 20);
    const high = Math.max(40, Math.min(240, (wide * rows.length) / columns.length));
    const canvas = h("canvas", { style: { width: `${wide}px`, height: `${high}px` } });
    paint(canvas, pooled(map, 240), top);
    const frame = h("div", {
      class: "window",
      style: {
        left: `${(first[1] / columns.length) * wide}px`,
        top: `${(first[0] / rows.length) * high}px`,
        width: `${(shown[1] / columns.length) * wide}px`,
        height: `${(shown[0] / rows.length) * high}px`,
      },
    });
    const box = h("div", { class: "whole", style: { width: `${wide}px`, height: `${high}px` }, title: words.move }, canvas, frame);
    const go = (event) => {
      const place = box.getBoundingClientRect();
      first = [
        Math.round(((event.clientY - place.top) / high) * rows.length - shown[0] / 2),
        Math.round(((event.clientX - place.left) / wide) * columns.length - shown[1] / 2),
      ];
      draw();
    };
    box.addEventListener("pointerdown", (event) => {
      go(event);
      const moved = (e) => go(e);
      window.addEventListener("pointermove", moved);
      window.addEventListener("pointerup", () => window.removeEventListener("pointermove", moved), { once: true });
      event.preventDefault();
    });
    const zoom = (step) => () => {
      cell = Math.max(SMALLEST, Math.min(40, cell + step));
      draw();
    };
    overview.replaceChildren(
      box,
      h(
        "div",
        { class: "zoom" },
        h("button", { type: "button", "aria-label": words.zoomIn, title: words.zoomIn, onclick: zoom(5) }, "+"),
        h("button", { type: "button", "aria-label": words.zoomOut, title: words.zoomOut, onclick: zoom(-5) }, "−"),
        h("span", { class: "note" }, words.overview),
      ),
    );
  }

  function mark() {
    stage.querySelectorAll("text.lit").forEach((text) => text.classList.remove("lit"));
    if (!bands) return;
    bands.replaceChildren();
    const cell_ = cursor ?? locked;
    if (!cell_) {
      readout.replaceChildren(h("span", { class: "note" }, words.hover));
      return;
    }
    const [i, j] = cell_;
    stage.querySelector(`text[data-row="${i}"]`)?.classList.add("lit");
    stage.querySelector(`text[data-column="${j}"]`)?.classList.add("lit");
    const y = above + (i - first[0]) * cell;
    const x = left + (j - first[1]) * cell;
    const wide = shown[1] * cell;
    const high = shown[0] * cell;
    const kind = locked ? "band locked" : "band";
    if (i >= first[0] && i < first[0] + shown[0]) bands.append(svg("rect", { class: kind, x: left, y, width: wide, height: cell }));
    if (j >= first[1] && j < first[1] + shown[1]) bands.append(svg("rect", { class: kind, x, y: above, width: cell, height: high }));
    readout.replaceChildren(say(i, j) ?? "");
  }

  function cellAt(event) {
    const place = stage.getBoundingClientRect();
    const j = Math.floor((event.clientX - place.left - left) / cell) + first[1];
    const i = Math.floor((event.clientY - place.top - above) / cell) + first[0];
    const inside = i >= first[0] && i < first[0] + shown[0] && j >= first[1] && j < first[1] + shown[1];
    return inside ? [i, j] : null;
  }

  function setLock(cell_) {
    locked = cell_;
    cursor = cell_;
    lock?.(cell_);
    mark();
  }

  stage.addEventListener("pointermove", (event) => {
    if (locked || event.pointerType === "touch") return;
    cursor = cellAt(event);
    mark();
  });
  stage.addEventListener("pointerleave", () => {
    if (locked) return;
    cursor = null;
    mark();
  });
  stage.addEventListener("click", (event) => {
    const cell_ = cellAt(event);
    if (!cell_) return;
    const same = locked && locked[0] === cell_[0] && locked[1] === cell_[1];
    setLock(same ? null : cell_);
  });
  stage.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = event.shiftKey || event.ctrlKey || event.altKey || event.metaKey ? null : steps[event.key];
    if (step) {
      const [i, j] = cursor ?? locked ?? [first[0] - step[0], first[1] - step[1]];
      const next = [Math.max(0, Math.min(rows.length - 1, i + step[0])), Math.max(0, Math.min(columns.length - 1, j + step[1]))];
      if (locked) locked = next;
      cursor = next;
      const hidden = next.some((at, axis) => at < first[axis] || at >= first[axis] + shown[axis]);
      if (hidden) {
        first = next.map((at, axis) => at - Math.floor(shown[axis] / 2));
        draw();
      } else mark();
      if (locked) lock?.(locked);
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === " ") && cursor) {
      setLock(locked ? null : cursor);
      event.preventDefault();
    } else if (event.key === "Escape" && locked) {
      setLock(null);
      event.stopPropagation();
    } else if (event.key === "+" || event.key === "-") {
      if (overview.hidden) return;
      cell = Math.max(SMALLEST, Math.min(40, cell + (event.key === "+" ? 5 : -5)));
      draw();
    }
  });
  if (format) root.append(legend(top, format));
  root.map = map; // what is drawn, for whoever asks
  requestAnimationFrame(draw);
  return root;
}

/** The strongest of each block of cells, so that no side has more than `most` of them. */
function pooled(map, most) {
  const rows = Math.min(map.rows, most);
  const columns = Math.min(map.columns, most);
  if (rows === map.rows && columns === map.columns) return map;
  const values = new Float32Array(rows * columns);
  for (let i = 0; i < map.rows; i++) {
    const a = Math.floor((i * rows) / map.rows);
    for (let j = 0; j < map.columns; j++) {
      const at = a * columns + Math.floor((j * columns) / map.columns);
      if (map.values[i * map.columns + j] > values[at]) values[at] = map.values[i * map.columns + j];
    }
  }
  return { values, rows, columns };
}
