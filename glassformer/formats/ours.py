"""Our own model under the same calls: what every other runtime is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.decode import SpecialTokens, TokenConstraints, translate_batch
from glassformer.formats.runtime import Activations, Case, Ids, Runtime
from glassformer.nn.rows import Rows
from glassformer.probe import record
from glassformer.tasks import TextModel


def tap_of(layer: str) -> str:
    """The activation that is a layer's output."""
    return f"{layer}.residual"


def layers_of(model: TextModel) -> list[str]:
    """Every layer by its name, in the order in which text goes through them."""
    c = model.model.config
    encoder = [f"encoder.{i}" for i in range(c.encoder_layers)] if c.family != "gpt" else []
    return encoder + ([f"decoder.{i}" for i in range(c.n_layer)] if c.family != "bert" else [])


class OurRuntime(Runtime):
    """Our model, searched as our own search does it, under the rules that another runtime has."""

    name = "glassformer"

    def __init__(
        self,
        model: TextModel,
        rules: DecodeConfig | None = None,
        special: SpecialTokens | None = None,
        *,
        cut_competes: bool = False,
        prefix: tuple[int, ...] = (),
    ) -> None:
        self.model, self.cut_competes, self.prefix = model, cut_competes, prefix
        self.family = model.model.config.family
        self.rules = rules or DecodeConfig()
        self.special = special or model.special_tokens

    @torch.no_grad()
    def scores(self, rows: Ids, targets: Ids) -> Sequence[np.ndarray]:
        """The scores after every token, all rows side by side."""
        sides = [Rows.from_lists([list(row) for row in side]).to(self.model.device) for side in (rows, targets) if side]
        return [own.float().cpu().numpy() for own in self.model.model(*sides)]

    def write(self, prompts: Ids, *, beam: int, limit: int) -> list[list[int]]:
        """Greedy, or by a beam under the rules."""
        asked = TokenConstraints(prefix=self.prefix, unscored=len(self.prefix))
        kept = beam if self.cut_competes else 1
        config = replace(self.rules, beam=beam, n_best=kept, max_new_tokens=limit, temperature=0.0)
        found = translate_batch(
            self.model.model, [list(p) for p in prompts], config, special=self.special, constraints=asked
        )
        return [max(hypotheses, key=lambda h: h.score).ids if kept > 1 else hypotheses[0].ids for hypotheses in found]

    def activations(self, case: Case) -> Activations:
        """What comes out of each layer for one case."""
        names = layers_of(self.model)
        with record(self.model.model, *map(tap_of, names)) as seen:
            self.logits([case])
        return {name: seen[tap_of(name)][0].float().cpu().numpy() for name in names}
