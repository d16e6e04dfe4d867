// A held token is a position of a text, whatever a view calls it: `read` is what the stack that answers reads, `source` what
// an encoder reads beside it. What is predicted at a position ("written") stands at that position of `read`. So one held
// cell is found again in every map, table and line that has the same positions.

import { unitsOf } from "./data.js";

/** The position of piece number `at` of an axis. */
export function positionOf(data, axis, at) {
  return axis === "written" ? ["read", data.outputs.positions[at]] : [axis, at];
}

/** The piece of an axis that stands at a position; -1 where there is none. */
export function pieceAt(data, axis, position) {
  if (!position) return -1;
  const [side, at] = position;
  if (axis === "written") return side === "read" ? data.outputs.positions.indexOf(at) : -1;
  return side === axis && at < data.sides[axis].pieces.length ? at : -1;
}

function unitOfPiece(units, piece) {
  if (piece < 0) return -1;
  let found = -1;
  units.starts.forEach((start, number) => (start <= piece ? (found = number) : null));
  return found;
}

/** Row and column of what is held in a map between two axes, in the units shown; null where it is not in this map. */
export function heldCell(panel, queries, keys) {
  const { data, state } = panel;
  if (!state.held) return null;
  const row = unitOfPiece(unitsOf(data.sides[queries], state.unit), pieceAt(data, queries, state.held.query));
  if (row < 0) return null;
  const column = unitOfPiece(unitsOf(data.sides[keys], state.unit), pieceAt(data, keys, state.held.key));
  return [row, column < 0 ? null : column];
}

/** What is to be held for a cell of such a map. */
export function holdCell(panel, queries, keys, cell) {
  if (!cell) return panel.hold(null);
  const { data, state } = panel;
  const piece = (axis, unit) => unitsOf(data.sides[axis], state.unit).starts[unit];
  const key = cell[1] === null ? null : positionOf(data, keys, piece(keys, cell[1]));
  return panel.hold({ query: positionOf(data, queries, piece(queries, cell[0])), key });
}

/** The number of the output that is held; -1 where none is. */
export function heldOutput(panel) {
  const { data, state } = panel;
  return state.held && data.outputs ? pieceAt(data, "written", state.held.query) : -1;
}
