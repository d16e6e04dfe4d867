// A translation token by token: how much the model doubted each by its mark, and the source tokens it looked at.

import { h, isControl, share } from "./elements.js";
import { filled } from "./words.js";

/** The tokens of one side as elements; control tokens are not text. */
function side(tokens, make) {
  return tokens.map((text, at) => (isControl(text) ? null : make(text, at)));
}

export class AnswerView {
  constructor(words) {
    this.words = words;
    this.source = h("p", { class: "said tokens", "data-side": "source" });
    this.target = h("p", { class: "said tokens", "data-side": "target", tabindex: "0", role: "group", "aria-label": words.answer });
    this.readout = h("p", { class: "dim readout", "aria-live": "polite" });
    this.at = -1;
    this.target.addEventListener("keydown", (event) => this.key(event));
    this.target.addEventListener("pointerleave", () => this.light(-1));
    this.target.addEventListener("blur", () => this.light(-1));
  }

  /** Text alone, as it comes. */
  write(text) {
    this.chips = [];
    this.source.replaceChildren();
    this.target.replaceChildren(text);
    this.readout.textContent = "";
  }

  /** The answer with its scores and its alignment. */
  show(found) {
    const scores = found.scores?.[0]?.parts ?? [];
    this.chips = [];
    this.links = [];
    this.source.replaceChildren();
    this.target.replaceChildren(...(found.alignment?.parts.length ? [] : [found.translatedText])); // a correction has no parts
    (found.alignment?.parts ?? []).forEach((part, number) => {
      const spaced = ![...part.tokens, ...part.sourceTokens].some((text) => /\s/.test(text)) && part.tokens.some((text) => text.length > 1);
      const sources = side(part.sourceTokens, (text) => h("span", { class: "piece" }, text));
      const chances = scores[number]?.logprobs ?? [];
      const chips = side(part.tokens, (text, at) => {
        const chance = Math.exp(chances[at] ?? 0);
        const chip = h("span", { class: "piece sure", style: { "--doubt": (1 - chance).toFixed(3) }, "data-chance": share(chance) }, text);
        const place = this.chips.length;
        chip.addEventListener("pointerenter", () => this.light(place));
        this.chips.push(chip);
        this.links.push({ weights: part.weights[at] ?? [], sources, chance, text });
        return chip;
      });
      for (const [into, made] of [[this.source, sources], [this.target, chips]]) {
        made.filter(Boolean).forEach((one, n) => into.append(...(spaced && (n || into.childNodes.length) ? [" ", one] : [one])));
      }
    });
  }

  /** Light a token and, the stronger the more it looked at them, the source's. */
  light(place) {
    this.at = place;
    this.source.querySelectorAll(".piece").forEach((one) => {
      one.classList.remove("lit");
    });
    this.chips?.forEach((chip, n) => chip.classList.toggle("held", n === place));
    const link = this.links?.[place];
    this.readout.textContent = link ? `${link.text.trim()}: ${filled(this.words.sure, `${Math.round(link.chance * 100)}%`)}` : "";
    if (!link) return;
    // The end of the source, where a head looks that has nothing to look for, is no word.
    const most = Math.max(...link.sources.map((one, n) => (one ? link.weights[n] ?? 0 : 0)), 1e-9);
    link.sources.forEach((one, n) => {
      const weight = (link.weights[n] ?? 0) / most;
      if (!one || weight < 0.25) return;
      one.classList.add("lit");
      one.style.setProperty("--share", weight.toFixed(3));
    });
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (!(event.key in steps) || !this.chips?.length) return;
    event.preventDefault();
    this.light((this.at + steps[event.key] + this.chips.length) % this.chips.length);
  }
}
