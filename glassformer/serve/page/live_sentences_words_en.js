// Every word of the sentences of a run's own data, in English (see live_words_en.js).

export const ACROSS_EN = {
  title: "Across sentences",
  byLoss: "The hardest",
  byPart: "What {} is for",
  reading: "reading {} …",
  about: "{count} sentences of {split}, the hardest first: the loss of the right answer, in nats a token.",
  aboutText: "{count} texts of {split}, the hardest first: their loss, in nats a token.",
  aboutPart: "{count} sentences of {split}, those first whose loss rises most when {part} is cut.",
  text: "text",
  answer: "right answer",
  loss: "loss",
  without: "without it",
  rise: "rise",
  load: "Read this text",
  none: "This server shows no texts of a run's own data.",
};
