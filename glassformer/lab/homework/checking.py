"""The laws that a piece of homework must hold: ours beside the reader's, on tensors small enough to be read."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.classic import transformer as classic
from glassformer.errors import UserError
from glassformer.lab.audit.making import load_object, one_line
from glassformer.language import _

Case = tuple[str, Callable[[], Any], Any]
"""What a case shows, the reader's answer, and the right one."""


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Random numbers of two digits, to be read."""
    return [torch.randn(shape).mul(10).round().div(10) for shape in shapes]


def softmax(own: Any) -> Iterator[Case]:
    """Shares, also of large numbers."""
    (x,) = tensors((2, 3))
    for shown, scores in ((_("two rows"), x), (_("large numbers"), x * 1000), (_("three dimensions"), x[None])):
        yield shown, partial(own, scores), scores.softmax(-1)


def attention(own: Any) -> Iterator[Case]:
    """The equation, keys of another length, a mask."""
    q, k, v = tensors((1, 2, 4), (1, 3, 4), (1, 3, 5))
    mask = torch.tensor([[True, False, False], [True, True, False]])
    yield _("two queries, three keys"), lambda: own(q, k, v), classic.attention(q, k, v)
    yield _("with a mask"), lambda: own(q, k, v, mask), classic.attention(q, k, v, mask)


def mask(own: Any) -> Iterator[Case]:
    """Lower triangular."""
    for length in (1, 4):
        yield _("{length} positions", length), partial(own, length), classic.causal_mask(length)


def padding(own: Any) -> Iterator[Case]:
    """By lengths."""
    lengths = torch.tensor([3, 1, 4])
    yield _("lengths 3, 1 and 4"), lambda: own(lengths, 4), torch.arange(4) < lengths[:, None]


def positions(own: Any) -> Iterator[Case]:
    """The worked examples."""
    for n in (100.0, 10000.0):
        right = classic.sinusoids(4, 4, n).float()
        yield _("four positions, width 4, n = {n:.0f}", n), partial(own, 4, 4, n), right


def norm(own: Any) -> Iterator[Case]:
    """Over features."""
    x, weight, bias = tensors((2, 2, 4), (4,), (4,))
    yield _("two sentences of two tokens"), lambda: own(x, weight, bias), F.layer_norm(x, (4,), weight, bias)
    small, right = x * 1e-3, F.layer_norm(x * 1e-3, (4,), weight, bias)
    yield _("numbers so small that eps counts"), lambda: own(small, weight, bias), right


def layers(kind: type) -> Callable[[Any], Iterator[Case]]:
    """The same weights in the reader's class and in ours."""

    def cases(own: Any) -> Iterator[Case]:
        config = classic.Config(vocab_size=9, n_embd=4, n_head=2)
        ours, theirs = kind(config), own(config)
        theirs.load_state_dict(ours.state_dict())
        x, y = tensors((2, 3, 4), (2, 5, 4))
        real = (torch.arange(5) < torch.tensor([5, 2])[:, None])[:, None, None, :]
        if kind is classic.EncoderLayer:
            given: list[tuple[str, tuple[Any, ...]]] = [(_("one text"), (y,)), (_("with padding"), (y, real))]
        elif kind is classic.DecoderLayer:
            given = [(_("a target and a source"), (x, y)), (_("with padding"), (x, y, real))]
        else:
            given = [(_("self-attention"), (x, x, x)), (_("keys of another length"), (x, y, y))]
            given += [(_("with a mask"), (x, x, x, classic.causal_mask(3)))]
        for shown, texts in given:
            yield shown, partial(theirs, *texts), ours(*texts).detach()

    return cases


def translator(own: Any) -> Iterator[Case]:
    """Numbers of four digits, backwards."""
    config = classic.Config(vocab_size=12, block_size=8, n_embd=32)
    batches = [classic.reversal_batch(rows, config) for rows in torch.randint(2, 12, (250, 32, 4)).tolist()]
    test = batches[0][0]

    def answer() -> bool:
        model = own(classic.Transformer(config), batches[1:]).eval()
        written = model.generate(test, 4, temperature=0, src_lengths=batches[0][3])
        rows = written.tolist(), [row[:4][::-1] for row in test.tolist()]
        return sum(a == b for a, b in zip(*rows, strict=True)) >= 0.8 * len(test)

    yield _("after 249 batches at least 80% of 32 numbers are written backwards"), answer, True


LAYERS = {"heads": classic.MultiHeadAttention, "encoder": classic.EncoderLayer, "decoder": classic.DecoderLayer}
CASES: dict[str, Callable[[Any], Iterator[Case]]] = {
    **{one.__name__: one for one in (softmax, attention, mask, padding, positions, norm, translator)},
    **{name: layers(kind) for name, kind in LAYERS.items()},
}
NAMES = {
    "mask": "causal_mask",
    "padding": "real_tokens",
    "positions": "sinusoids",
    "norm": "layer_norm",
    **{"translator": "train"} | {name: kind.__name__ for name, kind in LAYERS.items()},
}
"""What an exercise is called in the reader's file, where it is not its own name."""


def sort_of(x: Tensor) -> tuple[bool, bool]:
    """Booleans, whole numbers or floats; single and double are one."""
    return x.is_floating_point(), x.dtype == torch.bool


def problem_of(answer: Callable[[], Any], right: Any) -> str | None:
    """What is wrong with an answer, in numbers; None: nothing."""
    try:
        found = answer()
    except NotImplementedError:
        return _("the hole is still there")
    except Exception as error:
        return _("it raises {error}", one_line(error))
    if not isinstance(right, Tensor):
        return None if found == right else _("it is not so")
    if not isinstance(found, Tensor) or found.shape != right.shape or sort_of(found) != sort_of(right):
        kind = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        return _("it should be {right}, not {kind}", f"{right.dtype} {tuple(right.shape)}", kind)
    found = found.detach()
    apart = (found.double() - right.double()).abs().nan_to_num(math.inf)
    if float(apart.max()) < 1e-4:
        return None
    place = torch.unravel_index(apart.argmax(), apart.shape)
    at = ", ".join(str(int(i)) for i in place)
    return _("at [{at}] it is {found:.4g} and should be {right:.4g}", at, float(found[place]), float(right[place]))


def check(path: Path) -> list[tuple[str, str, str | None]]:
    """For every exercise that the file has: its name, what a case shows, and what is wrong there (None: nothing)."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise UserError("{path} cannot be imported: {error}", path, one_line(error)) from None
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    results: list[tuple[str, str, str | None]] = []
    for name in (name for name in CASES if NAMES.get(name, name) in defined):
        torch.manual_seed(1)
        own = load_object(f"{path}:{NAMES.get(name, name)}")
        try:
            for shown, answer, right in CASES[name](own):
                results.append((name, shown, problem := problem_of(answer, right)))
                if problem is not None:
                    break
        except Exception as error:  # it cannot even be made
            results.append((name, _("its beginning"), _("it raises {error}", one_line(error))))
    return results
