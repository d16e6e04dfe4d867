// Attention rollout after each layer.

import { clearestCell, mapSentence, mergedMap, weightMap, weightScale } from "./attention.js";
import { matrix, unpack } from "./data.js";
import { choice, h, select } from "./elements.js";
import { View } from "./view.js";
import { filled } from "./words.js";

export class RolloutView extends View {
  static title = "rollout";

  static has(data) {
    return Boolean(data.rollout && Object.keys(data.rollout).length);
  }

  async draw() {
    const { words, data, state, panel } = this;
    const kinds = Object.keys(data.rollout);
    const kind = kinds.includes(state.kind) ? state.kind : kinds[kinds.length - 1];
    const array = await unpack(data.rollout[kind]);
    const layers = array.shape[0];
    const layer = Math.min(state.rolloutLayer ?? layers - 1, layers - 1);
    const { queries, keys, causal } = data.attentions[kind];
    const found = mergedMap(panel, matrix(array, layer), queries, keys, kind === "cross" ? null : { causal, window: null });
    const depths = Array.from({ length: layers }, (_, l) => [String(l), filled(words.afterLayer, l)]);
    const scales = [["one", words.scaleOne], ["root", words.scaleRoot], ["row", words.scaleRow]];
    return [
      h(
        "div",
        { class: "controls" },
        choice(words.kind, kinds.map((name) => [name, words[name]]), kind, (name) => panel.set({ kind: name })),
        select(words.depth, depths, layer, (value) => panel.set({ rolloutLayer: Number(value) })),
        choice(words.colour, scales, state.scale, (scale) => panel.set({ scale })),
      ),
      this.howTo(mapSentence(panel, found, words.rolloutRead)),
      this.keep(weightMap(panel, found, `${words.rollout}: ${words[`${kind}Long`]}`, { example: clearestCell(found), axes: [words.rolloutRows, words.rolloutColumns], scale: { ...weightScale(panel), name: words.rolloutShare } })),
    ];
  }
}
