// Source and written tokens side by side, with lines where attention went.

import { largest, matrix, strongest, unpack } from "./data.js";
import { choice, h, share, shortened, svg, visible, widthOf, isControl } from "./elements.js";
import { heatmap } from "./heatmap.js";
import { headName, mergedMap, readCell } from "./view_maps.js";

const STEP = 24;
const FAINTEST = 0.05; // weaker links are drawn only for the token one points at
const LONG = 60; // units; a longer text begins as a map

/** Two columns of tokens and lines between them. */
function links(page, found) {
  const { words } = page;
  const readout = h("div", { class: "readout", "aria-live": "polite" }, h("span", { class: "note" }, words.hoverToken));
  const text = (label) => shortened(visible(label), 18);
  const left = Math.max(40, ...found.columns.map((label) => widthOf(text(label), "14px system-ui, sans-serif"))) + 20;
  const right = Math.max(40, ...found.rows.map((label) => widthOf(text(label), "14px system-ui, sans-serif"))) + 20;
  const available = Math.max(300, page.width());
  const middle = Math.max(90, Math.min(320, available - left - right - 8));
  const high = Math.max(found.rows.length, found.columns.length) * STEP + 40;
  const picture = svg("svg", { class: "links", width: left + middle + right, height: high, role: "group", "aria-label": words.alignment });
  const lines = svg("g", {});
  picture.append(lines);
  picture.append(svg("text", { class: "caption", x: left - 8, y: 14, "text-anchor": "end" }, words.source));
  picture.append(svg("text", { class: "caption", x: left + middle + 8, y: 14 }, words.target));
  const y = (i) => 40 + i * STEP;
  let locked = null;

  function draw(side, at) {
    lines.replaceChildren();
    found.rows.forEach((_, i) => {
      if (at !== null && side === "row" && i !== at) return;
      const links = at === null ? strongest(found.map, i, 4) : strongest(found.map, i, found.columns.length);
      for (const [w, j] of links) {
        const lit = at === null || (side === "row" ? i === at : j === at);
        if (!lit || w < (at === null ? FAINTEST : 0.002)) continue;
        const [x1, x2, m] = [left, left + middle, left + middle / 2];
        const path = `M${x1},${y(j)} C${m},${y(j)} ${m},${y(i)} ${x2},${y(i)}`;
        lines.append(svg("path", { d: path, "stroke-width": 1 + 5 * w, "stroke-opacity": 0.12 + 0.88 * Math.min(1, w) }));
      }
    });
    if (at === null) {
      readout.replaceChildren(h("span", { class: "note" }, words.hoverToken));
    } else if (side === "row") {
      readout.replaceChildren(readCell(page, found, at, strongest(found.map, at, 1)[0][1]));
    } else {
      const column = found.rows.map((_, i) => [found.map.values[i * found.map.columns + at], i]).sort((a, b) => b[0] - a[0]);
      readout.replaceChildren(readCell(page, found, column[0][1], at));
    }
    picture.querySelectorAll("text.word").forEach((word) => {
      word.classList.toggle("lit", at !== null && word.dataset.side === side && Number(word.dataset.at) === at);
    });
  }

  function word(side, label, at) {
    const x = side === "row" ? left + middle + 8 : left - 8;
    const attributes = { x, y: y(at), "text-anchor": side === "row" ? "start" : "end", "dominant-baseline": "central" };
    const kind = isControl(label) ? "word control" : "word";
    const element = svg("text", { ...attributes, class: kind, tabindex: "0", role: "button", "data-side": side, "data-at": at }, text(label));
    const show = () => !locked && draw(side, at);
    const hide = () => !locked && draw(side, null);
    const hold = () => {
      const same = locked && locked[0] === side && locked[1] === at;
      locked = same ? null : [side, at];
      draw(side, same ? null : at);
    };
    element.addEventListener("pointerenter", show);
    element.addEventListener("pointerleave", hide);
    element.addEventListener("focus", show);
    element.addEventListener("blur", hide);
    element.addEventListener("click", hold);
    element.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const other = { ArrowLeft: "column", ArrowRight: "row" }[event.key];
      if (event.shiftKey) return;
      if (step || (other && other !== side)) {
        const to = step ? [side, at + step] : [other, Math.min(at, (other === "row" ? found.rows : found.columns).length - 1)];
        picture.querySelector(`[data-side="${to[0]}"][data-at="${to[1]}"]`)?.focus();
        event.preventDefault();
      } else if (event.key === "Enter" || event.key === " ") {
        hold();
        event.preventDefault();
      }
    });
    return element;
  }

  found.columns.forEach((label, j) => picture.append(word("column", label, j)));
  found.rows.forEach((label, i) => picture.append(word("row", label, i)));
  draw("row", null);
  return [h("div", { class: "sticky" }, readout), h("div", { class: "scroll" }, picture)];
}

export async function drawAlignment(page) {
  const { words, data, state } = page;
  const { layers } = data.attentions.cross;
  const chosen = state.kind === "cross" && layers[state.layer].head_ids.length;
  const first = layers.findIndex((layer) => layer.head_ids.length); // a layer may have lost all its heads
  const [layer, head] = chosen ? [state.layer, state.head] : [first, 0];
  const single = state.alignment === "head";
  const map = single ? matrix(await unpack(layers[layer].weights), head) : matrix(await unpack(data.alignment), 0);
  const found = mergedMap(page, map, "written", "source");
  const controls = choice(
    words.kind,
    [["mean", words.meanOfHeads], ["head", headName(page, "cross", layer, head)]],
    state.alignment,
    (alignment) => page.set(alignment === "head" ? { alignment, kind: "cross", layer, head } : { alignment }),
  );
  const long = Math.max(found.rows.length, found.columns.length) > LONG;
  const shape = state.shape ?? (long ? "map" : "lines");
  const shapes = choice(words.measure, [["lines", words.lines], ["map", words.map]], shape, (value) => page.set({ shape: value }));
  const picture = () =>
    heatmap({
      ...found,
      most: largest(found.map.values),
      say: (i, j) => readCell(page, found, i, j),
      locked: page.lockFor(found),
      lock: (cell) => page.remember({ locked: cell }),
      name: words.alignment,
      words,
      format: share,
    });
  return [h("div", { class: "controls" }, controls, shapes), ...(shape === "map" ? [picture()] : links(page, found))];
}
