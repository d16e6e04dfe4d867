// Two scales of colour. Both are even in lightness, so that they survive a grey printer, and safe for colour-blind readers:
// magma (Smith and van der Walt) for what has a size, purple (below zero) to orange (above) for what has a sign, as in the
// figures. What may not be looked at (masked) is grey; no weight is grey.

const MAGMA = [
  [0, 0, 4], [12, 9, 38], [28, 16, 68], [47, 17, 99], [66, 15, 117], [84, 19, 125], [101, 26, 128], [119, 34, 130],
  [138, 41, 129], [158, 47, 127], [178, 54, 122], [197, 62, 115], [214, 73, 105], [230, 88, 97], [241, 110, 92],
  [248, 134, 97], [252, 159, 110], [254, 184, 130], [254, 209, 153], [253, 232, 178], [252, 253, 191],
];
const SIGNS = { light: [[255, 255, 255], [84, 39, 136], [179, 88, 6]], dark: [[24, 26, 32], [157, 112, 255], [253, 174, 77]] };
const MASKED = { light: [222, 222, 226], dark: [58, 60, 70] };
/** Colours of heads that are drawn together (Okabe and Ito 2008). */
export const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5cd0", "#8a8a00"];

export function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

function between(a, b, share) {
  return a.map((value, i) => Math.round(value + (b[i] - value) * share));
}

/** 0 is the paper, 1 the strongest: dark on white, light on black. */
export function sizeColour(share) {
  const dark = isDark();
  const at = Math.max(0, Math.min(1, share));
  if (!dark && at < 0.08) return between([255, 255, 255], MAGMA[19], at / 0.08);
  // On paper the strongest is a dark purple: a page of black cells would drown in toner.
  const place = dark ? at * 20 : 2 + ((1 - at) / 0.92) * 17;
  const low = Math.min(MAGMA.length - 2, Math.floor(place));
  return between(MAGMA[low], MAGMA[low + 1], place - low);
}

/** -1 purple, 0 the paper, 1 orange. */
export function signColour(share) {
  const [paper, purple, orange] = SIGNS[isDark() ? "dark" : "light"];
  return between(paper, share < 0 ? purple : orange, Math.sqrt(Math.min(1, Math.abs(share))));
}

export function maskedColour() {
  return MASKED[isDark() ? "dark" : "light"];
}

export function css(colour) {
  return `rgb(${colour[0]},${colour[1]},${colour[2]})`;
}

/** Black or white, whichever is read better on the colour. */
export function inkOn(colour) {
  const [r, g, b] = colour.map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

/**
 * From a value to a share of the scale. kind: `one` (0 to `most`), `root` (its square root, which shows what is faint), `row`
 * (to the largest of its row), `sign` (-most to most).
 */
export function shareOf(value, scale, rowMost) {
  if (scale.kind === "root") return Math.sqrt(Math.max(0, value) / scale.most);
  if (scale.kind === "row") return rowMost > 0 ? value / rowMost : 0;
  return value / (scale.most || 1);
}

export function rowMaxima(map) {
  const found = new Float32Array(map.rows);
  for (let i = 0; i < map.rows; i++) {
    for (let j = 0; j < map.columns; j++) found[i] = Math.max(found[i], map.values[i * map.columns + j]);
  }
  return found;
}

const tables = new Map();

/** The colours of 256 steps as the bytes of a picture, made once for each light. */
function colourTable(sign) {
  const name = `${isDark()} ${sign}`;
  if (!tables.has(name)) {
    const colours = Array.from({ length: 256 }, (_, i) => [...(sign ? signColour((i - 127) / 127) : sizeColour(i / 255)).slice(0, 3), 255]);
    tables.set(name, new Uint32Array(Uint8ClampedArray.from([...colours.flat(), ...maskedColour().slice(0, 3), 255]).buffer));
  }
  return tables.get(name);
}

/** A map as a picture, one pixel a cell. `masked`: a byte a cell, 1 where nobody may look. */
export function paint(canvas, map, scale, masked = null) {
  canvas.repaint = () => paint(canvas, map, scale, masked);
  canvas.width = Math.max(1, map.columns);
  canvas.height = Math.max(1, map.rows);
  if (!map.columns || !map.rows) return;
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.columns, map.rows);
  const sign = scale.kind === "sign";
  const table = colourTable(sign);
  const pixels = new Uint32Array(image.data.buffer);
  const tops = scale.kind === "row" ? rowMaxima(map) : null;
  for (let i = 0; i < map.values.length; i++) {
    const share = shareOf(map.values[i], scale, tops?.[Math.floor(i / map.columns)]);
    const at = Math.round(sign ? 127 * (share + 1) : 255 * share); // 127 is exactly zero
    pixels[i] = table[masked?.[i] ? 256 : Math.max(0, Math.min(sign ? 254 : 255, at))];
  }
  context.putImageData(image, 0, 0);
}

/** Numbers of either sign as a row of pixels. */
export function paintSigns(canvas, values, top) {
  paint(canvas, { values: Float32Array.from(values), rows: 1, columns: values.length }, { kind: "sign", most: top || 1 });
}
