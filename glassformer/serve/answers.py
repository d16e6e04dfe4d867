"""What /translate says beyond the text, where it is asked to: scores, alignment, the story of the beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.tasks import Answer


def scores_of(answer: Answer) -> dict[str, Any]:
    """The answer's score and log-probability, and those of its tokens."""
    parts = [
        {"tokens": part.tokens, "logprobs": [round(v, 5) for v in part.hypothesis.token_logprobs]}
        for part in answer.parts
    ]
    return {"score": round(answer.score, 5), "logprob": round(answer.logprob, 5), "parts": parts}


def alignment_of(answer: Answer) -> dict[str, Any]:
    """For each part its tokens on both sides, how much each looked at each, and the strongest links."""
    parts = [
        {
            "sourceTokens": part.source_tokens,
            "tokens": part.tokens,
            "weights": [[round(w, 4) for w in row] for row in part.hypothesis.alignment or []],
            "links": part.links,
        }
        for part in answer.parts
    ]
    return {"parts": parts}


def trace_of(answer: Answer) -> list[list[list[dict[str, Any]]]]:
    """For each part, for each step, the best candidates and what became of them."""

    def candidate(part: Any, c: Any) -> dict[str, Any]:
        what = {"parent": c.parent, "token": part.tokenizers.target.pieces([c.token])[0]}
        return what | {"logprob": round(c.logprob, 5), "score": round(c.score, 5), "fate": c.fate, "slot": c.slot}

    return [
        [[candidate(part, c) for c in step] for step in (part.hypothesis.trace.steps if part.hypothesis.trace else [])]
        for part in answer.parts
    ]


def unknown_of(unknown: Sequence[Sequence[str]], *, each: bool = False) -> dict[str, Any]:
    """The words or characters of texts that are not in the vocabulary, for each text or of all; no field where there are none."""
    if not any(unknown):
        return {}
    return {"unknown": unknown if each else list(dict.fromkeys(word for words in unknown for word in words))}


def answer_fields(
    answers_of_texts: Sequence[Sequence[Answer]], many: bool, *, scores: bool, alignment: bool, trace: bool
) -> dict[str, Any]:
    """The fields that were asked for, of the best answer to each text; scores of the alternatives as well."""
    out: dict[str, Any] = {}
    if scores:
        out["scores"] = [[scores_of(answer) for answer in answers] for answers in answers_of_texts]
    if alignment:
        out["alignment"] = [alignment_of(answers[0]) for answers in answers_of_texts]
    if trace:
        out["trace"] = [trace_of(answers[0]) for answers in answers_of_texts]
    return out if many else {name: value[0] for name, value in out.items()}
