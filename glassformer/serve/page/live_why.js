// Why this token: one sentence from three witnesses, which may contradict each other. Attribution says which part pushed it, attention
// where that part looked, and a cut what the token loses without it.

import { ask } from "./ask.js";
import { matrix, strongest, unpack } from "./data.js";
import { h, number, share, token, visible } from "./elements.js";
import { heldOutput, positionOf } from "./held.js";
import { WHY_ANSWER_EN } from "./live_why_words_en.js";
import { WHY_ANSWER_ZH } from "./live_why_words_zh.js";
import { filled } from "./words.js";

const TRIED = 8; // parts that are cut one by one

/** A template whose gaps are filled with texts, or with elements, each made anew. */
function linked(template, values) {
  return template.split(/\{(\w+)\}/).map((text, i) => (i % 2 ? (typeof values[text] === "function" ? values[text]() : String(values[text])) : text));
}

/** A head's attention, layer and place, from its name. */
function headOf(data, part) {
  const [path, id] = part.split(":");
  const [stack, layer, kind] = path.split(".");
  const name = kind === "cross" ? "cross" : stack;
  return { kind: name, layer: Number(layer), head: data.attentions[name].layers[Number(layer)].head_ids.indexOf(Number(id)) };
}

export class Why {
  constructor(live, root) {
    Object.assign(this, { live, root, key: null });
  }

  get words() {
    return { en: WHY_ANSWER_EN, zh: WHY_ANSWER_ZH }[this.live.language];
  }

  /** The tokens of the answer, and the sentence of the one that is held. */
  draw() {
    const { live, words } = this;
    const { data, page } = live;
    if (!page || !data?.outputs) return;
    const at = heldOutput(page.panels[0]);
    const chips = data.outputs.tokens.flatMap((id, place) => (["written", "forced", "predicted"].includes(data.outputs.status[place]) ? h("button", { type: "button", class: "chip", "data-output": place, "aria-pressed": String(place === at), title: words.why, onclick: () => page.dispatch({ type: "hold", held: { query: positionOf(data, "written", place), key: null } }) }, token(data.names[id])) : []));
    this.sentence ??= h("p", { id: "because", role: "status" });
    this.root.replaceChildren(h("div", { class: "line" }, h("span", { class: "caption" }, words.why), chips), this.sentence);
    if (!chips.length) return void this.root.replaceChildren();
    if (at < 0) return void this.sentence.replaceChildren(h("span", { class: "dim" }, words.hint));
    this.answer(at);
  }

  async answer(at) {
    const { live, words } = this;
    const { data } = live;
    if (!data.attribution) return; // it is on its way
    const key = JSON.stringify([data.title, data.text, data.step, data.cut?.parts, data.answer, at, live.language]);
    if (key === this.key) return;
    this.key = key;
    this.under?.abort();
    const own = (this.under = new AbortController());
    this.sentence.replaceChildren(h("span", { class: "dim" }, words.asking));
    try {
      const pushes = await this.pushes(data, at);
      const asked = { model: live.model, text: data.text, step: data.step ?? null, cut: data.cut?.parts ?? [], output: at, parts: pushes.slice(0, TRIED).map(([part]) => part) };
      const [whole, ...cut] = await ask("/open/why", asked, own.signal);
      const told = await this.told(data, at, pushes, whole, cut);
      if (!own.signal.aborted) this.sentence.replaceChildren(...told);
    } catch (error) {
      if (own.signal.aborted) return;
      this.key = null;
      this.sentence.replaceChildren(h("span", { class: "failed" }, error.message));
    }
  }

  /** Heads and MLPs by how much they push the token against the best other, the strongest first. */
  async pushes(data, at) {
    const { parts, terms } = data.attribution;
    const array = await unpack(terms);
    const [, K, P] = array.shape;
    const term = (k) => array.values.subarray((at * K + k) * P, (at * K + k + 1) * P);
    const found = parts.map((part, i) => [part, term(0)[i] - term(Math.min(1, K - 1))[i]]);
    return found.filter(([part]) => part.includes(".")).sort((a, b) => b[1] - a[1]);
  }

  /** The token that a head looks at most from where the answer's token is chosen, and the one of the same text that gradients name. */
  async looked(data, at, part) {
    const place = headOf(data, part);
    const attention = data.attentions[place.kind];
    const map = matrix(await unpack(attention.layers[place.layer].weights), place.head);
    const row = attention.queries === "written" ? at : data.outputs.positions[at];
    const [[weight, key]] = strongest(map, row, 1);
    const gradients = data.saliency?.integrated ?? data.saliency?.gradient ?? null;
    let named = null;
    if (gradients) {
      const values = matrix(await unpack(gradients[attention.keys]), 0);
      const reach = attention.causal ? row + 1 : values.columns;
      const own = values.values.subarray(at * values.columns, at * values.columns + reach);
      named = own.reduce((best, value, i) => (value > own[best] ? i : best), 0);
    }
    return { ...place, axis: attention.keys, query: positionOf(data, attention.queries, row), key, weight, named };
  }

  async told(data, at, pushes, whole, cut) {
    const { live, words } = this;
    const { attribution, names } = data;
    const [part, push] = pushes[0];
    const head = part.includes(":") ? pushes[0] : pushes.find(([name]) => name.includes(":"));
    if (!head) return [];
    const seen = await this.looked(data, at, head[0]);
    const link = (text, title, act) => h("button", { type: "button", class: "link", title, onclick: act }, text);
    const toHead = (name) => () => {
      const { kind, layer, head: place } = headOf(data, name);
      live.page.set({ view: "maps", kind, layer, head: place, held: { query: seen.query, key: name === head[0] ? [seen.axis, seen.key] : null } });
    };
    const partLink = (name) => (name.includes(":") ? link(name, filled(words.goHead, name), toHead(name)) : link(name, filled(words.goPart, name), () => live.page.set({ view: "attribution" })));
    const tokenLink = (place) => link(`“${visible(data.sides[seen.axis].pieces[place])}”`, words.goToken, () => live.page.dispatch({ type: "hold", held: { query: seen.query, key: [seen.axis, place] } }));
    const mine = cut.find((one) => one.part === part);
    const worst = cut.reduce((a, b) => (b.logprob < a.logprob ? b : a));
    const quoted = (id) => `“${visible(names[id])}”`;
    const facts = {
      token: quoted(attribution.tokens[at][0]),
      other: quoted(attribution.tokens[at][1] ?? attribution.tokens[at][0]),
      push: number(push),
      difference: number(attribution.logits[at][0] - (attribution.logits[at][1] ?? 0)),
      headPush: number(head[1]),
      weight: share(seen.weight),
      before: number(whole.logprob),
      after: number(mine.logprob),
      lost: whole.first && !mine.first ? words.lost : "",
      count: cut.length,
      worstAfter: number(worst.logprob),
    };
    const links = { part: () => partLink(part), head: () => partLink(head[0]), key: () => tokenLink(seen.key), worst: () => partLink(worst.part), named: () => tokenLink(seen.named) };
    const against = [];
    if (mine.logprob >= whole.logprob) against.push("harmless");
    else if (worst.part !== part) against.push("otherCut");
    if (seen.named !== null && seen.named !== seen.key) against.push("otherKey");
    const verdict = against.length ? against : [seen.named === null ? "agreeCut" : "agree"];
    const scissors = h("button", { type: "button", class: "chip", id: "cut-why", onclick: () => live.cut([...new Set([...live.cuts, part])]) }, `✂ ${filled(words.cutIt, part)}`);
    return [
      h("span", {}, linked(words[part === head[0] ? "becauseHead" : "becausePart"], { ...facts, ...links })),
      " ",
      h("b", { id: "verdict", "data-verdict": verdict.join(" ") }, verdict.flatMap((name) => [...linked(words[name], { ...facts, ...links }), " "])),
      scissors,
    ];
  }
}
