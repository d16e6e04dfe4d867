"""What a model's own loss asks for: the next token, ln V on random targets, every word."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer_lab.audit.making import AuditResult, judged, line_of
from glassformer_lab.audit.subject import Subject, find_loss, find_output, first_id


def asked_token(loss: Tensor, logits: Tensor) -> Tensor | None:
    """The token that a loss asks for at every place (-1: none): the one whose logit it wants larger. None: logits without a part
    in it."""
    (slope,) = torch.autograd.grad(loss, logits, allow_unused=True)
    return None if slope is None else slope.argmin(-1).masked_fill(slope.amin(-1) >= 0, -1)


def asks_for_read(subject: Subject) -> bool | None:
    """Whether a loss of the model's own, from its forward or a method `loss`, asks for a token that is read already; None where
    it has none that can be seen."""
    texts = subject.texts(4, 12, 12)
    text, labels = texts[-1], torch.randint(first_id(subject.vocab), subject.vocab, (4, 12))
    out = subject.call(texts, labels=labels if "labels" in subject.names else None)
    logits, loss = find_output(out), find_loss(out)
    if loss is not None and loss.requires_grad and logits.requires_grad:
        asked = asked_token(loss, logits)
        if asked is None or asked.numel() != text.numel():
            return None
        asked = asked.T if subject.time_first and asked.dim() > 1 else asked.view_as(text)
        read = [asked[:, late:] == text[:, : 12 - late] for late in (0, 1)]
        return max(float(same.double().mean()) for same in read) > 0.5
    own, logits = getattr(subject.model, "loss", None), subject.logits(texts)
    if not callable(own):
        return None
    with torch.no_grad():
        value = float(own(*texts))
    places = ((logits, text), (logits[:, 1:], text[:, 1:]), (logits[:, 1:], text[:, :-1]))
    return any(abs(value - float(F.cross_entropy(x.flatten(0, 1), y.flatten()))) < 1e-4 for x, y in places)


def next_token(subject: Subject) -> Iterator[AuditResult]:
    """A loss of the model's own asks for no token that is read already."""
    if subject.vocab and subject.kind != "encoder" and (read := asks_for_read(subject)) is not None:
        yield judged(
            "next token", not read, "targets not shifted", "", subject.model, ("cross_entropy", "targets", "loss")
        )


def first_loss(subject: Subject) -> Iterator[AuditResult]:
    """On random targets it is ln V; the output is logits; word 0 can be learned."""
    texts = subject.texts(8, 16, 16)
    logits, labels = (
        subject.logits(texts).float(),
        torch.randint(first_id(subject.vocab), subject.vocab or 9, texts[-1].shape[:2]),
    )
    if not subject.vocab or logits.size(-1) < subject.vocab:
        return  # vectors or classes
    own = zero = None
    if "labels" in subject.names:
        with torch.no_grad():
            own, zero = (find_loss(subject.call(texts, labels=given)) for given in (labels, labels * 0))
    entropy = float(F.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    if bool((logits >= 0).all()) and float((logits.sum(-1) - 1).abs().max()) < 1e-4:
        twice = own is not None and abs(float(own) - entropy) < 1e-3
        yield AuditResult(
            "logits", False, "softmax twice" if twice else "probabilities", "", line_of(subject.model, ("softmax",))
        )
    first, expected = entropy if own is None else float(own), math.log(logits.size(-1))
    mistake = "loss too low" if first < expected - 0.3 else "loss too high" if first > expected + 1 else ""
    words = ("cross_entropy", "loss")
    yield judged("first loss", not mistake, mistake, f"{first:.2f}, ln V = {expected:.2f}", subject.model, words)
    if zero is not None:
        learned = bool(zero.isfinite()) and float(zero) != 0
        yield judged("word 0", learned, "word 0 not learned", "", subject.model, ("ignore_index", "cross_entropy"))
