// One report on the page: what a view is drawn from. Two reports side by side are two panels that share one state.

import { matched } from "./beside.js";
import { h } from "./elements.js";
import { fitted } from "./store.js";

const SHOWN = 400; // letters of a text above a panel

/** A text, with what the other does not have marked: words and numbers as wholes, Chinese by the character. */
function marked(text, other) {
  const cut = (whole) => (whole ?? "").slice(0, SHOWN).match(/\p{Script=Han}|[\p{L}\p{M}]+|\p{N}+|\s+|./gsu) ?? [];
  const pieces = cut(text);
  const same = new Set(matched(pieces, cut(other)).map(([own]) => own));
  return pieces.map((piece, at) => (same.has(at) ? piece : h("mark", {}, piece)));
}

export class Panel {
  constructor(page, data, index) {
    Object.assign(this, { page, data, index });
    this.element = h("section", { class: "panel" });
  }

  /** The page's state; a second report may lack the attention, layer or head that is chosen, and then shows what it has. */
  get state() {
    const { state } = this.page.store;
    return this.index === 0 ? state : fitted(state, this.data);
  }

  get words() {
    return this.page.words;
  }

  /** The report beside this one. */
  get other() {
    return this.page.panels.find((panel) => panel !== this)?.data ?? null;
  }

  width() {
    return this.element.clientWidth || 340;
  }

  set(changes) {
    return this.page.dispatch({ type: "set", changes });
  }

  hold(held) {
    return this.page.dispatch({ type: "hold", held });
  }

  /** Whose report this is, what was read and what was answered; what differs from the report beside it is marked. */
  heading() {
    const { data, words, other } = this;
    const said = (report) => report?.answer ?? report?.says ?? null;
    const answer = said(data) === null ? [] : [" → ", h("b", {}, marked(said(data), said(other)))];
    return [h("h2", {}, data.title), h("p", { class: "reads" }, h("span", { class: "caption" }, words.text), marked(data.text, other?.text), ...answer)];
  }
}
