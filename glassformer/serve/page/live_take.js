// Taking what is seen away: its address, all views as one file, the numbers of the view, its drawing, its picture.

import { askBlob } from "./ask.js";
import { headMap, tapName } from "./attention.js";
import { h } from "./elements.js";
import { TAKE_EN } from "./live_take_words_en.js";
import { TAKE_ZH } from "./live_take_words_zh.js";

const MAPS = ["maps", "lines", "head", "across"]; // views of one head's weights
const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "visibility"];

/** Rows as CSV (RFC 4180). */
function csv(rows) {
  const cell = (value) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** A drawing as a file of its own: its style goes with it. */
function standalone(drawing) {
  const copy = drawing.cloneNode(true);
  const [from, to] = [drawing, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of STYLED) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  const box = drawing.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  return new XMLSerializer().serializeToString(copy);
}

export class Take {
  constructor(live, root) {
    Object.assign(this, { live, root });
  }

  get words() {
    return { en: TAKE_EN, zh: TAKE_ZH }[this.live.language];
  }

  draw() {
    const { words, live } = this;
    if (!live.page) return;
    const button = (id, act) => h("button", { type: "button", class: "chip", id: `take-${id}`, onclick: () => this.tried(act) }, words[id]);
    this.state = h("span", { class: "dim", role: "status" });
    this.root.replaceChildren(h("div", { class: "line" }, h("span", { class: "caption" }, words.take),
      button("address", async () => {
        await navigator.clipboard.writeText(location.href);
        this.state.textContent = words.copied;
      }),
      button("page", async () => this.save("look.html", await askBlob("/look", { ...live.asked(), data: false, across: live.learning.wantsAcross }))),
      button("csv", async () => this.save(`${live.page.state.view}.csv`, new Blob([`\ufeff${csv(await this.rows())}`], { type: "text/csv" }))),
      button("svg", () => this.save(`${live.page.state.view}.svg`, new Blob([standalone(this.largest("svg"))], { type: "image/svg+xml" }))),
      button("png", async () => this.save(`${live.page.state.view}.png`, await this.picture())),
      this.state,
    ));
  }

  async tried(act) {
    this.state.textContent = "";
    try {
      await act();
    } catch (error) {
      this.state.textContent = error.message;
    }
  }

  save(name, blob) {
    const address = URL.createObjectURL(blob);
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  /** The weights of the chosen head with its tokens around them; in other views the tokens of the answer with their numbers. */
  async rows() {
    const { data, page } = this.live;
    const { view, kind, layer, head } = page.state;
    if (MAPS.includes(view) && data.attentions[kind].layers[layer].head_ids.length) {
      const { map, rows, columns } = await headMap(page.panels[0], kind, layer, head);
      return [[tapName(data, kind, layer, head), ...columns], ...rows.map((label, i) => [label, ...map.values.subarray(i * map.columns, (i + 1) * map.columns)])];
    }
    const { outputs, names } = data;
    return [["position", "token", "status", "logprob", "rank", "entropy"], ...outputs.tokens.map((id, i) => [outputs.positions[i], names[id], outputs.status[i], outputs.logprob[i], outputs.rank[i], outputs.entropy[i]])];
  }

  /** The largest drawing of the view. */
  largest(kind) {
    const area = (element) => element.getBoundingClientRect().width * element.getBoundingClientRect().height;
    // Where the machine stands beside the views, its view has no second drawing of it.
    const where = this.live.page.state.view === "machine" && getComputedStyle(document.querySelector("#view .scroll")).display === "none" ? "#stage" : "#view";
    const found = [...document.querySelectorAll(kind.split(",").map((name) => `${where} ${name}`).join())].sort((a, b) => area(b) - area(a))[0];
    if (!found) throw new Error(this.words.noPicture);
    return found;
  }

  async picture() {
    let found = this.largest("canvas,svg");
    if (found.tagName !== "CANVAS") {
      const box = found.getBoundingClientRect();
      const image = new Image();
      image.src = `data:image/svg+xml,${encodeURIComponent(standalone(found))}`;
      await image.decode();
      found = h("canvas", { width: 2 * box.width, height: 2 * box.height });
      const pen = found.getContext("2d");
      pen.fillStyle = getComputedStyle(document.body).backgroundColor;
      pen.fillRect(0, 0, found.width, found.height);
      pen.drawImage(image, 0, 0, found.width, found.height);
    }
    return await new Promise((done) => found.toBlob(done, "image/png"));
  }
}
