// A small line chart over steps: several runs, raw and smoothed, read off under the pointer.

import { h, svg } from "./elements.js";

const [WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM] = [360, 170, 46, 8, 8, 20];

/** A short number for an axis. */
export function tick(value) {
  if (value === 0) return "0";
  if (Math.abs(value) < 0.001) return value.toExponential(1).replace("e-", "e−");
  return Math.abs(value) >= 10000 ? `${Number((value / 1000).toPrecision(3))}k` : String(Number(value.toPrecision(3)));
}

/** An exponential moving average that is not drawn to its first value: `keep` of what was, divided by the weights so far. */
export function smoothed(points, keep) {
  let [sum, weight] = [0, 0];
  return points.map(([step, value]) => {
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return [step, sum / weight];
  });
}

/** At most `most` points, the first and the last among them. */
function thinned(points, most = 600) {
  const stride = Math.max(1, (points.length - 1) / (most - 1));
  return points.length <= most ? points : Array.from({ length: most }, (_, i) => points[Math.round(i * stride)]);
}

/** series: [{name, colour, points: [[step, value]], kind: "raw" | "line" | "dots"}]. `now`: a step that is marked. */
export function chart({ title, about, series, now, stepWord }) {
  const finite = series.map((one) => ({ ...one, points: one.points.filter(([, value]) => Number.isFinite(value)) })).filter((one) => one.points.length);
  if (!finite.length) return null;
  const all = finite.flatMap((one) => one.points);
  const most = all.reduce((best, [step]) => Math.max(best, step), 1);
  let [low, high] = all.reduce(([a, b], [, value]) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  const logarithmic = low > 0 && high / low > 20;
  if (!logarithmic && low > 0 && low < 0.5 * high) low = 0;
  if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const scale = logarithmic ? Math.log : (value) => value;
  const x = (step) => LEFT + ((WIDE - LEFT - RIGHT) * step) / most;
  const y = (value) => HIGH - BOTTOM - ((HIGH - TOP - BOTTOM) * (scale(value) - scale(low))) / (scale(high) - scale(low));
  const at = (points) => thinned(points).map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const pointer = svg("line", { class: "axis", y1: TOP, y2: HIGH - BOTTOM, visibility: "hidden" });
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": title },
    svg("line", { class: "axis", x1: LEFT, x2: WIDE - RIGHT, y1: HIGH - BOTTOM, y2: HIGH - BOTTOM }),
    svg("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: HIGH - BOTTOM }),
    [low, logarithmic ? Math.sqrt(low * high) : (low + high) / 2, high].map((value) => svg("text", { x: LEFT - 5, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, tick(value))),
    [0, most].map((step) => svg("text", { x: x(step), y: HIGH - 5, "text-anchor": step ? "end" : "start" }, tick(step))),
    svg("text", { x: (LEFT + WIDE) / 2, y: HIGH - 5, "text-anchor": "middle" }, stepWord),
    now !== null && now <= most ? svg("line", { class: "now", x1: x(now), x2: x(now), y1: TOP, y2: HIGH - BOTTOM }) : null,
    finite.flatMap((one) => one.kind === "dots"
      ? one.points.map(([step, value]) => svg("circle", { cx: x(step), cy: y(value), r: 3.5, fill: one.colour }))
      : [svg("polyline", { class: one.kind, points: at(one.points), stroke: one.colour })]),
    pointer,
  );
  const readout = h("output", { class: "dim" }, about ?? "");
  const nearest = (points, step) => points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best));
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const step = (most * ((WIDE * (event.clientX - box.left)) / box.width - LEFT)) / (WIDE - LEFT - RIGHT);
    const found = finite.map((one) => [one, nearest(one.points, step)]);
    const [first] = nearest(found.map(([, point]) => point), step);
    pointer.setAttribute("x1", x(first));
    pointer.setAttribute("x2", x(first));
    pointer.setAttribute("visibility", "visible");
    readout.textContent = `${stepWord} ${first}: ${found.filter(([one, point]) => one.kind !== "raw" && point[0] === first).map(([one, point]) => `${one.name} ${tick(point[1])}`).join(", ") || "–"}`;
  });
  picture.addEventListener("pointerleave", () => {
    pointer.setAttribute("visibility", "hidden");
    readout.textContent = about ?? "";
  });
  return h("figure", { "data-chart": title }, h("figcaption", {}, h("b", {}, title), " ", readout), picture);
}
