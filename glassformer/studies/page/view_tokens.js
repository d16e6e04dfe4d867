// How sure the model was: probability, rank, entropy, alternatives.

import { css, inkOn, sizeColour } from "./colours.js";
import { unitsOf } from "./data.js";
import { h, number, share, token, visible } from "./elements.js";

function chip(label, probability, attributes) {
  const colour = sizeColour(0.75 * probability);
  return h("button", { type: "button", class: "chip", style: { background: css(colour), color: inkOn(colour) }, ...attributes }, visible(label));
}

export async function drawTokens(page) {
  const { words, data, state } = page;
  const { outputs, names } = data;
  const label = outputs.labels ? words.label : words.token;
  const units = unitsOf(data.sides.written, state.unit);
  const body = h("tbody");
  const go = (at) => {
    page.remember({ output: at });
    body.querySelectorAll("tr.lit").forEach((row) => row.classList.remove("lit"));
    const row = body.querySelector(`tr[data-at="${at}"]`);
    row?.classList.add("lit");
    row?.scrollIntoView({ block: "center", behavior: "auto" });
  };
  const chips = units.starts.map((start, g) => {
    const end = units.starts[g + 1] ?? outputs.tokens.length;
    const joint = Math.exp(outputs.logprob.slice(start, end).reduce((a, b) => a + b, 0));
    const name = outputs.words ? `${outputs.words[g]}: ${units.labels[g]}` : units.labels[g];
    return chip(outputs.words?.[g] ?? units.labels[g], joint, { title: `${name} ${share(joint)}`, onclick: () => go(start) });
  });
  outputs.tokens.forEach((name, at) => {
    const p = Math.exp(outputs.logprob[at]);
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: { width: `${100 * p}%` } }));
    const others = outputs.best[at]
      .map((id, k) => [names[id], outputs.chances[at][k], id])
      .filter(([, , id]) => id !== name)
      .map(([text, chance]) => h("span", { class: "pair" }, token(text), " ", h("span", { class: "dim" }, share(chance))));
    body.append(
      h(
        "tr",
        { "data-at": at, class: at === state.output ? "lit" : "", tabindex: "0" },
        h("td", { class: "number" }, String(outputs.positions[at] + 1)),
        outputs.words ? h("td", {}, token(outputs.words[at])) : null,
        h("td", {}, token(names[name]), outputs.given[at] || outputs.next[at] ? h("span", { class: "tag" }, outputs.given[at] ? words.given : words.next) : null),
        h("td", { class: "probability" }, bar, h("span", { class: "number" }, share(p))),
        h("td", { class: "number", "data-label": words.rank }, String(outputs.rank[at])),
        h("td", { class: "number", "data-label": words.entropy }, number(outputs.entropy[at])),
        h("td", { class: "rest" }, h("div", { class: "others" }, others)),
      ),
    );
  });
  body.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || event.shiftKey) return;
    const row = step < 0 ? document.activeElement.previousElementSibling : document.activeElement.nextElementSibling;
    row?.focus();
    event.preventDefault();
  });
  const heads = [words.place, outputs.words ? words.word : null, label, words.probability, words.rank, words.entropy, words.alternatives];
  const loss = data.loss === null ? null : h("p", { class: "note" }, `${words.loss}: ${number(data.loss, 4)}`);
  return [
    h("div", { class: "chips" }, chips),
    state.unit === "pieces" || outputs.labels ? null : h("p", { class: "note" }, words.joint),
    loss,
    h("div", { class: "scroll" }, h("table", { class: "tokens" }, h("thead", {}, h("tr", {}, heads.filter(Boolean).map((t) => h("th", { scope: "col" }, t)))), body)),
  ];
}
