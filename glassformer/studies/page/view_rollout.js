// Attention rollout after each layer.

import { largest, matrix, unpack } from "./data.js";
import { choice, h, select, share } from "./elements.js";
import { heatmap } from "./heatmap.js";
import { filled } from "./words.js";
import { mergedMap, readCell } from "./view_maps.js";

export async function drawRollout(page) {
  const { words, data, state } = page;
  const kinds = Object.keys(data.rollout);
  const kind = kinds.includes(state.rollout) ? state.rollout : kinds[kinds.length - 1];
  const array = await unpack(data.rollout[kind]);
  const layers = array.shape[0];
  const depth = Math.min(state.depth ?? layers - 1, layers - 1);
  const { queries, keys } = data.attentions[kind];
  const found = mergedMap(page, matrix(array, depth), queries, keys);
  const labels = { encoder: words.encoderLong, decoder: words.decoderLong, cross: words.crossLong };
  const pairs = { encoder: words.encoder, decoder: words.decoder, cross: `${words.source} → ${words.target}` };
  const depths = Array.from({ length: layers }, (_, l) => [String(l), filled(words.layerN, l + 1)]);
  return [
    h(
      "div",
      { class: "controls" },
      choice(words.kind, kinds.map((k) => [k, pairs[k]]), kind, (rollout) => page.set({ rollout, locked: null })),
      select(words.depth, depths, depth, (value) => page.set({ depth: Number(value) })),
    ),
    heatmap({
      ...found,
      most: largest(found.map.values),
      say: (i, j) => readCell(page, found, i, j),
      locked: page.lockFor(found),
      lock: (cell) => page.remember({ locked: cell }),
      name: `${words.rollout}: ${labels[kind]}`,
      words,
      format: share,
    }),
  ];
}
