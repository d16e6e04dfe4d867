"""Hugging Face's transformers, loaded from a folder by its Auto classes and nothing of ours.

A folder whose ids are in another order than ours (vocabulary.py) is asked in its own: what goes in is put into theirs, and
scores and answers that come out into ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.errors import UserError, install_hint
from glassformer.formats.huggingface.vocabulary import Vocabulary
from glassformer.formats.runtime import Ids, Runtime
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS, PAD

HEADS = {"classify": "ForSequenceClassification", "tag": "ForTokenClassification", "none": ""}
FAMILIES = {"transformer": "ForSeq2SeqLM", "gpt": "ForCausalLM", "bert": "ForMaskedLM"}


def auto_class(family: str, head: str) -> str:
    """The Auto class that loads a folder.

    >>> auto_class("bert", "tag")
    'AutoModelForTokenClassification'
    """
    return f"AutoModel{HEADS.get(head, FAMILIES[family])}"


def padded(rows: Ids, pad: int, *, left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids in rows of one width, and 1 where they are real."""
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, where] = torch.tensor(list(row))
        mask[i, where] = 1
    return ids, mask


def up_to_end(ids: Sequence[int], *ends: int) -> list[int]:
    """What stands before the first token that ends a text."""
    return list(ids[: next((n for n, token in enumerate(ids) if token in ends), len(ids))])


@contextmanager
def transformers_can_use(folder: Path) -> Iterator[None]:
    """Whatever the library raises over somebody's folder, of any kind, is one sentence."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise UserError(
            "transformers cannot load or run {folder}, so it cannot be compared: {said}", folder, said
        ) from None


class TransformersRuntime(Runtime):
    """A folder as `AutoModel...` loads it. `theirs`: its vocabularies by side, where its ids are others than ours.

    Its beam search counts the ending token in the length and stops when as many hypotheses have ended as the beam is wide
    (`early_stopping=True`): our `power` and `first-k`. Everything else of `generate` is as an exported folder says; one that
    is to be imported, or that went back to where it came from, is told to write what we write."""

    name = "transformers"
    cut_competes = True

    def __init__(
        self,
        folder: Path,
        model: TextModel,
        theirs: Mapping[str, Vocabulary] | None = None,
        dtype: str | torch.dtype = "auto",
    ) -> None:
        try:
            import transformers
        except ImportError:
            raise UserError(
                "to compare an exported folder with the original, transformers is needed; install it with: {command}",
                install_hint("hf"),
            ) from None
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        c, known = model.model.config, theirs or {}
        self.folder, self.family, self.head, self.alpha = folder, c.family, c.head, model.recipe.decode.alpha
        self.target = known.get("target") or Vocabulary.ours_alone(c.vocab_size)
        self.source = self.target
        if c.family == "transformer":
            self.source = known.get("source") or Vocabulary.ours_alone(c.source_vocab_size or c.vocab_size)
        with transformers_can_use(folder):
            loader = getattr(transformers, auto_class(c.family, c.head))
            self.model: Any = loader.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()
        self.rules = DecodeConfig(length_rule="power", alpha=self.alpha, stop_rule="first-k")
        self.special, self.prefix = model.special_tokens, model.tokenizers.target.before
        pad, self.start = self.target.theirs((PAD, BOS))
        self.pad, self.ends = max(0, pad), [*self.target.theirs((EOS, *self.special.more_ends))]
        self.options = {} if theirs is None else self.our_options()  # of `generate`, besides what the folder says

    def our_options(self) -> dict[str, Any]:
        """What `generate` is told so that it writes what we write, whatever the folder says."""
        banned = self.special.banned(allow_unknown=False)
        # A copy of ours hides nothing there.
        hidden = {self.target.order[i] for i in banned if self.target.order[i] >= 0}
        before = self.target.theirs(self.prefix)
        return {
            "suppress_tokens": sorted(hidden - {*self.ends}) or None,
            "forced_bos_token_id": before[0] if before else None,
            "forced_eos_token_id": None,
            "no_repeat_ngram_size": 0,
            "repetition_penalty": 1.0,
            "bad_words_ids": None,
            "min_length": 0,
            "decoder_start_token_id": self.start if self.family == "transformer" else None,
        }

    @torch.no_grad()
    def scores(self, rows: Ids, targets: Ids) -> Sequence[np.ndarray]:
        """The scores after each token, in the order of our ids (of a class: one row; without a head: the last hidden state)."""
        ids, mask = padded([self.source.theirs(row) for row in rows], self.pad)
        written = [self.target.theirs(target) for target in targets]
        more = {"decoder_input_ids": padded(written, self.pad)[0]} if written else {}
        with transformers_can_use(self.folder):
            found = self.model(input_ids=ids, attention_mask=mask, **more)
        if self.head != "mlm":
            states = found.last_hidden_state if self.head == "none" else found.logits
            return list((states[:, None] if self.head == "classify" else states).float().numpy())
        return [self.target.scores(row) for row in found.logits.float().numpy()]

    @torch.no_grad()
    def write(self, prompts: Ids, *, beam: int, limit: int) -> list[list[int]]:
        """What `generate` writes, in our ids. Prompts of a GPT are padded on the left."""
        ids, mask = padded([self.source.theirs(p) for p in prompts], self.pad, left=self.family == "gpt")
        how: dict[str, Any] = {"num_beams": beam, "do_sample": False, "max_new_tokens": limit}
        if beam > 1:
            how |= {"early_stopping": True, "length_penalty": self.alpha}
        how |= {"pad_token_id": self.pad, "eos_token_id": self.ends}
        with transformers_can_use(self.folder):
            found = self.model.generate(input_ids=ids, attention_mask=mask, **how, **self.options)
        start = 1 if self.family == "transformer" else ids.size(1)
        written = [up_to_end(row[start : start + limit].tolist(), *self.ends) for row in found]
        return [[self.target.ours.get(token, -1) for token in row] for row in written]
