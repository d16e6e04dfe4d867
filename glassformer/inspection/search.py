"""What a model writes next and why: the beam search of one sentence, with the candidates of each step (the best 2 x width of all
that could follow), and the distribution of the next token, which a search chooses from and a sampler draws from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from glassformer.config import DecodeConfig
from glassformer.decode import BeamTrace, Hypothesis, TokenConstraints, generate_batch, translate_batch
from glassformer.decode.lengths import LengthRule, length_rule, translation_limits
from glassformer.errors import UserError
from glassformer.inspection.activations import forward
from glassformer.inspection.model_input import make_answer_input, make_prompt_input, read_text, with_special_tokens
from glassformer.inspection.page import packed
from glassformer.models import Transformer
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows
from glassformer.probe import ablate
from glassformer.tasks import TextModel, decode_settings
from glassformer.tasks.generate import prompt_ids

BEAM = 4  # the tree of a model that by itself searches greedily or draws
PASSES = 3  # over a draft, after which a search is as quick
CLOSE = 1e-3  # nats between the best token and the next, within which rounding might decide
NEW = 12  # tokens a GPT goes on with
TOP = 20  # next tokens that are named


@dataclass(frozen=True)
class Search:
    """The story of a beam, and the answers it found, best first."""

    beam: int
    recipe: int  # the width that the recipe itself searches with; 1 is greedy
    answers: list[Hypothesis]
    trace: BeamTrace
    rule: LengthRule


def paths_of(trace: BeamTrace) -> list[list[list[int]]]:
    """For each candidate of each step, the tokens that lead to it, its own last."""
    paths: list[list[list[int]]] = []
    slots: dict[int, list[int]] = {0: []}
    for step in trace.steps:
        paths.append([[*slots.get(candidate.parent, []), candidate.token] for candidate in step])
        slots = {candidate.slot: path for candidate, path in zip(step, paths[-1]) if candidate.slot is not None}
    return paths


@torch.no_grad()
def revise(model: TextModel, source: list[int], draft: Sequence[int]) -> list[int] | None:
    """The greedy answer, as the fixed point of passes over a draft of it, such as the answer to a text with one letter less: each
    writes at every place the best token after the draft's (Jacobi decoding; Santilli et al. 2023). None where a search must
    tell: the recipe is not plainly greedy, a choice is close, or the draft does not settle in a few passes."""
    net, settings = model.model, decode_settings(model)
    room = min(translation_limits(settings, len(source))[1], net.config.block_size - 1)
    free = ("batch_size", "max_new_tokens", "max_ratio", "max_extra")
    plain = replace(DecodeConfig(beam=1), **{name: getattr(settings, name) for name in free})
    device = next(net.parameters()).device
    if model.kind != "transformer" or settings != plain or net.training or device.type != "cpu":
        return None
    ends, banned = model.special_tokens.ends, model.special_tokens.banned(settings.allow_unknown)
    read, ids = Rows.whole(torch.tensor([source])), [i for i in draft if i < net.config.vocab_size and i not in ends]
    for _ in range(PASSES):
        if len(ids) >= room or set(ids) & set(banned):
            return None
        row = make_answer_input(model, source, ids, True, []).row
        best = net(read, Rows.whole(torch.tensor([row])))[0].topk(2)
        written = best.indices[:, 0].tolist()
        end = next((place for place, token in enumerate(written) if token in ends), len(written))
        before, ids = ids, written[:end]
        if ids == before and end < len(written):
            surely = bool((best.values[: end + 1, 0] - best.values[: end + 1, 1]).min() > CLOSE)
            return ids if surely else None
    return None


def search(
    model: TextModel, ids: list[int], *, beam: int | None, new: int, prefix: Sequence[int] = (), tree: bool = True
) -> tuple[Hypothesis | None, Search | None]:
    """What the model answers to these ids, and the tree of a beam search. Without `beam` the answer is that of the recipe,
    as `translate` gives it, and where that has no beam the tree is that of a small one. What would be drawn is searched.
    `prefix`: the ids that every answer begins with; with EOS behind them they are the answer. Without `tree` there is only the
    answer."""
    net, recipe = model.model, decode_settings(model)
    closed = bool(prefix) and prefix[-1] in model.special_tokens.ends
    begun = TokenConstraints(prefix=tuple(prefix[:-1] if closed else prefix))
    usual = recipe.beams if recipe.temperature == 0 else 1
    wide = beam if beam is not None else usual if usual > 1 else BEAM
    answer_beam = wide if beam is not None or usual > 1 else 1
    how: dict[str, Any] = {"temperature": 0.0}
    room = net.config.block_size - len(ids)
    if model.kind == "gpt":
        how["max_new_tokens"] = room = min(new + len(prefix), room)
        if room < 1:
            return None, None
    elif model.kind == "gpt on pairs":
        how["max_new_tokens"] = max(1, min(recipe.max_new_tokens or room, room))

    def find(width: int, trace: bool) -> list[Hypothesis]:
        settings = decode_settings(model, beam=width, n_best=width if trace else 1, **how)
        run: Any = translate_batch if isinstance(net, Transformer) else generate_batch
        decode = model.tokenizers.target.decode
        return run(net, [ids], settings, trace=trace, special=model.special_tokens, text=decode, constraints=begun)[0]

    answers = find(wide, True) if tree else []
    answer = answers[0] if tree and answer_beam == wide else find(answer_beam, False)[0]
    if closed:
        answer = replace(answer, ids=list(begun.prefix), ended="eos")
    if not tree:
        return answer, None
    assert answers[0].trace is not None
    rule = length_rule(decode_settings(model, beam=wide, **how))
    return answer, Search(wide, usual, answers, answers[0].trace, rule)


@torch.no_grad()
def next_token_data(model: TextModel, text: str, prefix: Sequence[int] = (), cut: Sequence[str] = ()) -> dict[str, Any]:
    """The log-probabilities of every token that may follow `prefix` (ids of the answer), highest first, and the names of the
    first TOP. Temperature, top-k and top-p keep the order, so a page can apply them by itself."""
    if model.kind not in ("transformer", "gpt", "gpt on pairs"):
        raise UserError("this run writes no text, so there is no next token to choose")
    net, settings = model.model, decode_settings(model)
    TokenConstraints(prefix=tuple(prefix)).check(net.config.vocab_size, model.special_tokens)
    if model.kind == "gpt":
        read_text(model.tokenizers.target, text, "the text")
        asked = make_prompt_input(prompt_ids(model, text), list(prefix), [])
    else:
        asked = make_answer_input(model, with_special_tokens(model, text, None)[0], list(prefix), False, [])
    if len(asked.row) > net.config.block_size:
        raise UserError("the answer is as long as this model's block; nothing can follow it")
    with ablate(net, cut), eval_mode(net):
        logprobs = forward(net, asked)[0, -1].cpu().double().log_softmax(-1)
    logprobs[list(model.special_tokens.banned(settings.allow_unknown))] = -math.inf
    values, order = logprobs.sort(descending=True, stable=True)
    values = values[values > -math.inf]
    ids = order[: min(TOP, len(values))].tolist()
    return {
        "ids": ids,
        "pieces": model.tokenizers.target.pieces(ids),
        "prefix": model.tokenizers.target.pieces(list(prefix)),
        "ends": list(model.special_tokens.ends),
        "logprobs": packed(values.numpy(), "float32"),
        "settings": {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p},
    }
