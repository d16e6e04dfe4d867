"""The beam search of one sentence, with the candidates of each step: the best 2 x width of all that could follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from glassformer.config import DecodeConfig
from glassformer.decode import BeamTrace, Hypothesis, TokenConstraints, generate_batch, translate_batch
from glassformer.decode.lengths import LengthRule, length_rule, translation_limits
from glassformer.inspection.model_input import make_answer_input
from glassformer.models import Transformer
from glassformer.nn.rows import Rows
from glassformer.tasks import TextModel, decode_settings

BEAM = 4  # the tree of a model that by itself searches greedily or draws
PASSES = 3  # over a draft, after which a search is as quick
CLOSE = 1e-3  # nats between the best token and the next, within which rounding might decide


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
        slots = {c.slot: path for c, path in zip(step, paths[-1]) if c.slot is not None}
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
    net = model.model
    closed = bool(prefix) and prefix[-1] in model.special_tokens.ends
    begun = TokenConstraints(prefix=tuple(prefix[:-1] if closed else prefix))
    own = decode_settings(model).beams if decode_settings(model).temperature == 0 else 1
    wide = beam if beam is not None else own if own > 1 else BEAM
    answer_beam = wide if beam is not None or own > 1 else 1
    how: dict[str, Any] = {"temperature": 0.0, "batch_invariant": False}
    if model.kind == "gpt":
        room = min(new + len(prefix), net.config.block_size - len(ids))
        if room < 1:
            return None, None
        how["max_new_tokens"] = room
    elif model.kind == "gpt on pairs":
        room = net.config.block_size - len(ids)
        how["max_new_tokens"] = max(1, min(decode_settings(model).max_new_tokens or room, room))

    def find(width: int, trace: bool) -> list[Hypothesis]:
        settings = decode_settings(model, beam=width, n_best=width if trace else 1, **how)
        run: Any = translate_batch if isinstance(net, Transformer) else generate_batch
        said = {"special": model.special_tokens, "text": model.tokenizers.target.decode, "constraints": begun}
        return run(net, [ids], settings, trace=trace, **said)[0]

    found = find(wide, True) if tree else []
    answer = found[0] if tree and answer_beam == wide else find(answer_beam, False)[0]
    if closed:
        answer = replace(answer, ids=list(begun.prefix), ended="eos")
    if not tree:
        return answer, None
    assert found[0].trace is not None
    return answer, Search(wide, own, found, found[0].trace, length_rule(decode_settings(model, beam=wide, **how)))
