// Every word of the sentence that says why a token came, in English (see live_words_en.js).

export const WHY_ANSWER_EN = {
  why: "Why this token?",
  hint: "Choose a token, here or in any view.",
  asking: "cutting the strongest parts, one by one …",
  becauseHead: "{token} rather than {other}, because {part} pushed it most, by {push} (their logits differ by {difference}), and it looked most at {key} ({weight}); without it the log-probability of {token} goes from {before} to {after}{lost}.",
  becausePart: "{token} rather than {other}, because {part} pushed it most, by {push} (their logits differ by {difference}), and of the heads {head} did ({headPush}), which looked most at {key} ({weight}); without {part} the log-probability of {token} goes from {before} to {after}{lost}.",
  lost: ", and it no longer comes first",
  agree: "The three agree: of the {count} parts that push most, none costs it more when it is cut, and among the tokens that {head} can look at, {key} is also the one that the gradients name.",
  agreeCut: "Attribution and the cut agree: of the {count} parts that push most, none costs it more when it is cut. The answer is too long for gradients.",
  otherCut: "The cut does not agree with attribution: cutting {worst} costs it more ({worstAfter}).",
  otherKey: "Attention does not agree with the gradients, which name {named} and not {key}.",
  harmless: "The cut does not agree with attribution: without {part} the token is no less likely; other parts make up for it.",
  goHead: "See where {} looks",
  goPart: "See the terms of {}",
  goToken: "Hold this token in all views",
  cutIt: "Cut {}",
};
