// Every word of comparing on the live page, in English (see live_words_en.js).

export const COMPARE_EN = {
  beside: "Beside it",
  nothing: "nothing",
  text: "another text",
  run: "another run",
  step: "another step",
  whole: "without the cuts",
  which: "Which",
  type: "Type the other text",
  apart: "They differ most in",
  headAbout: "{part} looks elsewhere for {value} of its weight",
  tokenAbout: "probability of {token}: {left} and {right}",
  alike: "They do not differ.",
  ofStep: "{title}, step {step}",
  wholeTitle: "{title}, whole",
};
