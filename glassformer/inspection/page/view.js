// What every view is: mounted into an element, updated when the state changes, destroyed. A view draws itself from the data and
// the state; its live parts (maps, tables that can be held) are told of a new hold or a new width without being drawn again.

import { h } from "./elements.js";

export class View {
  constructor(panel) {
    this.panel = panel;
    this.live = [];
    this.turn = 0;
  }

  get data() {
    return this.panel.data;
  }

  get state() {
    return this.panel.state;
  }

  get words() {
    return this.panel.words;
  }

  async mount(root) {
    this.root = root;
    await this.render();
  }

  /** Draws the whole view; a drawing that a newer one has overtaken is dropped. */
  async render() {
    const turn = ++this.turn;
    const before = this.live;
    this.live = [];
    const parts = await this.draw();
    if (turn !== this.turn) return;
    before.forEach((part) => part.destroy?.());
    this.root.replaceChildren(...parts.flat().filter(Boolean));
    this.live.forEach((part) => part.shown?.());
  }

  /** `changed`: the names of what is new in the state. */
  async update(changed) {
    if (changed.size === 1 && changed.has("held") && this.holds()) return;
    if (await this.patch(changed)) return;
    await this.render();
  }

  /** A view may change a part of itself in place; true where that is all there is to do. */
  async patch(changed) {
    return false;
  }

  /** Shows a new hold in place; false where the view must be drawn again. */
  holds() {
    this.live.forEach((part) => part.hold?.());
    return true;
  }

  resize() {
    this.live.forEach((part) => part.resize?.());
  }

  destroy() {
    this.turn++;
    this.live.forEach((part) => part.destroy?.());
    this.live = [];
    this.root?.replaceChildren();
  }

  /** Takes care of a live part; returns its element. */
  keep(part) {
    this.live.push(part);
    return part.element;
  }

  /** "How to read this": one worked sentence about the very picture. */
  howTo(sentence) {
    if (!sentence) return null;
    return h("p", { class: "howto" }, h("b", {}, this.words.howTo), " ", sentence);
  }
}
