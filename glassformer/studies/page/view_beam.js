// The tree of a beam search: every candidate, its score, and where the survivors went.

import { filled } from "./words.js";
import { h, number, shortened, svg, token, visible, isControl } from "./elements.js";

const WIDE = 118;
const HIGH = 44;

export async function drawBeam(page) {
  const { words, data } = page;
  const { beam, names } = data;
  const steps = beam.steps;
  const rows = Math.max(1, ...steps.map((step) => step.length));
  const margin = 76;
  const above = 30;
  const picture = svg("svg", { class: "tree", width: margin + steps.length * WIDE + 20, height: above + rows * HIGH + 10, role: "group", "aria-label": words.beam });
  const lines = svg("g", { class: "branches" });
  const nodes = svg("g", {});
  picture.append(lines, nodes);
  const readout = h("div", { class: "readout", "aria-live": "polite" }, h("span", { class: "note" }, words.beamHover));
  const all = [];
  let slots = new Map([[0, { x: margin - 24, y: above + HIGH / 2, path: [] }]]);
  nodes.append(svg("text", { class: "root", x: margin - 30, y: above + HIGH / 2, "text-anchor": "end", "dominant-baseline": "central" }, shortened(visible(names[beam.root]), 6)));
  let locked = null;

  function light(entry) {
    const lit = new Set(entry ? [...entry.path, entry] : []);
    picture.classList.toggle("dimmed", Boolean(entry));
    for (const one of all) {
      one.node.classList.toggle("lit", lit.has(one));
      one.line?.classList.toggle("lit", lit.has(one));
    }
    if (!entry) return readout.replaceChildren(h("span", { class: "note" }, words.beamHover));
    const { candidate: c, step, rank } = entry;
    readout.replaceChildren(
      h(
        "div",
        {},
        h("p", {}, `${filled(words.stepN, step + 1)}, ${words.rank} ${rank + 1}: `, token(names[c.token]), ` · ${words.logprob} ${number(c.logprob, 3)} · ${words.total} ${number(c.total, 3)} · ${words.score} ${number(c.score, 3)} · ${words[c.fate]}`),
        h("p", { class: "path" }, c.text),
      ),
    );
  }

  steps.forEach((step, s) => {
    const next = new Map();
    picture.append(svg("text", { class: "caption", x: margin + s * WIDE + 4, y: 16 }, filled(words.stepN, s + 1)));
    step.forEach((candidate, rank) => {
      const x = margin + s * WIDE;
      const y = above + rank * HIGH + HIGH / 2;
      const parent = slots.get(candidate.parent);
      const from = parent ?? { x, y, path: [] };
      const line = parent
        ? svg("path", { class: `branch ${candidate.fate}${candidate.best ? " best" : ""}`, d: `M${from.x},${from.y} C${from.x + 14},${from.y} ${x - 14},${y} ${x},${y}` })
        : null;
      if (line) lines.append(line);
      const label = shortened(visible(names[candidate.token]), 8);
      const width = WIDE - 34;
      const node = svg(
        "g",
        { class: `node ${candidate.fate}${candidate.best ? " best" : ""}`, tabindex: "-1", role: "button", "data-step": s, "data-rank": rank, "aria-label": `${names[candidate.token]} ${number(candidate.score)} ${words[candidate.fate]}` },
        svg("rect", { x, y: y - 18, width, height: 36, rx: 4 }),
        svg("text", { x: x + 6, y: y - 7, "dominant-baseline": "central", class: isControl(names[candidate.token]) ? "control" : "" }, label),
        svg("text", { class: "score", x: x + width - 5, y: y + 9, "text-anchor": "end", "dominant-baseline": "central" }, number(candidate.score)),
        candidate.fate === "ended" ? svg("text", { class: "flag", x: x + width - 5, y: y - 8, "text-anchor": "end", "dominant-baseline": "central" }, "■") : null,
      );
      const entry = { candidate, node, line, step: s, rank, x: x + width, y, path: from.path };
      all.push(entry);
      if (candidate.slot !== null) next.set(candidate.slot, { x: x + width, y, path: [...from.path, entry] });
      node.addEventListener("pointerenter", () => !locked && light(entry));
      node.addEventListener("pointerleave", () => !locked && light(null));
      node.addEventListener("focus", () => !locked && light(entry));
      node.addEventListener("click", () => {
        locked = locked === entry ? null : entry;
        light(locked ?? entry);
      });
      nodes.append(node);
    });
    slots = next;
  });
  all[0]?.node.setAttribute("tabindex", "0");
  picture.addEventListener("keydown", (event) => {
    const node = event.target.closest?.("g.node");
    const move = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    if (!node || event.shiftKey) return;
    if (move) {
      const s = Number(node.dataset.step) + move[0];
      const r = Math.min(Number(node.dataset.rank) + move[1], (steps[s]?.length ?? 1) - 1);
      picture.querySelector(`g.node[data-step="${s}"][data-rank="${r}"]`)?.focus();
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      node.dispatchEvent(new MouseEvent("click"));
      event.preventDefault();
    }
  });
  const key = h(
    "p",
    { class: "key" },
    h("span", { class: "swatch kept" }, words.kept),
    h("span", { class: "swatch ended" }, `■ ${words.ended}`),
    h("span", { class: "swatch dropped" }, words.dropped),
    beam.has_best ? h("span", { class: "swatch best" }, words.lookedAt) : null,
    h("span", { class: "note" }, `${words.beamOf} ${beam.width}`),
  );
  const answers = h(
    "table",
    { class: "answers" },
    h("thead", {}, h("tr", {}, [words.answers, words.score, words.logprob].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, beam.answers.map((a) => h("tr", {}, h("td", { class: "path" }, a.text || "∅"), h("td", { class: "number" }, number(a.score, 3)), h("td", { class: "number" }, number(a.logprob, 3))))),
  );
  return [key, h("div", { class: "sticky" }, readout), h("div", { class: "scroll" }, picture), h("div", { class: "scroll" }, answers)];
}
