// Reports whose arrays are bytes: small ones come with their report, a large one is asked for when a view draws it (serve/pages.py).

import { askBytes } from "./ask.js";
import { readArraysBy } from "./data.js";

const REPORTS = 8; // whose bytes are kept
const kept = new Map();
/** Hears `forgotten` when the server does not hold a report's arrays any more: it is asked for again. */
export const reports = new EventTarget();

/** The report of what is asked, as the views read it. */
export async function askReport(asked, signal) {
  const buffer = await askBytes("/look", { ...asked, data: true, binary: true }, signal);
  const length = new DataView(buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  if (data.refused) throw new Error(data.refused);
  kept.set(data.arrays, buffer.slice(4 + length));
  if (kept.size > REPORTS) kept.delete(kept.keys().next().value);
  return data;
}

readArraysBy(async ([report, at, length]) => {
  if (length !== undefined) return kept.get(report).slice(at, at + length);
  try {
    return await askBytes(`/open/arrays/${report}/${at}`);
  } catch (error) {
    if (error.status === 404) reports.dispatchEvent(new Event("forgotten"));
    throw error;
  }
});
