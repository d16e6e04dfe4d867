// Every word of the live page in English; live_words_zh.js is made of it by the catalogue (bundle.py).

export const LIVE_EN = {
  model: "Model",
  text: "Text",
  type: "Type a text; every key is answered",
  key: "API key",
  reading: "reading …",
  none: "This server has no models.",
  examples: "Try",
  cutHead: "Cut this head",
  cutMlp: "Cut this layer's MLP",
  cutAttention: "Cut all heads of this layer",
  cutLayer: "Cut the whole layer",
  only: "Leave this head alone on",
  uncut: "Nothing is cut. What is chosen in the views below can be switched off here.",
  back: "Undo",
  clear: "Put all back",
  restore: "Put {} back",
  whole: "the whole model",
  effect: "Loss of the whole model's answer: {before} nats a token, {after} without these parts ({change}). Below, how much less likely each of its tokens has become.",
  lost: "{token}: log-probability {before}, now {after}",
};
