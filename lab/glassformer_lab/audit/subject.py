"""Somebody's Transformer, called: from a torch.nn.Module to a function from token ids to logits.

How a model is called is read off the names of its forward's parameters (the literature's: src, tgt, input_ids, targets …) and
tried; what cannot be found out is asked for in a sentence.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.language import _
from glassformer_lab.audit.making import hint_of, one_line

TARGETS = ("tgt", "trg", "decoder_input_ids", "decoder_input", "dec_input", "dec_inputs", "tgt_ids", "target_ids")
LABELS = ("targets", "labels", "target", "label", "y")


def find_output(out: Any) -> Tensor:
    """The logits (or vectors) of whatever a forward returned: itself, its `logits`, or the first tensor of a tuple."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(out, Mapping) and name in out:
            return out[name]
        if isinstance(getattr(out, name, None), Tensor):
            return getattr(out, name)
    for one in out if isinstance(out, tuple | list) else [out]:
        if isinstance(one, Tensor) and one.dim() > 1:
            return one
    raise TypeError("forward returns no tensor of logits")


def find_loss(out: Any) -> Tensor | None:
    """The loss among what a forward returned."""
    every = [getattr(out, "loss", None), *(out if isinstance(out, tuple | list) else [])]
    return next((one for one in every if isinstance(one, Tensor) and one.dim() == 0), None)


def causal_masks(length: int) -> list[Tensor]:
    """The ways in which people write "not the future": torch's, which is added, and those that are true where allowed."""
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    added = torch.zeros(length, length).masked_fill(~allowed, -torch.inf)
    return [added, allowed[None], allowed[None, None], allowed, allowed.float()]


def first_id(vocab: int) -> int:
    """The first id of random texts: padding, BOS and EOS usually lie below it."""
    return 3 if vocab > 8 else 0


def changed(text: Tensor, place: int, vocab: int) -> Tensor:
    """The same text with another token in one place, in every row."""
    other, first = text.clone(), first_id(vocab)
    other[:, place] = first + (text[:, place] - first + 1) % (vocab - first) if vocab else text[:, place].flip(-1)
    return other


@contextlib.contextmanager
def layer_by_layer() -> Iterator[None]:
    """Inside, torch's own encoder computes as it is written. Its fast path for inference packs a padded batch into a nested
    tensor, of which no hook can be asked anything."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@dataclass(frozen=True)
class Subject:
    """A model under audit, its kind, and how it is called. Where it takes no ids (vocab 0), `width` is that of its vectors."""

    model: nn.Module
    kind: str  # decoder, encoder or encoder-decoder
    names: Mapping[str, str]  # of the parameters that take source, target and labels
    parameters: Mapping[str, inspect.Parameter]
    vocab: int = 0
    width: int = 0
    time_first: bool = False
    with_labels: bool = False
    one_length: bool = False  # source and target of different lengths fail
    mask: int | None = None  # which of `causal_masks` the parameters `masks` are given
    masks: tuple[str, ...] = field(default=())

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        return next((p.dtype for p in self.model.parameters()), torch.float32)

    @property
    def tolerance(self) -> float:
        """How far two ways of computing the same may lie apart, as a share of the largest number."""
        return 1e-9 if self.dtype == torch.float64 else 1e-4

    def texts(self, rows: int = 2, source: int = 6, target: int = 6) -> list[Tensor]:
        """Random inputs: ids or vectors; of source and target where there are two, else of the target's length alone."""
        lengths = [target if self.one_length else source, target] if "target" in self.names else [target]
        if self.vocab:
            return [torch.randint(first_id(self.vocab), self.vocab, (rows, length)) for length in lengths]
        return [torch.randn(rows, length, self.width, dtype=self.dtype) for length in lengths]

    def call(self, texts: Sequence[Tensor], labels: Tensor | None = None, **more: Any) -> Any:
        """What its forward returns."""
        names = [self.names[side] for side in ("source", "target") if side in self.names]
        words = {
            name: text.transpose(0, 1) if self.time_first else text for name, text in zip(names, texts, strict=True)
        }
        if self.with_labels or labels is not None:
            labels = torch.full(texts[-1].shape, self.vocab - 1) if labels is None else labels
            words[self.names["labels"]] = labels.T if self.time_first else labels
        for name in self.masks if self.mask is not None else ():
            of_source = "target" in self.names and name.startswith(("src", "source", "enc", "memory"))
            if not of_source:
                words[name] = causal_masks(texts[-1].size(1))[self.mask or 0]
            elif self.mask:  # all of the source may be seen; torch's way is to give no mask
                words[name] = torch.ones_like(causal_masks(texts[0].size(1))[self.mask][..., -1:, :])
        with layer_by_layer():
            return self.model(**words | more)

    def logits(self, texts: Sequence[Tensor], **more: Any) -> Tensor:
        """(B, T, V) of the target, or of the one text."""
        with torch.no_grad():
            out = find_output(self.call(texts, **more))
        if out.dim() == 2 and out.size(0) == texts[-1].shape[:2].numel():
            out = out.unflatten(0, texts[-1].shape[:2])
        out = out.transpose(0, 1) if self.time_first else out
        if out.shape[:2] != texts[-1].shape[:2]:
            raise TypeError(f"forward returns {tuple(out.shape)} for a text of shape {tuple(texts[-1].shape)}")
        return out

    def shaken(self) -> Subject:
        """A copy in eval mode, in double precision where that runs, with noise on all weights, so that none hides anything."""
        for exact in (True, False):
            with contextlib.suppress(*([Exception] if exact else [])):
                model = copy.deepcopy(self.model).eval()
                other = replace(self, model=model.double() if exact else model)
                torch.manual_seed(1)
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(torch.randn_like(p) * (0.5 / p.size(-1) ** 0.5 if p.dim() > 1 else 0.1))
                other.logits(other.texts())
                return other
        raise AssertionError

    @property
    def called(self) -> str:
        """How it is called, as one would write it."""
        words = [self.names[side] for side in ("source", "target") if side in self.names]
        words += [self.names["labels"]] if self.with_labels else []
        return f"{type(self.model).__name__}({', '.join([*words, *(self.masks if self.mask is not None else ())])})"


def sees_future(subject: Subject) -> bool:
    """Whether logits move when a later token is another."""
    torch.manual_seed(2)
    texts = subject.texts()
    before, after = (subject.logits([*texts[:-1], t]) for t in (texts[-1], changed(texts[-1], -1, subject.vocab)))
    return float((after - before)[:, :-1].abs().max() / before.abs().max()) > subject.tolerance


def read_names(model: nn.Module) -> tuple[dict[str, str], dict[str, inspect.Parameter]]:
    """Which parameters of forward take source, target and labels, by their names; and all of them."""
    every = inspect.signature(model.forward).parameters
    parameters = {n: p for n, p in every.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    if not parameters:
        raise UserError(
            "the forward of {cls} names no parameters, so nobody knows how to call it", type(model).__name__
        )
    order = list(parameters)
    names = {"source": "memory" if order[:2] == ["tgt", "memory"] else order[0]}
    paired = order[0].startswith(("src", "source", "enc"))
    for role, known in (("target", (*TARGETS, *(["target"] if paired else []))), ("labels", LABELS)):
        if found := next((n for n in order if n in known and n not in names.values()), None):
            names[role] = found
    return names, parameters


def find_size(model: nn.Module, names: Sequence[str], kind: type[nn.Module], attribute: str) -> int:
    """A size by its usual names on the model or its config, or else an attribute of its first part of a kind; or 0."""
    holders = (model, getattr(model, "config", None), getattr(model, "args", None))
    found = [getattr(holder, name, None) for holder in holders for name in names]
    found += [getattr(m, attribute, None) for m in model.modules() if isinstance(m, kind)]
    return next((size for size in found if isinstance(size, int) and size > 0), 0)


def find_subject(model: nn.Module, *, vocab: int = 0, kind: str = "auto", time_first: bool = False) -> Subject:
    """How a model is called: without labels or with them, without masks or with the first way of writing them that is causal."""
    model.eval()
    names, parameters = read_names(model)
    vocab = vocab or find_size(model, ("vocab_size", "n_vocab"), nn.Embedding, "num_embeddings")
    if kind == "auto":
        reads = any(
            word in type(model).__name__.lower() for word in ("bert", "encoder", "maskedlm", "classif", "electra")
        )
        kind = "encoder-decoder" if "target" in names else "encoder" if reads or not vocab else "decoder"
    if isinstance(model, nn.Transformer | nn.TransformerEncoder | nn.TransformerDecoder):
        time_first = not next(m for m in model.modules() if isinstance(m, nn.MultiheadAttention)).batch_first
    masks = [
        n for n in parameters if n.endswith("mask") and not any(word in n for word in ("pad", "attention", "head"))
    ]
    width = 0 if vocab else find_size(model, ("d_model",), nn.MultiheadAttention, "embed_dim") or 32
    base = Subject(model, kind, names, parameters, vocab, width, time_first, masks=tuple(masks))
    ways: list[int | None] = [] if any(parameters[n].default is inspect.Parameter.empty for n in masks) else [None]
    works, problem = [], ""
    for mask in [*ways, *range(len(causal_masks(1)) if masks else 0)]:
        for with_labels in (False, True)[: 2 if "labels" in names and vocab else 1]:
            tried = replace(base, mask=mask, with_labels=with_labels)
            try:
                works.append(tried) if tried.logits(base.texts()).numel() else None
                break
            except Exception as error:
                problem = problem or one_line(error)
        if works and works[-1].mask == mask and (kind == "encoder" or not sees_future(works[-1].shaken())):
            return works[-1]
    if works:
        return works[0]
    hint = hint_of(problem, _("--vocab and --arg say its sizes, --kind what it is"))
    raise UserError("{called} cannot be called: {error}{hint}", base.called, problem, hint)
