"""The laws of a Transformer, run against anyone's: what must not change the logits, and what must.

Most are black boxes, inputs in and logits out, of a copy in eval mode whose weights hide nothing; hooks find the place.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from glassformer_lab.audit.losses import first_loss, next_token
from glassformer_lab.audit.making import LENGTHS, AuditResult, judged, line_of, one_line
from glassformer_lab.audit.subject import Subject, changed, find_loss, find_output, find_size
from glassformer_lab.audit.watching import apart, in_text, place_of, watch, weights

MIXING = ("tril", "triu", "causal", "scaled_dot_product", "softmax")
PADS = ("pad_idx", "pad_id", "pad_token_id", "src_pad_idx", "padding_idx")


def shapes(subject: Subject) -> Iterator[AuditResult]:
    """Any batch size and length, the source's apart from the target's."""
    for rows, source, target in ((3, 5, 8), (1, 7, 4), (2, 4, 1)):
        try:
            subject.logits(subject.texts(rows, source, target))
        except Exception as error:
            told, paired = one_line(error), False
            if "target" in subject.names:
                with contextlib.suppress(Exception):
                    paired = subject.logits(subject.texts(rows, target, target)) is not None
            place = re.search(r"\(([^()]+:\d+)\)$", told)
            mistake = "keys cut by the query's length" if paired else "one shape"
            yield AuditResult("one shape", False, mistake, told, place[1] if place else line_of(subject.model))
            return
    yield AuditResult("one shape", True)


def stillness(subject: Subject) -> Iterator[AuditResult]:
    """Numbers, and the same ones twice."""
    texts = subject.texts()
    once, again = subject.logits(texts), subject.logits(texts)
    yield judged("numbers", bool(once.isfinite().all()), "not a number", "", subject.model)
    if once.isfinite().all():
        words = ("F.dropout", "functional.dropout", "Dropout(", "rand")
        drops = [m for m in subject.model.modules() if line_of(m, words) != line_of(m)]
        module = (drops or [subject.model])[0]
        yield judged("eval", torch.equal(once, again), "random in eval", f"{apart(once, again):.2g}", module, words)


def causality(subject: Subject) -> Iterator[AuditResult]:
    """What comes later moves no earlier logit; what came before does; the source does; targets do not."""
    texts = subject.texts(2, 7, 6)
    model, length, base = subject.model, texts[-1].size(1), subject.logits(texts)
    later = [*texts[:-1], changed(texts[-1], -1, subject.vocab)]
    share = apart(base[:, :-1], subject.logits(later)[:, :-1])
    if subject.kind != "encoder" and share > subject.tolerance:
        _, place = place_of(subject, texts, later, in_text(subject, length, slice(0, length - 1)))
        name = "" if place is None else place.name
        shown = "enc" in name.lower() and any(
            "dec" in n.lower() and any(m.children()) for n, m in model.named_modules()
        )
        mistake, words = ("encoder shows the answer", ("encoder(", "enc(")) if shown else ("future", MIXING)
        where = line_of(model if shown or place is None else place.module, words)
        for finding in weights(subject):
            mistake, where = (mistake, where) if finding.holds else (finding.mistake, finding.where)
        yield AuditResult("causality", False, mistake, f"{share:.2g} {name}", where)
    elif subject.kind != "encoder":
        yield AuditResult("causality", True, "", f"{share:.2g}")
    share = apart(base[:, 1:], subject.logits([*texts[:-1], changed(texts[-1], 0, subject.vocab)])[:, 1:])
    yield judged("context", share > subject.tolerance, "alone", f"{share:.2g}", model)
    if "target" in subject.names:
        other = [changed(texts[0], -1, subject.vocab), texts[1]]
        share = apart(base, subject.logits(other))
        yield judged("source", share > subject.tolerance, "source unread", f"{share:.2g}", model)
        part = in_text(subject, texts[0].size(1), slice(0, -1))
        pairs = [(a, part(a.output), part(b.output)) for a, b in zip(watch(subject, texts), watch(subject, other))]
        encoded = [
            (a, x, y) for a, x, y in pairs if a.name.lower().startswith("enc") and x is not None and y is not None
        ]
        for place, x, y in encoded[-1:]:
            seen = apart(x, y)
            yield judged("encoder", seen > subject.tolerance, "causal encoder", f"{seen:.2g}", place.module, MIXING)
    if "labels" in subject.names and subject.vocab:
        labels = torch.randint(0, subject.vocab, texts[-1].shape)
        share = apart(*(subject.logits(texts, labels=(labels + i) % subject.vocab) for i in (0, 1)))
        holds = share <= subject.tolerance
        yield judged("targets", holds, "targets in the logits", f"{share:.2g}", model, (subject.names["labels"],))


def order(subject: Subject) -> Iterator[AuditResult]:
    """The first part that mixes positions gives another answer when the tokens before come in another order."""
    # Vectors have their positions, or not.
    for side in range(2 if "target" in subject.names else 1) if subject.vocab else ():
        texts = subject.texts(2, 7, 6)
        own = texts[side]
        turned = torch.cat([own[:, :-1].flip(1), own[:, -1:]], 1)
        first, backwards = ([*texts[:side], t, *texts[side + 1 :]] for t in (changed(own, 0, subject.vocab), turned))
        part = in_text(subject, own.size(1), slice(-1, None))
        number, place = place_of(subject, texts, first, part)
        if place is not None:
            x, y = part(place.output), part(watch(subject, backwards)[number].output)
            share = apart(x, y) if x is not None and y is not None else 1.0
            measured = f"{share:.2g} {place.name}"
            yield judged("order", share > subject.tolerance, "positions ignored", measured, subject.model)


def neighbours(subject: Subject) -> Iterator[AuditResult]:
    """Other rows in the batch, or none, leave a row's logits as they are."""
    texts = subject.texts(3)
    other = [torch.cat([t[:1], o[1:]]) for t, o in zip(texts, subject.texts(3), strict=True)]
    base = subject.logits(texts)[:1]
    share = max(apart(base, subject.logits(rows)[:1]) for rows in (other, [t[:1] for t in texts]))
    axis, place = 1 if subject.time_first else 0, None
    if share > subject.tolerance:
        _, place = place_of(subject, texts, other, lambda x: x.movedim(axis, 0)[:1] if x.dim() > 1 else None)
    measured, module = f"{share:.2g} {place.name if place else ''}", place.module if place else subject.model
    yield judged("neighbours", share <= subject.tolerance, "neighbours", measured, module, ("view", "reshape"))


def padding_words(subject: Subject, real: Tensor) -> Iterator[dict[str, Any]]:
    """The ways of telling this model which places of a source are real, by the names of its parameters."""
    known = subject.parameters
    if hides := {n: ~real for n in known if n.endswith("key_padding_mask") and not n.startswith("tgt")}:
        yield hides
    for name in known:
        if name == "attention_mask":
            yield {name: real.long()}
        elif name.endswith(("lengths", "_len", "_lens")) and not name.startswith(("tgt", "target", "max")):
            yield from ({name: lengths} for lengths in (real.sum(1), real.sum(1).tolist()))
        elif name.startswith(("src", "source", "enc", "pad")) and name.endswith(("mask", "pad")) and name not in hides:
            yield from ({name: mask} for mask in (real[:, None, :], real[:, None, None, :], real, ~real))


def padding(subject: Subject) -> Iterator[AuditResult]:
    """What stands at padding of the source changes nothing. (In a decoder, padding on the right is the future.)"""
    if subject.kind == "decoder":
        return
    texts, fresh = subject.texts(2, 7, 7), subject.texts(2, 7, 7)
    real = (torch.arange(7) < 4).expand(2, 7)
    seen = slice(0, 4) if subject.kind == "encoder" else slice(None)
    other = [torch.where(real if texts[0].dim() == 2 else real[..., None], texts[0], fresh[0]), *texts[1:]]
    shares = []
    for words in padding_words(subject, real):
        with contextlib.suppress(Exception):
            shares.append(apart(*(subject.logits(t, **words)[:, seen] for t in (texts, other))))
    tables = [m for m in subject.model.modules() if isinstance(m, nn.Embedding)]
    holders = (subject.model, getattr(subject.model, "config", None), *tables)
    pads = [i for holder in holders for name in PADS if isinstance(i := getattr(holder, name, None), int) and i >= 0]
    if not shares and subject.vocab:
        pad = (pads or [0])[0]  # one that is compared with and named nowhere is most often 0
        padded, short = [torch.where(real, texts[0], pad), *texts[1:]], [texts[0][:, :4], *texts[1:]]
        with contextlib.suppress(Exception):
            share = apart(*(subject.logits(t)[:, seen] for t in (short, padded)))
            shares += [share] if pads or share <= subject.tolerance else []
    share = min(shares, default=1.0)
    mistake = "padding read" if shares else "no padding mask"
    yield judged(
        "padding", share <= subject.tolerance, mistake, f"{share:.2g}" * bool(shares), subject.model, ("mask",)
    )


def stacks_of(model: nn.Module) -> list[list[nn.Module]]:
    """The layers of each stack: numbered children, of an nn.ModuleList or of a class of its own, but not of an nn.Sequential."""
    stacks = [m for m in model.modules() if not isinstance(m, nn.Sequential)]
    numbered = [[c for name, c in m.named_children() if name.isdigit()] for m in stacks]
    return [layers for layers in numbered if layers]


def with_norms(model: nn.Module) -> list[tuple[nn.Module, list[nn.Module], list[nn.Module]]]:
    """The layers of a model's stacks that have norms of their own: each with these and with its other parts."""
    found = []
    for layer in (layer for stack in stacks_of(model) for layer in stack):
        norms = [c for c in layer.children() if "norm" in type(c).__name__.lower()]
        parts = [c for c in layer.children() if c not in norms and not isinstance(c, nn.Dropout | nn.Identity)]
        found += [(layer, norms, parts)] if norms and parts else []
    return found


def residuals(subject: Subject) -> Iterator[AuditResult]:
    """With its parts at zero a layer is the identity (pre-norm), or else its output is normalised (post-norm)."""

    def nothing(_module: nn.Module, _args: Any, out: Any) -> Any:
        return tuple(o * 0 if isinstance(o, Tensor) else o for o in out) if isinstance(out, tuple) else out * 0

    for layer, norms, parts in with_norms(subject.model)[:1]:
        texts = subject.texts()
        whole = next(p.output for p in watch(subject, texts) if p.module is layer)
        hooks = [part.register_forward_hook(nothing) for part in parts]
        try:
            passed = next(p for p in watch(subject, texts) if p.module is layer)
        finally:
            for handle in hooks:
                handle.remove()
        identity = passed.inputs[0].shape == passed.output.shape and apart(passed.inputs[0], passed.output) < 1e-6
        scale, shift = (getattr(norms[-1], name, None) for name in ("weight", "bias"))
        plain = (whole if shift is None else whole - shift.detach()) / (1 if scale is None else scale.detach())
        normal = float((plain.pow(2).mean(-1) - 1).abs().max()) < 1e-2
        yield judged("residual", identity or normal, "residual after the norm", "", layer, ("norm", "ln"))


def dropped(subject: Subject) -> Iterator[AuditResult]:
    """With every dropout at one half, half of what enters the first layer is zero, and not three quarters."""
    trained = replace(subject, model=copy.deepcopy(subject.model).train())
    drops = [m for m in trained.model.modules() if isinstance(m, nn.Dropout)]
    stacks = stacks_of(trained.model)
    for drop in drops:
        drop.p = 0.5
    entered = (
        [p for p in watch(trained, trained.texts(16, 16, 16)) if stacks and p.module is stacks[0][0]] if drops else []
    )
    for passed in entered[: 1 if subject.vocab else 0]:
        share = float((passed.inputs[0] == 0).double().mean())
        yield judged("dropout", share < 0.65, "dropout twice", f"{share:.0%}", subject.model, ("drop",))


def gradients(subject: Subject) -> Iterator[AuditResult]:
    """Every parameter gets one, and every layer is known to the model."""
    known = set(subject.model.modules())
    for module in known:
        for name, value in vars(module).items():
            if isinstance(value, list | tuple) and any(isinstance(v, nn.Module) and v not in known for v in value):
                yield AuditResult(
                    "layers", False, "layers in a list", f"{type(module).__name__}.{name}", line_of(module, (name,))
                )
    trained = replace(subject, model=copy.deepcopy(subject.model).train())
    texts = trained.texts(4, 8, 8)
    labels = torch.randint(0, subject.vocab, texts[-1].shape) if subject.vocab and "labels" in subject.names else None
    out = trained.call(texts, labels=labels)
    loss = find_loss(out) if labels is not None else None
    vectors = find_output(out)
    ((vectors * torch.randn_like(vectors)).sum() if loss is None else loss).backward()
    learned = [(n, p.grad) for n, p in trained.model.named_parameters() if p.requires_grad]
    without = [n for n, grad in learned if grad is None or (grad.dim() > 1 and not grad.any())]
    names = ", ".join(without[:3]) + " …" * (len(without) > 3)
    yield judged("gradients", not without, "no gradient", names, subject.model)


def generation(subject: Subject) -> Iterator[AuditResult]:
    """What is generated greedily is the argmax of the logits of the whole text so far, past the last position too."""
    generate = getattr(subject.model, "generate", None)
    if generate is None or subject.kind != "decoder" or not subject.vocab:
        return
    known = inspect.signature(generate).parameters
    if not {"max_new_tokens", "generation_config"} & known.keys():
        return
    library = "generation_config" in known  # Hugging Face's
    greedy: dict[str, Any] = (
        {"do_sample": False} if library else {"top_k": 1} if "top_k" in known else {"temperature": 0}
    )
    (text,) = subject.texts(1, target=4)
    written = torch.as_tensor(generate(text, max_new_tokens=5, **greedy)).view(1, -1)
    row = written if torch.equal(written[:, :4], text) else torch.cat([text, written], 1)
    greedily = torch.equal(subject.logits([row])[:, 3:-1].argmax(-1), row[:, 4:])
    yield judged("generation", greedily, "generation", "", subject.model)
    most = find_size(subject.model, LENGTHS, nn.Embedding, "")
    if most in range(1, 257) and not library:
        told = ""
        try:
            generate(subject.texts(1, target=most)[0], max_new_tokens=2, **greedy)
        except Exception as error:
            told = one_line(error)
        yield judged("long generation", not told, "generation overruns", told, subject.model)


def cached(subject: Subject) -> Iterator[AuditResult]:
    """Token by token through a cache as Hugging Face's models have it, beside the whole text at once."""
    if subject.kind != "decoder" or not {"past_key_values", "use_cache"} <= subject.parameters.keys():
        return
    texts, past, steps = subject.texts(), None, []
    for token in texts[0].split(1, dim=1):
        with torch.no_grad():
            out = subject.call([token], past_key_values=past, use_cache=True)
        past = out.past_key_values
        steps.append(find_output(out))
    share = apart(subject.logits(texts), torch.cat(steps, 1))
    yield judged("cache", share <= subject.tolerance, "cache", f"{share:.2g}", subject.model)


ASKED: dict[str, Callable[[Subject], Iterator[AuditResult]]] = {
    "weights": weights,
    "causality": causality,
    "order": order,
    "neighbours": neighbours,
    "padding": padding,
    "cache": cached,
    "generation": generation,
    "residual": residuals,
    "next token": next_token,
}
"""The laws that compare runs, asked of a copy with shaken weights."""
SEEN_AHEAD = {"future", "softmax over the queries", "masked after the softmax", "encoder shows the answer"}
SEEN_AHEAD |= {"neighbours", "targets in the logits"}
"""The mistakes after which what is generated step by step is another."""
FRESH = {"dropout": dropped, "first loss": first_loss, "gradients": gradients}
"""Those asked of the model as it was made."""


def audit(subject: Subject) -> list[AuditResult]:
    """What became of every law that can be asked of this model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        found = list(shapes(subject))
        subject = replace(subject, one_length=found[0].mistake.startswith("keys"))
        shaken = subject.shaken()
        found += stillness(shaken)
        broken = {one.mistake for one in found}
        if broken & {"one shape", "not a number"}:
            return found
        for name, law in (FRESH if "random in eval" in broken else ASKED | FRESH).items():
            broken = {one.mistake for one in found}
            if name == "generation" and broken & SEEN_AHEAD:
                continue  # a consequence
            try:
                found += list(law(subject if name in FRESH else shaken))
            except Exception as error:
                found.append(AuditResult(name, False, "", one_line(error)))
    return found
