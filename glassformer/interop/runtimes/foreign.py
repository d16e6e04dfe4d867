"""transformers with a folder whose ids are in another order than ours (vocabulary.py): what goes in is put into theirs, and
scores and answers that come out into ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.interop.runtimes.cases import Case
from glassformer.interop.runtimes.huggingface import Ids, TransformersRuntime, transformers_can_use, up_to_end
from glassformer.interop.vocabulary import NEVER, Vocabulary
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS, PAD


class Order:
    """Our ids as theirs and back, of one side."""

    def __init__(self, vocabulary: Vocabulary | None, size: int) -> None:
        order = list(range(size)) if vocabulary is None else list(vocabulary.order)
        never: list[int] = []
        if vocabulary is not None:
            never = [*vocabulary.missing, *vocabulary.copies]
            for ours, theirs in vocabulary.copies.items():
                order[ours] = theirs
        self.order, self.never = np.array(order), np.array(never, dtype=np.int64)
        self.ours = {theirs: i for i, theirs in enumerate(order) if i not in never}

    def theirs(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Ids of ours in their order."""
        return tuple(int(self.order[i]) for i in ids)

    def scores(self, found: np.ndarray) -> np.ndarray:
        """A column a word, in our order; what they do not have is never."""
        out = found[:, np.maximum(self.order, 0)]
        out[:, self.never] = NEVER
        return out


class ForeignRuntime(TransformersRuntime):
    """transformers with a folder that is to be imported, or that went back to where it came from."""

    def __init__(self, folder: Path, model: TextModel, theirs: Any, dtype: str | torch.dtype = "auto") -> None:
        c = model.model.config
        self.source = Order(theirs.get("source"), c.source_vocab_size or c.vocab_size)
        self.target = Order(theirs.get("target"), c.vocab_size)
        if c.family != "transformer":
            self.source = self.target
        self.folder = folder
        super().__init__(folder, c.family, c.head, alpha=model.recipe.decode.alpha, dtype=dtype)
        known = {ours: int(self.target.order[ours]) for ours in (PAD, BOS, EOS)}
        self.special = model.special_tokens
        ends = self.target.theirs(self.special.more_ends)
        self.ids = Ids(pad=max(0, known[PAD]), start=known[BOS], end=known[EOS], more_ends=ends)
        banned = ((i, int(self.target.order[i])) for i in self.special.banned(allow_unknown=False))
        hidden = [
            theirs for i, theirs in banned if self.target.ours.get(theirs) == i
        ]  # a copy of ours hides nothing there
        before = [int(self.target.order[i]) for i in model.tokenizers.target.before]
        self.options = {
            "suppress_tokens": sorted({i for i in hidden if i not in self.ids.ends}) or None,
            "forced_bos_token_id": before[0] if before else None,
            "forced_eos_token_id": None,
            "no_repeat_ngram_size": 0,
            "repetition_penalty": 1.0,
            "bad_words_ids": None,
            "min_length": 0,
            "decoder_start_token_id": self.ids.start if c.family == "transformer" else None,
        }
        self.prefix = model.tokenizers.target.before

    def logits(self, cases: Sequence[Case]) -> list[np.ndarray]:
        """Their scores in the order of our ids."""
        own = [replace(c, prompt=self.source.theirs(c.prompt), answer=self.target.theirs(c.answer)) for c in cases]
        with transformers_can_use(self.folder):
            found = super().logits(own)
        return found if self.head != "mlm" else [self.target.scores(one) for one in found]

    def write(self, prompts: Sequence[Sequence[int]], *, beam: int, limit: int) -> list[list[int]]:
        """What `generate` writes, in our ids."""
        with transformers_can_use(self.folder):
            found = super().write([self.source.theirs(p) for p in prompts], beam=beam, limit=limit)
        return [[self.target.ours.get(token, -1) for token in ids] for ids in found]

    @torch.no_grad()
    def write_by_default(self, ids: Sequence[int], changes: Mapping[str, Any]) -> tuple[list[int], bool]:
        """What `generate` writes after these ids of theirs by the folder's own settings, but for the `changes`, as ids of
        ours; and whether it ended by itself. What stands for no text is never written, as with us."""
        own = self.model.generation_config
        hidden = {*(own.suppress_tokens or []), *(self.options["suppress_tokens"] or [])}
        options = {"suppress_tokens": sorted(hidden) or None, "do_sample": False, **changes}
        if self.family == "transformer" and own.decoder_start_token_id is None and own.bos_token_id is None:
            options["decoder_start_token_id"] = self.ids.start
        if own.eos_token_id is None:
            options["eos_token_id"] = self.ids.ends
        if own.pad_token_id is None:
            options["pad_token_id"] = self.ids.pad
        prompt = torch.tensor([list(ids)])
        found = self.model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), **options)[0].tolist()
        told = self.ids.ends if own.eos_token_id is None else own.eos_token_id
        ends = told if isinstance(told, list) else [told]
        new = found[1 if self.family == "transformer" else len(ids) :]
        written = up_to_end(new, *ends)
        return [self.target.ours.get(token, -1) for token in written], len(written) < len(new)
