// Making elements, and how tokens and numbers are written.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style" && typeof value === "object") {
      for (const [property, setting] of Object.entries(value)) {
        if (property.startsWith("--")) element.style.setProperty(property, setting);
        else element.style[property] = setting;
      }
    }
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** A token as a label: what has no shape of its own must be seen. */
export function visible(text) {
  const shown = text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\u00a0", "⍽");
  const pictures = shown.replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)));
  return pictures.replaceAll("\u007f", "␡") || "·";
}

export function shortened(text, most) {
  const letters = Array.from(text);
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text;
}

/** A control token such as <eos> is set apart from text. */
export function isControl(text) {
  return /^(<(pad|bos|eos|unk|mask|s|\/s|\|endoftext\|)>|\[(CLS|SEP|PAD|MASK|UNK)\])$/.test(text);
}

export function token(text, attributes = {}) {
  const kind = isControl(text) ? "token control" : "token";
  return h("span", { class: kind, ...attributes }, visible(text));
}

/** A probability or a weight. */
export function share(value) {
  if (value > 0 && value < 0.0005) return value.toExponential(0).replace("e-", "e−");
  return value.toFixed(3);
}

export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

let ruler = null;

/** The width of a text in the font of labels, in pixels. */
export function widthOf(text, font = "12px system-ui, sans-serif") {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = font;
  return ruler.measureText(text).width;
}

/** A row of buttons of which one is pressed. */
export function choice(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), "data-value": value, onclick: () => choose(value) }, text),
  );
  return h("div", { class: "choice", role: "group", "aria-label": label }, h("span", { class: "caption" }, label), buttons);
}

export function select(label, options, chosen, choose) {
  const element = h(
    "select",
    { "aria-label": label, onchange: (event) => choose(event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: String(value) === String(chosen) }, text)),
  );
  return h("label", { class: "choice" }, h("span", { class: "caption" }, label), element);
}
