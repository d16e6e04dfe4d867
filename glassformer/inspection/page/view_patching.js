// Activation patching: which layer and position carries the difference between two texts.

import { matrix, unpack } from "./data.js";
import { h, number, token } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { View } from "./view.js";
import { filled } from "./words.js";

export class PatchingView extends View {
  static title = "patching";

  static has(data) {
    return Boolean(data.patching);
  }

  layerName(row) {
    return row === 0 ? this.words.embeddings : filled(this.words.afterLayer, row - 1);
  }

  async draw() {
    const { words, data, panel, state } = this;
    const { texts, answers, panels } = data.patching;
    const out = [h("p", {}, h("b", {}, texts[0]), " → ", token(answers[0]), ` · ${words.patchedWith} `, h("b", {}, texts[1]), " → ", token(answers[1]))];
    let best = null;
    for (const one of panels) {
      const map = matrix(await unpack(one.effects), 0);
      const rows = Array.from({ length: map.rows }, (_, row) => this.layerName(row));
      for (let i = 1; i < map.rows; i++) {
        for (let j = 0; j < map.columns; j++) {
          const effect = map.values[i * map.columns + j];
          if (!best || effect > best.effect) best = { effect, layer: rows[i], token: one.tokens[j] };
        }
      }
      const heldColumn = () => (state.held?.query[0] === one.stack ? state.held.query[1] : state.held?.key?.[0] === one.stack ? state.held.key[1] : -1);
      const drawn = new Heatmap({
        map,
        rows,
        plainRows: true,
        columns: one.tokens,
        axes: [words.layer, words[`side_${one.stack}`]],
        scale: { kind: "sign", most: 1, name: words.effect },
        masked: null,
        say: (i, j) => h("p", {}, token(one.tokens[j]), `, ${rows[i]}: `, h("b", {}, number(map.values[i * map.columns + j], 3))),
        held: () => (heldColumn() >= 0 && heldColumn() < map.columns ? [this.heldRow ?? map.rows - 1, heldColumn()] : null),
        setHold: (cell) => {
          this.heldRow = cell?.[0];
          if (cell && one === panels[0] && panel.page.more.forces) panel.page.dispatch({ type: "carry", layer: cell[0], position: cell[1] });
          panel.hold(cell ? { query: [one.stack, cell[1]], key: null } : null);
        },
        name: `${words.patching}: ${words[`side_${one.stack}`]}`,
        words,
        format: (value) => number(value, 1),
      });
      out.push(h("h3", {}, words[`side_${one.stack}`]), this.keep(drawn));
    }
    const sentence = best ? filled(words.patchingRead, { layer: best.layer, token: best.token, effect: number(best.effect), first: answers[0], second: answers[1] }) : null;
    return [this.howTo(sentence), ...out];
  }
}
