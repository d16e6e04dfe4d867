// The next token, to be chosen: the most probable ones as bars, which temperature, top-k and top-p move while they are dragged. The
// log-probabilities come once for each place; a click forces a token, and the model goes on from there.

import { unpack } from "./data.js";
import { h, number, share, token } from "./elements.js";
import { View } from "./view.js";
import { filled } from "./words.js";

const ROUNDING = 1e-6; // of `top_p` in decode/filters.py
const MOST_K = 50;

/** What is sampled from, of log-probabilities in falling order: temperature, then top-k, then top-p, as `warp` (decode/filters.py) has
 * it; tokens as probable as the last that stays stay, too. {probabilities, kept: how many are left}. */
export function warped(logprobs, { temperature, topK, topP }) {
  const count = logprobs.length;
  const after = (at) => {
    let end = at;
    while (end < count && logprobs[end] >= logprobs[at - 1]) end++;
    return end;
  };
  if (!(temperature > 0)) return { probabilities: Float64Array.from(logprobs, (_, i) => (i === 0 ? 1 : 0)), kept: 1 };
  const weights = Float64Array.from(logprobs, (value) => Math.exp((value - logprobs[0]) / temperature));
  const sum = (end) => weights.subarray(0, end).reduce((a, b) => a + b, 0);
  let kept = topK ? after(Math.min(topK, count)) : count;
  if (topP < 1) {
    const total = sum(kept);
    let [reached, n] = [0, 0];
    while (n < kept && reached / total < topP - ROUNDING) reached += weights[n++];
    kept = Math.min(kept, after(Math.max(1, n)));
  }
  const total = sum(kept);
  return { probabilities: weights.map((weight, i) => (i < kept ? weight / total : 0)), kept };
}

/** The view for a page whose `live` knows what is forced: ids of the answer, and how to ask for the next token. */
export function chooseView(live) {
  return class ChooseView extends View {
    static title = "choose";

    static has(data) {
      return data.answer !== null && !data.forced;
    }

    slider(name, label, value, range, shown) {
      const output = h("output", { class: "number" }, shown(value));
      const input = h("input", { type: "range", id: `choose-${name}`, "aria-label": label, ...range, oninput: () => {
        live.sampling[name] = Number(input.value);
        output.textContent = shown(Number(input.value));
        this.move();
      } });
      input.value = String(value);
      return h("label", { class: "choice" }, h("span", { class: "caption" }, label), input, output);
    }

    /** The bars as the sliders have them; nothing is asked for. */
    move() {
      const { words } = this;
      const { probabilities, kept } = warped(this.logprobs, live.samplingNow(this.logprobs.length));
      this.bars.forEach((bar, i) => {
        bar.row.classList.toggle("out", i >= kept);
        bar.fill.style.width = `${100 * probabilities[i]}%`;
        bar.share.textContent = i < kept ? share(probabilities[i]) : words.chooseOut;
      });
      this.left.textContent = filled(words.chooseLeft, { kept, count: this.logprobs.length });
    }

    bar(found, i, place) {
      const { words } = this;
      const own = Math.exp(this.logprobs[i]);
      const fill = h("span", { class: "now" });
      const told = h("span", { class: "number" });
      const said = live.answerIds()[place] === found.ids[i];
      const mark = h("small", { class: "dim" }, [i === 0 ? words.chooseGreedy : "", said ? words.chooseSaid : ""].filter(Boolean).join(" · "));
      const row = h(
        "button",
        { type: "button", class: `pick${said ? " said" : ""}`, "data-id": found.ids[i], title: filled(words.choosePick, { token: found.pieces[i], p: share(own), log: number(this.logprobs[i], 3) }), onclick: () => live.force([...live.prefixAt(place), found.ids[i]]) },
        token(found.pieces[i]), h("span", { class: "track" }, fill, h("i", { style: { left: `${100 * own}%` } })), told, mark,
      );
      return { row, fill, share: told };
    }

    async draw() {
      const { words } = this;
      const place = live.placeNow();
      const found = await live.next(place);
      this.logprobs = (await unpack(found.logprobs)).values;
      this.bars = found.ids.map((_, i) => this.bar(found, i, place));
      this.left = h("span", { class: "dim", id: "choose-left" });
      const { sampling } = live;
      const at = (name, text, id) => h("button", { type: "button", class: "chip", id, disabled: !name, onclick: () => live.go(place + name) }, text);
      const length = live.answerIds().length;
      const before = h("div", { class: "line before" },
        place > 0 ? at(-1, "‹", "choose-before") : "",
        h("span", { class: "caption" }, filled(words.choosePlace, place + 1)),
        found.prefix.map((piece, i) => token(piece, { class: i < live.forced.length ? "token pinned" : "token" })),
        h("b", {}, "▁"),
        place + 1 < length ? at(1, "›", "choose-after") : "",
      );
      const sliders = h("div", { class: "controls" },
        this.slider("temperature", words.temperature, sampling.temperature, { min: "0", max: "2", step: "0.05" }, (value) => number(value)),
        this.slider("topK", "top-k", sampling.topK, { min: "1", max: String(MOST_K + 1), step: "1" }, (value) => (value > MOST_K ? words.chooseAll : String(value))),
        this.slider("topP", "top-p", sampling.topP, { min: "0.05", max: "1", step: "0.01" }, (value) => number(value)),
        this.left,
      );
      this.move();
      return [before, sliders, h("div", { class: "picks" }, this.bars.map((bar) => bar.row))];
    }
  };
}

/** The sliders as numbers that `warped` takes. */
export function samplingOf({ temperature, topK, topP }, count) {
  return { temperature, topK: topK > MOST_K ? count : topK, topP };
}
