// The list of keys.

import { h } from "./elements.js";

/** `views`: how many there are; `plays`: whether there is anything to play. */
export function helpDialog(words, views, plays) {
  const row = (keys, text) => h("tr", {}, h("td", {}, keys.map((key) => h("kbd", {}, key))), h("td", {}, text));
  const rows = [
    row(["1", "–", String(Math.min(9, views)), ...(views > 9 ? ["0"] : [])], words.keyViews),
    row(["[", "]"], words.keyNextView),
    row(["⇧←", "⇧→", "⇧↑", "⇧↓"], words.keyHeads),
    row(["←", "→", "↑", "↓"], words.keyTokens),
    row(["⏎"], words.keyLock),
    row(["Esc"], words.keyRelease),
    row(["+", "−"], words.keyZoom),
    row(["k"], words.keyKind),
    row(["u"], words.keyUnits),
    row(["d"], words.keyTheme),
    row(["l"], words.keyLanguage),
    plays ? row(["p"], words.keyPlay) : null,
    row(["?"], words.keyHelp),
  ];
  const close = h("button", { type: "button", class: "close", onclick: () => dialog.close() }, words.close);
  const dialog = h("dialog", { class: "help", "aria-label": words.help }, h("h2", {}, words.keys), h("table", {}, rows), h("h2", {}, words.mouse), h("p", {}, words.mouseAbout), h("p", {}, words.unitsAbout), close);
  dialog.addEventListener("close", () => dialog.remove());
  return dialog;
}
