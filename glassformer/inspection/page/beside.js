// Two reports side by side: which of their tokens belong together, and where they differ.

/** The tokens that two texts have in common, in order, as pairs of positions: a longest common subsequence. */
export function matched(ours, theirs) {
  const wide = theirs.length + 1;
  const length = new Uint16Array((ours.length + 1) * wide);
  for (let i = ours.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) {
      length[i * wide + j] = ours[i] === theirs[j] ? length[(i + 1) * wide + j + 1] + 1 : Math.max(length[(i + 1) * wide + j], length[i * wide + j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < ours.length && j < theirs.length; ) {
    if (ours[i] === theirs[j]) pairs.push([i++, j++]);
    else if (length[(i + 1) * wide + j] >= length[i * wide + j + 1]) i++;
    else j++;
  }
  return pairs;
}

/** The position in `theirs` that stands for each of ours: the same one where both are equally long, else that of the same
 * token; -1 where there is none. */
export function partners(ours, theirs) {
  if (ours.length === theirs.length) return ours.map((_, i) => i);
  const found = ours.map(() => -1);
  for (const [i, j] of matched(ours, theirs)) found[i] = j;
  return found;
}

/** The part of a map between positions that both reports have, less the same of the other; null where there is none. Each is
 * {map, rows, columns} as the views of attention have them. */
export function difference(ours, theirs) {
  const kept = (labels, others) => partners(labels, others).flatMap((other, own) => (other < 0 ? [] : [[own, other]]));
  const rows = kept(ours.rows, theirs.rows);
  const columns = kept(ours.columns, theirs.columns);
  if (!rows.length || !columns.length) return null;
  const values = new Float32Array(rows.length * columns.length);
  const masked = ours.masked ? new Uint8Array(values.length) : null;
  rows.forEach(([i, k], r) => {
    columns.forEach(([j, l], c) => {
      values[r * columns.length + c] = ours.map.values[i * ours.map.columns + j] - theirs.map.values[k * theirs.map.columns + l];
      if (masked) masked[r * columns.length + c] = ours.masked[i * ours.map.columns + j];
    });
  });
  const own = (pairs) => pairs.map(([at]) => at);
  return { map: { values, rows: rows.length, columns: columns.length }, masked, rows: own(rows), columns: own(columns), whole: rows.length === ours.rows.length && columns.length === ours.columns.length };
}

/** How far apart two heads look: half the summed difference of a row's weights, the mean over rows; 0 is alike, 1 nowhere alike. */
export function distance(found) {
  const { values, rows } = found.map;
  return values.reduce((sum, value) => sum + Math.abs(value), 0) / (2 * rows);
}
