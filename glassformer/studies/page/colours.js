// Two scales of colour. Both are even in lightness, so that they survive a grey printer, and safe for colour-blind readers:
// magma (Smith and van der Walt) for what has a size, purple to orange (PuOr, Brewer) for what has a sign.

const MAGMA = [
  [0, 0, 4], [12, 9, 38], [28, 16, 68], [47, 17, 99], [66, 15, 117], [84, 19, 125], [101, 26, 128], [119, 34, 130],
  [138, 41, 129], [158, 47, 127], [178, 54, 122], [197, 62, 115], [214, 73, 105], [230, 88, 97], [241, 110, 92],
  [248, 134, 97], [252, 159, 110], [254, 184, 130], [254, 209, 153], [253, 232, 178], [252, 253, 191],
];
const PURPLE = [84, 39, 136];
const ORANGE = [179, 88, 6];

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
  const paper = isDark() ? [24, 26, 32] : [255, 255, 255];
  const strength = Math.sqrt(Math.min(1, Math.abs(share)));
  const [purple, orange] = isDark() ? [[178, 171, 210], [253, 184, 99]] : [PURPLE, ORANGE];
  return between(paper, share < 0 ? purple : orange, strength);
}

export function css(colour) {
  return `rgb(${colour[0]},${colour[1]},${colour[2]})`;
}

/** Black or white, whichever is read better on the colour. */
export function inkOn(colour) {
  const [r, g, b] = colour.map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

/** Numbers of either sign as a row of pixels. */
export function paintSigns(canvas, values, top) {
  canvas.repaint = () => paintSigns(canvas, values, top);
  canvas.width = values.length;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  const image = context.createImageData(values.length, 1);
  values.forEach((value, i) => image.data.set([...signColour(value / (top || 1)), 255], 4 * i));
  context.putImageData(image, 0, 0);
}

/** A map as a small picture, one pixel a cell. */
export function paint(canvas, map, most) {
  canvas.repaint = () => paint(canvas, map, most);
  canvas.width = map.columns;
  canvas.height = map.rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.columns, map.rows);
  const table = [];
  for (let i = 0; i < 256; i++) table.push(sizeColour(i / 255));
  for (let i = 0; i < map.values.length; i++) {
    const colour = table[Math.max(0, Math.min(255, Math.round((255 * map.values[i]) / (most || 1))))];
    image.data.set(colour, 4 * i);
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
