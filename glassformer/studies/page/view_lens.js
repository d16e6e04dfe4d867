// The logit lens: layers from bottom to top, positions from left to right.

import { css, inkOn, paint, sizeColour } from "./colours.js";
import { filled } from "./words.js";
import { h, number, share, shortened, token, visible } from "./elements.js";

const LONG = 40;

export async function drawLens(page) {
  const { words, data } = page;
  const { lens, outputs, names } = data;
  const count = outputs.tokens.length;
  const depth = (d) => {
    if (d === 0) return words.embeddings;
    return filled(words.afterLayer, d) + (d === lens.length - 1 ? ` (${words.output})` : "");
  };
  const readout = h("div", { class: "readout", "aria-live": "polite" }, h("span", { class: "note" }, words.hover));
  let locked = null;

  function show(d, at) {
    const layer = lens[d];
    const best = layer.best[at].map((id, k) => h("span", { class: "pair" }, token(names[id]), " ", h("b", {}, share(layer.chances[at][k]))));
    readout.replaceChildren(
      h(
        "div",
        {},
        h("p", {}, `${words.place} ${outputs.positions[at] + 1}, ${depth(d)} · ${words.tokens} `, token(names[outputs.tokens[at]]), ` ${share(Math.exp(layer.logprob[at]))}, ${words.rank} ${layer.rank[at]}, ${words.entropy} ${number(layer.entropy[at])}`),
        h("p", { class: "strongest" }, h("span", { class: "caption" }, words.most), best),
      ),
    );
  }

  const table = h("table", { class: "lens" });
  const header = (at) => h("th", { scope: "col" }, outputs.words ? token(outputs.words[at]) : token(names[outputs.tokens[at]]));
  table.append(h("thead", {}, h("tr", {}, h("th", { scope: "col" }, outputs.words ? words.word : words.tokens), outputs.tokens.map((_, at) => header(at)))));
  const body = h("tbody");
  for (let d = lens.length - 1; d >= 0; d--) {
    const layer = lens[d];
    const row = h("tr", {}, h("th", { scope: "row" }, depth(d)));
    for (let at = 0; at < count; at++) {
      const colour = sizeColour(0.8 * layer.chances[at][0]);
      const right = layer.best[at][0] === outputs.tokens[at];
      const ink = inkOn(colour);
      const style = { background: css(colour), color: ink, boxShadow: right ? `inset 0 0 0 2px ${css(colour)}, inset 0 0 0 4px ${ink}` : "" };
      const cell = h("td", { style, class: right ? "right" : "", tabindex: d === lens.length - 1 && at === 0 ? "0" : "-1", "data-depth": d, "data-at": at }, shortened(visible(names[layer.best[at][0]]), 10));
      row.append(cell);
    }
    body.append(row);
  }
  table.append(body);
  const find = (event) => event.target.closest?.("td");
  body.addEventListener("pointerover", (event) => {
    const cell = find(event);
    if (cell && !locked) show(Number(cell.dataset.depth), Number(cell.dataset.at));
  });
  body.addEventListener("focusin", (event) => {
    const cell = find(event);
    if (cell && !locked) show(Number(cell.dataset.depth), Number(cell.dataset.at));
  });
  body.addEventListener("click", (event) => {
    const cell = find(event);
    if (!cell) return;
    body.querySelector("td.locked")?.classList.remove("locked");
    locked = locked === cell ? null : cell;
    locked?.classList.add("locked");
    show(Number(cell.dataset.depth), Number(cell.dataset.at));
  });
  body.addEventListener("keydown", (event) => {
    const cell = find(event);
    const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!cell || event.shiftKey) return;
    if (step) {
      const to = [Number(cell.dataset.depth) + step[0], Number(cell.dataset.at) + step[1]];
      body.querySelector(`td[data-depth="${to[0]}"][data-at="${to[1]}"]`)?.focus();
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      cell.click();
      event.preventDefault();
    }
  });
  const scroll = h("div", { class: "scroll" }, table);
  let strip = null;
  if (count > LONG) {
    // The probability of the chosen word at every place and depth; a click goes there.
    const canvas = h("canvas", { class: "strip", style: { height: `${10 * lens.length}px` }, title: words.stripAbout });
    const values = new Float32Array(lens.length * count);
    lens.forEach((layer, d) => layer.logprob.forEach((value, at) => (values[(lens.length - 1 - d) * count + at] = Math.exp(value))));
    paint(canvas, { values, rows: lens.length, columns: count }, 1);
    canvas.addEventListener("click", (event) => {
      const at = (event.offsetX / canvas.clientWidth) * table.scrollWidth;
      scroll.scrollLeft = at - scroll.clientWidth / 2;
    });
    strip = h("div", {}, canvas, h("p", { class: "note" }, words.stripAbout));
  }
  return [h("p", { class: "note" }, words.piecesOnly), h("div", { class: "sticky" }, readout), strip, scroll];
}
