"""Several models that answer as one: at each step the mean of their probabilities (Sutskever et al. 2014 and after).

    log p(y | x, before) = log (1/N) sum_i p_i(y | x, before)

The members read and write with the same tokenizers; their sizes may differ. In decoding each keeps its own cache and steps as it
does alone (stepper.py); the search sees one row of logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.decode.slots import Job, Slots
from glassformer.decode.stepper import Stepper, Texts
from glassformer.errors import UserError
from glassformer.models import Transformer
from glassformer.models.parts import BaseModel


def log_mean(logits: Sequence[Float[Tensor, "*B V"]]) -> Float[Tensor, "*B V"]:
    """The log of the mean of the distributions that these logits stand for, in float32.

    >>> import torch
    >>> a, b = torch.tensor([0.9, 0.1]).log(), torch.tensor([0.5, 0.5]).log()
    >>> [round(p, 4) for p in log_mean([a, b]).exp().tolist()]
    [0.7, 0.3]
    """
    return torch.stack([own.float().log_softmax(-1) for own in logits]).logsumexp(0) - math.log(len(logits))


class Ensemble(Transformer):
    """Encoder-decoders of one vocabulary as one model. Its hidden states are theirs side by side; its logits are the log of the
    mean of their probabilities, so that losses and scores are the ensemble's own."""

    def __init__(self, members: Sequence[Transformer]) -> None:
        configs = [member.config for member in members]
        learned = any(config.positions == "learned" for config in configs)
        shortest = min(config.block_size for config in configs)
        positions = "learned" if learned else configs[0].positions
        BaseModel.__init__(self, replace(configs[0], block_size=shortest, positions=positions))
        self.members: Any = nn.ModuleList(members)
        self.train(members[0].training)

    @property
    def handed_out(self) -> bool:  # type: ignore[override]
        """May somebody hold the members, and change their weights?"""
        return any(member.handed_out for member in self.members)

    @handed_out.setter
    def handed_out(self, value: bool) -> None:
        """Sets it on every member."""
        for member in self.members:
            member.handed_out = value

    def encode(self, *given: Any, **named: Any) -> Tensor:
        """Refused: each member has an encoder of its own."""
        raise UserError("an ensemble has several encoders; ask one of its runs")

    def hidden(self, *given: Any, **named: Any) -> Float[Tensor, "B T D"]:
        """The members' hidden states side by side: D is the sum of their widths."""
        return torch.cat([member.hidden(*given, **named) for member in self.members], dim=-1)

    def logits(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """The log of the mean of the members' probabilities, from their hidden states side by side."""
        widths = [member.config.n_embd for member in self.members]
        own = zip(self.members, x.split(widths, dim=-1), strict=True)
        return self.tap("logits", log_mean([member.logits(part) for member, part in own]))

    def loss(self, *given: Any, **named: Any) -> Tensor:
        """Refused: members are trained one by one."""
        raise UserError("an ensemble is not trained; train its runs")


class EnsembleStepper:
    """The members' steppers, in step."""

    def __init__(self, steppers: Sequence[Stepper]) -> None:
        self.steppers = steppers
        self.may_join = all(own.may_join for own in steppers)

    def prefill(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int) -> None:
        """Every member reads the texts."""
        for own in self.steppers:
            own.prefill(start, jobs, texts, copies)

    def logits(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """The log of the mean of the members' probabilities."""
        return log_mean([own.logits(state, n) for own in self.steppers])

    def reorder(self, parents: Int[Tensor, "n K"], tokens: Int[Tensor, "n K"]) -> None:
        """Every member's rows continue the same parents."""
        for own in self.steppers:
            own.reorder(parents, tokens)

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int], n: int) -> None:
        """Every member's slots move."""
        for own in self.steppers:
            own.move(from_slots, to_slots, n)
