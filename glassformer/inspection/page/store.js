// The state of a page: one plain object, changed in one place, and told to whoever listens. Views keep nothing of their own
// that a reader would miss: what is held, chosen or zoomed is here, and the part of it that names a place is in the address.

import { LANGUAGES } from "./words.js";

export const UNITS = ["pieces", "words", "characters"];
export const SCALES = ["one", "root", "row"];
export const THEMES = ["light", "dark"];

export class Store {
  constructor(state) {
    this.state = state;
    this.listeners = new Set();
  }

  /** Calls `listener(changed)` with the names of what has changed; returns how to stop that. */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  set(changes) {
    const changed = new Set();
    for (const [name, value] of Object.entries(changes)) {
      if (JSON.stringify(this.state[name]) !== JSON.stringify(value)) changed.add(name);
      this.state[name] = value;
    }
    if (changed.size) for (const listener of [...this.listeners]) listener(changed);
    return changed;
  }
}

export function remembered(name, allowed) {
  try {
    const value = localStorage.getItem(`glassformer.${name}`);
    return allowed.includes(value) ? value : null;
  } catch {
    return null; // a browser may refuse storage to files
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`glassformer.${name}`, value);
  } catch {
    // nothing is lost but the habit
  }
}

/** A position of a text, as `source.3` or `read.0`; null for anything else. */
function positionFrom(text) {
  const found = /^(source|read)\.(\d{1,6})$/.exec(text ?? "");
  return found ? [found[1], Number(found[2])] : null;
}

/** An attention that is there, one of its layers, a head that is left. */
function boundHead(state, data) {
  const kinds = Object.keys(data.attentions);
  if (!kinds.includes(state.kind)) state.kind = kinds[kinds.length - 1];
  const layers = data.attentions[state.kind].layers;
  state.layer = Math.max(0, Math.min(state.layer, layers.length - 1));
  state.head = Math.max(0, Math.min(state.head, layers[state.layer].head_ids.length - 1));
}

/** The state as another report can show it. All but the head is that of the page, also when it changes later. */
export function fitted(state, data) {
  const found = Object.create(state);
  boundHead(found, data);
  return found;
}

/** Within what the data has: a layer that is there, a head that is left, a held position that exists. */
export function bounded(state, data) {
  boundHead(state, data);
  const exists = (position) => position && (data.sides[position[0]]?.pieces.length ?? 0) > position[1];
  if (state.held && !exists(state.held.query)) state.held = null;
  else if (state.held?.key && !exists(state.held.key)) state.held = { ...state.held, key: null };
  return state;
}

/** How a page begins: by the address, else by habit, else by the system. */
export function beginning(data, views) {
  const hash = new URLSearchParams(location.hash.slice(1));
  const kinds = Object.keys(data.attentions);
  const state = { view: views[0], kind: kinds[kinds.length - 1], layer: 0, head: 0, unit: "pieces", scale: "one", measure: "length", held: null, lines: [], moment: null, playing: false };
  const preferred = (navigator.language || "en").startsWith("zh") ? "zh" : "en";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  state.language = remembered("language", LANGUAGES) ?? preferred;
  state.theme = remembered("theme", THEMES) ?? system;
  const allowed = { view: views, kind: kinds, unit: UNITS, scale: SCALES, language: LANGUAGES, theme: THEMES };
  for (const [name, values] of Object.entries(allowed)) if (values.includes(hash.get(name))) state[name] = hash.get(name);
  for (const name of ["layer", "head"]) if (/^\d{1,4}$/.test(hash.get(name) ?? "")) state[name] = Number(hash.get(name));
  const query = positionFrom(hash.get("query"));
  if (query) state.held = { query, key: positionFrom(hash.get("key")) };
  return bounded(state, data);
}

/** The address of what is shown. */
export function addressOf(state) {
  const hash = new URLSearchParams({ view: state.view, kind: state.kind, layer: state.layer, head: state.head, unit: state.unit });
  if (state.scale !== "one") hash.set("scale", state.scale);
  if (state.held) hash.set("query", state.held.query.join("."));
  if (state.held?.key) hash.set("key", state.held.key.join("."));
  return `#${hash}`;
}
