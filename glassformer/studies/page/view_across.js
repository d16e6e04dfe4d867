// The same sentence at every kept checkpoint: a strip, an animation, the loss and the probabilities.

import { paint } from "./colours.js";
import { largest, matrix, unpack } from "./data.js";
import { choice, h, number, select, share, svg, token, widthOf } from "./elements.js";
import { heatmap } from "./heatmap.js";
import { filled } from "./words.js";
import { headName, mergedMap, readCell } from "./view_maps.js";

const TICK = 700; // milliseconds a checkpoint stays

/** A short number for an axis. */
function tick(value) {
  if (value > 0 && value < 0.01) return value.toExponential(1).replace("e-", "e−");
  return String(Number(value.toPrecision(3)));
}

function lossCurve(page, moment) {
  const { data, words } = page;
  const losses = data.across.map((m) => m.loss);
  const wide = Math.max(220, Math.min(480, (page.width() > 860 ? page.width() * 0.38 : page.width()) - 20));
  const high = 130;
  const [bottom, top] = [high - 26, 14];
  const steps = data.across.map((m) => m.step);
  const low = Math.min(...losses);
  const span = Math.max(...losses) - low || 1;
  const left = 14 + Math.max(34, ...[low, low + span].map((value) => widthOf(tick(value))));
  const x = (i) => left + ((wide - left - 14) * i) / Math.max(1, losses.length - 1);
  const y = (loss) => bottom - ((bottom - top) * (loss - low)) / span;
  const picture = svg("svg", { class: "curve", width: wide, height: high, role: "img", "aria-label": words.loss });
  picture.append(svg("line", { class: "axis", x1: left, x2: wide - 8, y1: bottom, y2: bottom }), svg("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom }));
  picture.append(svg("polyline", { points: losses.map((loss, i) => `${x(i)},${y(loss)}`).join(" ") }));
  losses.forEach((loss, i) => {
    const dot = svg("circle", { cx: x(i), cy: y(loss), r: i === moment ? 6 : 3.5, class: i === moment ? "now" : "" }, svg("title", {}, `${data.across[i].name}: ${number(loss, 4)}`));
    dot.addEventListener("click", () => page.set({ moment: i }));
    picture.append(dot);
  });
  for (const value of [low, low + span]) picture.append(svg("text", { x: left - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, tick(value)));
  const every = Math.max(1, Math.ceil(losses.length / Math.floor((wide - left) / 56)));
  data.across.forEach((m, i) => {
    const lastShown = i === losses.length - 1;
    if (i % every === 0 && (lastShown || losses.length - 1 - i >= every || every === 1)) {
      picture.append(svg("text", { x: x(i), y: bottom + 16, "text-anchor": lastShown ? "end" : "middle" }, m.name));
    } else if (lastShown) picture.append(svg("text", { x: x(i), y: bottom + 16, "text-anchor": "end" }, m.name));
  });
  return steps.length ? picture : null;
}

async function strip(page, kind, layer, head, moment, small) {
  const { data } = page;
  const row = h("div", { class: small ? "strip small" : "strip" });
  for (const [i, m] of data.across.entries()) {
    const map = matrix(await unpack(m.weights[kind][layer]), head);
    const canvas = h("canvas", { "aria-hidden": "true" });
    paint(canvas, map, page.state.acrossColour === "one" ? 1 : largest(map.values));
    row.append(
      h(
        "button",
        { type: "button", class: "frame", "aria-pressed": String(i === moment), title: m.name, "data-moment": i, onclick: () => page.set({ moment: i, kind, layer, head }) },
        canvas,
        small ? null : h("span", {}, m.name),
      ),
    );
  }
  return row;
}

export async function drawAcross(page) {
  const { words, data, state } = page;
  const last = data.across.length - 1;
  const moment = Math.min(state.moment ?? last, last);
  const attention = data.attentions[state.kind];
  const layer = attention.layers[state.layer];
  const kinds = Object.keys(data.attentions).map((kind) => [kind, words[kind]]);
  const play = h(
    "button",
    { type: "button", class: "play", "aria-pressed": String(Boolean(state.playing)), onclick: () => page.play(!page.state.playing) },
    state.playing ? `❚❚ ${words.pause}` : `▶ ${words.play}`,
  );
  const slider = h("input", { type: "range", min: 0, max: last, value: moment, "aria-label": words.step, oninput: (e) => page.set({ moment: Number(e.target.value), playing: false }) });
  const controls = h(
    "div",
    { class: "controls" },
    select(words.kind, kinds, state.kind, (kind) => page.set({ kind, layer: 0, head: 0 })),
    select(words.layer, attention.layers.map((_, l) => [l, String(l + 1)]), state.layer, (l) => page.set({ layer: Number(l) })),
    select(words.headNumber, layer.head_ids.map((n, at) => [at, String(n + 1)]), state.head, (at) => page.set({ head: Number(at) })),
    choice(words.colour, [["map", words.colourMap], ["one", words.colourOne]], state.acrossColour, (acrossColour) => page.set({ acrossColour })),
  );
  if (!layer.head_ids.length) return [controls, h("p", {}, words.noHeads)];
  const player = h("div", { class: "player" }, play, slider, h("b", {}, filled(words.stepN, data.across[moment].name)), h("span", { class: "note" }, `${words.loss} ${number(data.across[moment].loss, 4)}`));
  const map = matrix(await unpack(data.across[moment].weights[state.kind][state.layer]), state.head);
  const found = mergedMap(page, map, attention.queries, attention.keys);
  const large = heatmap({
    ...found,
    most: state.acrossColour === "one" ? 1 : largest(found.map.values),
    say: (i, j) => readCell(page, found, i, j),
    locked: page.lockFor(found),
    lock: (cell) => page.remember({ locked: cell }),
    name: headName(page, state.kind, state.layer, state.head),
    words,
    format: share,
  });
  const count = data.outputs.tokens.length;
  const values = new Float32Array(count * data.across.length);
  data.across.forEach((m, i) => m.logprob.forEach((value, at) => (values[i * count + at] = Math.exp(value))));
  const chances = { values, rows: data.across.length, columns: count };
  const tokens = data.outputs.tokens.map((id, at) => data.outputs.words?.[at] ?? data.names[id]);
  const say = (i, j) => h("p", {}, `${filled(words.stepN, data.across[i].name)}: `, token(tokens[j]), " ", h("b", {}, share(chances.values[i * count + j])), `, ${words.rank} ${data.across[i].rank[j]}`);
  const table = heatmap({ map: chances, rows: data.across.map((m) => m.name), columns: tokens, most: 1, say, locked: null, name: words.chances, words, format: share });
  const every = h("div", { class: "every" });
  for (const [l, one] of attention.layers.entries()) {
    for (const [at, number_] of one.head_ids.entries()) {
      every.append(h("span", { class: "layer" }, `${l + 1}.${number_ + 1}`), await strip(page, state.kind, l, at, moment, true));
    }
  }
  return [
    controls,
    h("h3", {}, `${words.strip}: ${headName(page, state.kind, state.layer, state.head)}`),
    h("div", { class: "scroll" }, await strip(page, state.kind, state.layer, state.head, moment, false)),
    player,
    h("div", { class: "twocolumns even" }, large, h("div", {}, h("h3", {}, words.loss), lossCurve(page, moment))),
    h("h3", {}, words.chances),
    table,
    h("h3", {}, `${words.everyHead}: ${words[`${state.kind}Long`]}`),
    h("div", { class: "scroll" }, every),
  ];
}

/** Calls `next` again and again until told to stop. */
export function ticking(next) {
  const timer = setInterval(next, TICK);
  return () => clearInterval(timer);
}
