"""Text that goes on where a prompt ends: by a GPT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.decode import generate_batch, stream
from glassformer.models import GPT
from glassformer.tasks.constraints import TextConstraints, check_constraints, token_constraints
from glassformer.tasks.results import Answer, Part
from glassformer.tasks.settings import decode_settings
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


def generate(
    model: TextModel,
    prompts: Sequence[str],
    *,
    config: DecodeConfig | None = None,
    constraints: TextConstraints | None = None,
    trace: bool = False,
    **options: Any,
) -> list[list[Answer]]:
    """For each prompt what may follow it, without the prompt: `num_samples` draws, or `n_best` of a search. Options are
    those of DecodeConfig."""
    model.require("generate")
    net = model.model
    assert isinstance(net, GPT)
    settings, constraints = decode_settings(model, config, **options), constraints or TextConstraints()
    check_constraints(model, constraints, settings)
    ids = [prompt_ids(model, prompt) for prompt in as_list(prompts)]
    own = token_constraints(model, constraints, constraints.terms)
    target = model.tokenizers.target
    how: dict[str, Any] = {"constraints": own, "special": model.special_tokens, "text": target.decode}
    found = generate_batch(net, ids, settings, trace=trace, **how)
    return [
        [Answer(h.text or "", [Part(prompt, h, model.tokenizers)]) for h in hypotheses]
        for prompt, hypotheses in zip(ids, found, strict=True)
    ]


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
    net = model.model
    assert isinstance(net, GPT)
    settings, constraints = decode_settings(model, config, **options), constraints or TextConstraints()
    check_constraints(model, constraints, settings)
    own, ids = token_constraints(model, constraints, constraints.terms), prompt_ids(model, prompt)
    how: dict[str, Any] = {"constraints": own, "special": model.special_tokens}
    for step in stream(net, ids, settings, text=model.tokenizers.target.decode, **how):
        if step.text:
            yield step.text
