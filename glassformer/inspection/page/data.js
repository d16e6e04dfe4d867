// The data object of a report, and arithmetic on it. Knows nothing of the screen.
//
// An array travels as {dtype, shape, data, scale}: zlib-compressed little-endian numbers in base64, or, in a page that is served,
// whatever that page can read. `scale`, where there is one, holds a float32 for each row (the last dimension), by which the integers
// of that row are multiplied.

const TYPES = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, float16: Uint16Array, float32: Float32Array };

function bytesOfBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

let elsewhere = null;

/** Of a page that is served: `read(place)` gives the bytes of an array that is not in its report. */
export function readArraysBy(read) {
  elsewhere = read;
}

async function inflate(text) {
  if (typeof text !== "string") return await elsewhere(text);
  const stream = new Blob([bytesOfBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return await new Response(stream).arrayBuffer();
}

const halves = new Float32Array(65536);
for (let bits = 0; bits < 65536; bits++) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
  halves[bits] = bits & 32768 ? -size : size;
}

const unpacked = new WeakMap();

/** The numbers of a packed array as {values: Float32Array, shape}; unpacked once. */
export async function unpack(packed) {
  if (unpacked.has(packed)) return unpacked.get(packed);
  const raw = new TYPES[packed.dtype](await inflate(packed.data));
  const values = new Float32Array(raw.length);
  if (packed.dtype === "float16") {
    for (let i = 0; i < raw.length; i++) values[i] = halves[raw[i]];
  } else if (packed.scale) {
    const scale = new Float32Array(await inflate(packed.scale));
    const width = packed.shape[packed.shape.length - 1];
    for (let row = 0; row < scale.length; row++) {
      for (let i = row * width; i < (row + 1) * width; i++) values[i] = raw[i] * scale[row];
    }
  } else {
    const unit = packed.unit ?? 1;
    for (let i = 0; i < raw.length; i++) values[i] = raw[i] * unit;
  }
  const found = { values, shape: packed.shape };
  unpacked.set(packed, found);
  return found;
}

/** Matrix number `index` of an array of matrices, as {values, rows, columns}. */
export function matrix(array, index) {
  const [rows, columns] = array.shape.slice(-2);
  return { values: array.values.subarray(index * rows * columns, (index + 1) * rows * columns), rows, columns };
}

/** How tokens of a side are read: {labels, starts}, one entry a unit. */
export function unitsOf(side, unit) {
  if (unit === "pieces") return { labels: side.pieces, starts: side.pieces.map((_, i) => i) };
  return side[unit];
}

/** For each token the number of its unit. */
function groupsOf(units, count) {
  const groups = new Int32Array(count);
  units.starts.forEach((start, number) => groups.fill(number, start, units.starts[number + 1] ?? count));
  return groups;
}

/** Weights between units: summed over the keys of a unit, averaged over its queries. */
export function merge(map, queryUnits, keyUnits) {
  const queries = groupsOf(queryUnits, map.rows);
  const keys = groupsOf(keyUnits, map.columns);
  const rows = queryUnits.starts.length;
  const columns = keyUnits.starts.length;
  if (rows === map.rows && columns === map.columns) return map;
  const values = new Float32Array(rows * columns);
  const size = new Float32Array(rows);
  for (let i = 0; i < map.rows; i++) {
    size[queries[i]] += 1;
    for (let j = 0; j < map.columns; j++) values[queries[i] * columns + keys[j]] += map.values[i * map.columns + j];
  }
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) values[i * columns + j] /= size[i];
  return { values, rows, columns };
}

export function largest(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  return most;
}

/** The positions of the `count` largest of row i, largest first. */
export function strongest(map, i, count) {
  const row = Array.from(map.values.subarray(i * map.columns, (i + 1) * map.columns), (w, j) => [w, j]);
  return row.sort((a, b) => b[0] - a[0]).slice(0, count);
}

/** One query of one head, from the numbers to the weights. `head`: {q, k, v, allowed, scaled, bias}. */
export function attend(head, query) {
  const { q, k, v } = head;
  const size = q.columns;
  const products = [];
  const scores = [];
  for (let j = 0; j < k.rows; j++) {
    let sum = 0;
    for (let d = 0; d < size; d++) sum += q.values[query * size + d] * k.values[j * size + d];
    products.push(sum);
    const bias = head.bias ? head.bias(query, j) : 0;
    scores.push((head.scaled ? sum / Math.sqrt(size) : sum) + bias);
  }
  const allowed = scores.map((_, j) => head.allowed(query, j));
  const top = Math.max(...scores.filter((_, j) => allowed[j]));
  const powers = scores.map((score, j) => (allowed[j] ? Math.exp(score - top) : 0));
  const total = powers.reduce((a, b) => a + b, 0);
  const weights = powers.map((power) => power / total);
  const result = new Float32Array(v.columns);
  weights.forEach((weight, j) => {
    for (let d = 0; d < v.columns; d++) result[d] += weight * v.values[j * v.columns + d];
  });
  return { products, scores, allowed, powers, total, weights, result };
}
