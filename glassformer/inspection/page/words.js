// Every word of the page, in English and in Chinese.

import { visible } from "./elements.js";
import { EN } from "./words_en.js";
import { ZH } from "./words_zh.js";

const WORDS = { en: EN, zh: ZH };

export const LANGUAGES = Object.keys(WORDS);

/** The words of a language, and `more` of a page's own. One that is missing there is said in English, and one that is missing everywhere by its name: a
 * page with a strange word is better than no page. */
export function wordsOf(language, more = {}) {
  return new Proxy(WORDS[language], { get: (table, key) => table[key] ?? more[key] ?? EN[key] ?? String(key) });
}

/** A template with its gaps filled: `{}` by a single value, `{name}` by the values of an object; “{name}” is a token, and what has
 * no shape of its own is made visible in it. */
export function filled(template, values) {
  if (typeof values !== "object") return template.replace("{}", values);
  const tokens = template.replace(/“\{(\w+)\}”/g, (_, name) => `“${visible(values[name])}”`);
  return tokens.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}
