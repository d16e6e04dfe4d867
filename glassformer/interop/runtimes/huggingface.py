"""Hugging Face's transformers, loaded from an exported folder by its Auto classes and nothing of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode import SpecialTokens
from glassformer.errors import UserError, install_hint
from glassformer.interop.runtimes.cases import Activations, Case
from glassformer.interop.tables import half_split
from glassformer.text.tokenizer import BOS, EOS, PAD

HALF_SPLIT = ("marian", "pegasus")
HEADS = {
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "none": "AutoModel",
}
FAMILIES = {"transformer": "AutoModelForSeq2SeqLM", "gpt": "AutoModelForCausalLM", "bert": "AutoModelForMaskedLM"}


@dataclass(frozen=True)
class Ids:
    """What pads, begins and ends a text, as the folder counts."""

    pad: int = PAD
    start: int = BOS
    end: int = EOS
    more_ends: tuple[int, ...] = ()

    @property
    def ends(self) -> list[int]:
        """Every id that ends a text."""
        return [self.end, *self.more_ends]


def padded(rows: Sequence[Sequence[int]], pad: int, *, left: bool = False) -> tuple[Tensor, Tensor]:
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
        raise UserError(f"transformers cannot load or run {folder}, so it cannot be compared: {said}") from None


class TransformersRuntime:
    """A folder as `AutoModel...` loads it. Its beam search counts the ending token in the length and stops when as many
    hypotheses have ended as the beam is wide (`early_stopping=True`): our `power` and `first-k`."""

    name = "transformers"
    cut_competes = True
    lacks: tuple[str, ...] = ()

    def __init__(
        self, folder: Path, family: str, head: str = "mlm", *, alpha: float = 1.0, dtype: str | torch.dtype = "auto"
    ) -> None:
        try:
            import transformers
        except ImportError:
            raise UserError(
                "to compare an exported folder with the original, transformers is needed; install it with: "
                f"{install_hint('hf')}"
            ) from None
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        kind = getattr(transformers, HEADS.get(head, FAMILIES[family]))
        began = time.perf_counter()
        with transformers_can_use(folder):
            self.model: Any = kind.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()
        self.load_seconds = time.perf_counter() - began
        self.family, self.head, self.alpha = family, head, alpha
        self.rules = DecodeConfig(length_rule="power", alpha=alpha, stop_rule="first-k")
        self.special = SpecialTokens()
        self.ids = Ids()
        self.prefix: tuple[int, ...] = ()  # what every answer begins with, in our ids
        self.options: dict[str, Any] = {}  # of `generate`, besides what the folder says

    @torch.no_grad()
    def logits(self, cases: Sequence[Case]) -> list[np.ndarray]:
        """The scores at each token of each answer; of a model that only reads, at each token (of a class: one row)."""
        if self.family == "transformer":
            ids, mask = padded([case.prompt for case in cases], self.ids.pad)
            targets, _ = padded([[self.ids.start, *case.answer[:-1]] for case in cases], self.ids.pad)
            scores = self.model(input_ids=ids, attention_mask=mask, decoder_input_ids=targets).logits
            return [own[: len(case.answer)].float().numpy() for own, case in zip(scores, cases, strict=True)]
        ids, mask = padded([[*case.prompt, *case.answer[:-1]] for case in cases], self.ids.pad)
        found = self.model(input_ids=ids, attention_mask=mask)
        scores = found.last_hidden_state if self.head == "none" else found.logits
        if self.head == "classify":
            return [own[None].float().numpy() for own in scores]
        told = []
        for own, case in zip(scores, cases, strict=True):
            start = len(case.prompt) - 1 if case.answer else 0
            told.append(own[start : start + (len(case.answer) or len(case.prompt))].float().numpy())
        return told

    @torch.no_grad()
    def write(self, prompts: Sequence[Sequence[int]], *, beam: int, limit: int) -> list[list[int]]:
        """`generate`, with everything but the width of the beam and the length as the folder says. Prompts of a GPT are
        padded on the left."""
        ids, mask = padded(prompts, self.ids.pad, left=self.family == "gpt")
        how: dict[str, Any] = {"num_beams": beam, "do_sample": False, "max_new_tokens": limit}
        if beam > 1:
            how |= {"early_stopping": True, "length_penalty": self.alpha}
        how |= {"pad_token_id": self.ids.pad, "eos_token_id": self.ids.ends}
        found = self.model.generate(input_ids=ids, attention_mask=mask, **how, **self.options)
        start = 1 if self.family == "transformer" else ids.size(1)
        return [up_to_end(row[start : start + limit].tolist(), *self.ids.ends) for row in found]

    @torch.no_grad()
    def activations(self, case: Case) -> Activations:
        """What comes out of each layer, its channels in our order."""
        seen: Activations = {}
        stacks = {"transformer": ("encoder", "decoder"), "gpt": ("decoder",), "bert": ("encoder",)}[self.family]
        hooks = []
        for stack in stacks:
            for i, layer in enumerate(self.layers(stack)):
                hooks.append(layer.register_forward_hook(self.keep(seen, f"{stack}.{i}")))
        try:
            self.logits([case])
        finally:
            for hook in hooks:
                hook.remove()
        return seen

    def layers(self, stack: str) -> Any:
        """The layers of one stack, wherever the class keeps them."""
        body = self.model.base_model
        if self.family == "transformer":
            return getattr(body, stack).layers
        if self.family == "bert":
            return body.encoder.layer
        places = (body, "h"), (body, "layers"), (getattr(body, "decoder", None), "layers")
        return next(getattr(place, name) for place, name in places if hasattr(place, name))

    def keep(self, seen: Activations, name: str) -> Any:
        """A hook that keeps a layer's output under a name."""

        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            x = (output[0] if isinstance(output, tuple) else output)[0].float()
            if (
                self.model.config.model_type in HALF_SPLIT
            ):  # their sinusoids are half-split, so their channels stand in another order
                x = x[:, half_split(x.size(-1)).argsort()]
            seen[name] = x.numpy()

        return hook
