"""Text that goes on where a prompt ends: by a GPT."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.decode import Request, answer, stream
from glassformer.decode.generate import full_collections_wait
from glassformer.errors import UserError
from glassformer.models import GPT
from glassformer.tasks.results import Answer, DecodedPart
from glassformer.tasks.settings import TextConstraints, check_constraints, decode_settings, token_constraints
from glassformer.tasks.text_model import TextModel, as_list
from glassformer.text.tokenizer import BOS, EOS


def prompt_ids(model: TextModel, prompt: str) -> list[int]:
    """A prompt as in training. Plain text goes on where the prompt ends; without one it begins where a document does,
    which is after the end of another."""
    ids = model.tokenizers.source.encode(prompt)
    if model.kind == "gpt on pairs":
        return [BOS, *ids, EOS]
    if model.recipe.data.begin_documents:
        return [BOS, *ids]
    return ids or [EOS]


def generate_each(
    model: TextModel,
    prompts: Iterable[str],
    *,
    config: DecodeConfig | None = None,
    constraints: TextConstraints | None = None,
    trace: bool = False,
    **options: Any,
) -> Iterator[list[Answer]]:
    """As `generate`, of any number of prompts: they are read as they are needed, and answered in order."""
    model.require("generate")
    settings, constraints = decode_settings(model, config, **options), constraints or TextConstraints()
    check_no_glossary(constraints)
    check_constraints(model, constraints, settings)
    in_tokens = token_constraints(model, constraints, constraints.terms)
    asked: deque[list[int]] = deque()  # the prompts that are being answered

    def requests() -> Iterator[Request]:
        for prompt in prompts:
            asked.append(prompt_ids(model, prompt))
            yield Request(asked[-1], in_tokens)

    how: dict[str, Any] = {"special": model.special_tokens, "text": model.tokenizers.target.decode}
    for _, hypotheses in answer(model._model, requests(), settings, trace=trace, **how):
        own = asked.popleft()
        yield [Answer(h.text or "", [DecodedPart(own, h, model.tokenizers)]) for h in hypotheses]


def check_no_glossary(constraints: TextConstraints) -> None:
    """A glossary says what becomes of the words of a source."""
    if constraints.glossary:
        raise UserError("a glossary is for translations; a GPT is given the words alone, as terms")


def generate(model: TextModel, prompts: Sequence[str], **options: Any) -> list[list[Answer]]:
    """For each prompt what may follow it, without the prompt: `num_samples` draws, or `n_best` of a search. `constraints` is a
    TextConstraints, `trace` adds the story of the beam; options are those of DecodeConfig."""
    with full_collections_wait():
        return list(generate_each(model, as_list(prompts), **options))


def stream_generated(
    model: TextModel,
    prompt: str = "",
    *,
    config: DecodeConfig | None = None,
    constraints: TextConstraints | None = None,
    **options: Any,
) -> Iterator[str]:
    """The text of `generate` as it comes, whole characters only."""
    model.require("generate")
    net = model._model
    assert isinstance(net, GPT)
    settings, constraints = decode_settings(model, config, **options), constraints or TextConstraints()
    check_no_glossary(constraints)
    check_constraints(model, constraints, settings)
    own, ids = token_constraints(model, constraints, constraints.terms), prompt_ids(model, prompt)
    how: dict[str, Any] = {"constraints": own, "special": model.special_tokens}
    for step in stream(net, ids, settings, text=model.tokenizers.target.decode, **how):
        if step.text:
            yield step.text
