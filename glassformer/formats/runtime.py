"""What every program is asked about a sample of texts, so that one report compares any of them with ours: the calls that each
answers, our own model under them, and the texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.config import DataConfig, DecodeConfig
from glassformer.data.store import run_examples, stored_splits
from glassformer.decode import SpecialTokens, TokenConstraints, translate_batch
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.nn.rows import Rows
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS, MASK

EVERY = 7  # of a masked language model, so many tokens from one mask to the next
Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Case:
    """One text: the ids that a model reads (`prompt`), and the ids that should follow (`answer`; none for a model that only
    reads)."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...] = ()


class Runtime:
    """A model in some program's hands. Ids are ours, in and out."""

    name: str
    family: str
    rules: DecodeConfig  # what our search must be told to search as this runtime does
    special: SpecialTokens  # what may not be written there
    prefix: tuple[int, ...] = ()  # what every answer begins with
    cut_competes = False  # may an answer that was cut at the limit win over one that ended?
    lacks: tuple[str, ...] = ()  # what it cannot do, in words

    def scores(self, rows: Ids, targets: Ids) -> Sequence[np.ndarray]:
        """The scores after each token of each row (T, V); of an encoder-decoder, after each token of each target."""
        raise NotImplementedError

    def write(self, prompts: Ids, *, beam: int, limit: int) -> list[list[int]]:
        """What it writes after each prompt, without the token that ends it."""
        raise NotImplementedError

    def logits(self, cases: Sequence[Case]) -> list[np.ndarray]:
        """For each case the scores at each token of its answer (T, V); of a model that only reads, at each of its prompt."""
        if self.family == "transformer":
            found = self.scores([case.prompt for case in cases], [[BOS, *case.answer[:-1]] for case in cases])
            return [own[: len(case.answer)] for own, case in zip(found, cases, strict=True)]
        found = self.scores([[*case.prompt, *case.answer[:-1]] for case in cases], ())
        starts = [len(case.prompt) - 1 if case.answer else 0 for case in cases]
        return [
            own[start : start + len(case.answer or case.prompt)]
            for own, start, case in zip(found, starts, cases, strict=True)
        ]


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


NO_SPLIT = _("keeps no examples to compare on; give a file of texts by --sample (Python: sample=[...])")


def own_sample(data: DataConfig, run: Path) -> tuple[str, Iterator[Any]]:
    """The name of the split, and its examples: test, else validation, else what was trained on."""
    kept = stored_splits(run / "data")
    split = next((name for name in ("test", "val", "train") if name in kept), None)
    if split is None:
        raise UserError("{run} {no_split}", run, NO_SPLIT)
    RunFolder.open(run).check_data(split)
    return _("the {split} split", split), iter(run_examples(data, split, run / "data"))


def text_of(example: Any) -> str:
    """The text of an example of any task that has one text."""
    first = example[0] if isinstance(example, tuple | list) else getattr(example, "text", example)
    return " ".join(first) if isinstance(first, list | tuple) else str(first)


def make_cases(model: TextModel, examples: Iterable[Any], most: int) -> list[Case]:
    """The first `most` examples that fit the model's block, as it was trained to see them."""
    found: list[Case] = []
    source, target, block = model.tokenizers.source, model.tokenizers.target, model.model.config.block_size
    for example in examples:
        if len(found) >= most:
            break
        if model.kind in ("transformer", "gpt on pairs"):
            text, wanted = (example, None) if isinstance(example, str) else (example[0], example[1])
            ids, answer = source.encode(text), () if wanted is None else (*target.encode(wanted), EOS)
            prompt = (*ids, EOS) if model.kind == "transformer" else (BOS, *ids, EOS)
            taken = max(len(prompt), len(answer)) if model.kind == "transformer" else len(prompt) + len(answer)
            if ids and taken <= block:
                found.append(Case(prompt, answer))
            continue
        ids = source.encode(text_of(example))
        if model.kind == "gpt":
            # A long document gives several cases; two thirds of each are to be foretold.
            for start in range(0, len(ids), block):
                piece = ids[start : start + block]
                if len(piece) > 2:
                    cut = max(1, len(piece) // 3)
                    found.append(Case(tuple(piece[:cut]), tuple(piece[cut:])))
        elif ids:
            ids = ids[: model.max_text_tokens]
            if model.kind == "mlm":
                ids = [MASK if i % EVERY == EVERY // 2 else token for i, token in enumerate(ids)]
            found.append(Case(tuple(model.with_special_tokens(ids))))
    return found[:most]
