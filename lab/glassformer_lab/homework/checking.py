"""The exercises, from homework.toml, the file that a reader fills in, and the laws that what is put there must hold: ours beside
the reader's, on tensors small enough to be read."""

from __future__ import annotations

import ast
import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.classic import transformer as classic
from glassformer.errors import UserError
from glassformer.language import _, localized
from glassformer_lab.audit.making import load_object, one_line
from glassformer_lab.homework.wrong import WRONG, library_call

EXERCISES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("homework.toml").read_text(encoding="utf-8")
)
HEAD = """from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.classic import transformer as classic
"""


@dataclass(frozen=True)
class Question:
    """What a case shows, the reader's answer, the right one, and what known wrong ones give, by their mistakes."""

    shown: str
    answer: Callable[[], Any]
    right: Any
    wrong: Sequence[tuple[str, Callable[[], Any]]] = ()


def case(exercise: str, shown: str, own: Any, right: Any, *given: Any) -> Question:
    """A case of a function: its answer to what is given."""
    wrong = [(mistake, partial(function, *given)) for mistake, function in WRONG[exercise]]
    return Question(shown, partial(own, *given), right, wrong)


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Random numbers of two digits, to be read."""
    return [torch.randn(shape).mul(10).round().div(10) for shape in shapes]


def softmax(own: Any) -> Iterator[Question]:
    """Shares, also of large numbers."""
    (x,) = tensors((2, 3))
    for shown, scores in ((_("two rows"), x), (_("large numbers"), x * 1000), (_("three dimensions"), x[None])):
        yield case("softmax", shown, own, scores.softmax(-1), scores)


def attention(own: Any) -> Iterator[Question]:
    """The equation, keys of another length, a mask."""
    q, k, v = tensors((1, 2, 4), (1, 3, 4), (1, 3, 5))
    mask = torch.tensor([[True, False, False], [True, True, False]])
    yield case("attention", _("two queries, three keys"), own, classic.attention(q, k, v), q, k, v)
    yield case("attention", _("with a mask"), own, classic.attention(q, k, v, mask), q, k, v, mask)


def mask(own: Any) -> Iterator[Question]:
    """Lower triangular."""
    for length in (1, 4):
        yield case("mask", _("{length} positions", length), own, classic.causal_mask(length), length)


def padding(own: Any) -> Iterator[Question]:
    """By lengths."""
    lengths = torch.tensor([3, 1, 4])
    yield case("padding", _("lengths 3, 1 and 4"), own, torch.arange(4) < lengths[:, None], lengths, 4)


def positions(own: Any) -> Iterator[Question]:
    """The worked examples."""
    for n in (100.0, 10000.0):
        right = classic.sinusoids(4, 4, n).float()
        yield case("positions", _("four positions, width 4, n = {n:.0f}", n), own, right, 4, 4, n)


def norm(own: Any) -> Iterator[Question]:
    """Over features."""
    x, weight, bias = tensors((2, 2, 4), (4,), (4,))
    for shown, given in ((_("two sentences of two tokens"), x), (_("numbers so small that eps counts"), x * 1e-3)):
        yield case("norm", shown, own, F.layer_norm(given, (4,), weight, bias), given, weight, bias)


def layers(exercise: str) -> Callable[[Any], Iterator[Question]]:
    """The same weights in the reader's class and in ours."""

    def cases(own: Any) -> Iterator[Question]:
        config = classic.Config(vocab_size=9, n_embd=4, n_head=2)
        ours, theirs = LAYERS[exercise](config), own(config)
        theirs.load_state_dict(ours.state_dict())
        x, y = tensors((2, 3, 4), (2, 5, 4))
        real = (torch.arange(5) < torch.tensor([5, 2])[:, None])[:, None, None, :]
        if exercise == "encoder":
            given: list[tuple[str, tuple[Any, ...]]] = [(_("one text"), (y,)), (_("with padding"), (y, real))]
        elif exercise == "decoder":
            given = [(_("a target and a source"), (x, y)), (_("with padding"), (x, y, real))]
        else:
            given = [(_("self-attention"), (x, x, x)), (_("keys of another length"), (x, y, y))]
            given += [(_("with a mask"), (x, x, x, classic.causal_mask(3)))]
        for shown, texts in given:
            wrong = [(mistake, partial(forward, ours, *texts)) for mistake, forward in WRONG[exercise]]
            yield Question(shown, partial(theirs, *texts), ours(*texts).detach(), wrong)

    return cases


def translator(own: Any) -> Iterator[Question]:
    """Numbers of four digits, backwards."""
    config = classic.Config(vocab_size=12, block_size=8, n_embd=32)
    batches = [classic.reversal_batch(rows, config) for rows in torch.randint(2, 12, (250, 32, 4)).tolist()]
    test = batches[0][0]

    def answer() -> str:
        fresh = classic.Transformer(config)
        before = [p.detach().clone() for p in fresh.parameters()]
        model = own(fresh, batches[1:]).eval()
        if all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)):
            return _("no weight has moved: take a step of the optimizer for every batch")
        written = model.generate(test, 4, temperature=0, src_lengths=batches[0][3]).tolist()
        right = sum(row == number[:4][::-1] for row, number in zip(written, test.tolist(), strict=True))
        return "" if right >= 0.8 * len(test) else _("{count} of {total} numbers are right", right, len(test))

    yield Question(_("after 249 batches at least 80% of 32 numbers are written backwards"), answer, "")


LAYERS = {"heads": classic.MultiHeadAttention, "encoder": classic.EncoderLayer, "decoder": classic.DecoderLayer}
CASES: dict[str, Callable[[Any], Iterator[Question]]] = {
    **{one.__name__: one for one in (softmax, attention, mask, padding, positions, norm, translator)},
    **{name: layers(name) for name in LAYERS},
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


def answer_of(answer: Callable[[], Any]) -> Any:
    """What an answer gives, or the exception that it raises; of a tensor its numbers alone."""
    try:
        found = answer()
    except (Exception, SystemExit, GeneratorExit) as error:
        return error
    return found.detach() if isinstance(found, Tensor) else found


def distance(a: Tensor, b: Tensor) -> Tensor:
    """How far numbers lie apart; what is no number is as far as can be from what is one, and like itself."""
    return torch.where(a.isnan() & b.isnan(), 0.0, (a.double() - b.double()).abs().nan_to_num(math.inf))


def is_alike(a: Any, b: Any) -> bool:
    """Whether two answers are the same numbers, or the same kind of exception."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and float(distance(a, b).max()) < 1e-4
    return isinstance(a, Exception) and type(a) is type(b)


def difference(found: Any, right: Any) -> str | None:
    """What is wrong with an answer, in numbers; None: nothing."""
    if isinstance(found, NotImplementedError):
        return _("the hole is still there")
    if isinstance(found, BaseException):
        return _("it raises {error}", one_line(found))
    if isinstance(right, str):  # the exercise itself says what is wrong
        return found or None
    if not isinstance(found, Tensor) or found.shape != right.shape or sort_of(found) != sort_of(right):
        kind = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        return _("it should be {right}, not {kind}", f"{right.dtype} {tuple(right.shape)}", kind)
    apart = distance(found, right)
    if float(apart.max()) < 1e-4:
        return None
    place = torch.unravel_index(apart.argmax(), apart.shape)
    at = ", ".join(str(int(i)) for i in place)
    return _("at [{at}] it is {found:.4g} and should be {right:.4g}", at, float(found[place]), float(right[place]))


def problem_of(one: Question) -> str | None:
    """What is wrong with an answer, in numbers, and the mistake that gives the same ones; None: nothing."""
    found = answer_of(one.answer)
    if (problem := difference(found, one.right)) is None or isinstance(found, NotImplementedError):
        return problem
    mistake = next((mistake for mistake, wrong in one.wrong if is_alike(found, answer_of(wrong))), None)
    return problem if mistake is None else _("{mistake} ({problem})", mistake, problem)


def check(path: Path) -> list[tuple[str, str, str | None]]:
    """For every exercise that the file has: its name, what a case shows, and what is wrong there (None: nothing)."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise UserError("{path} cannot be imported: {error}", path, one_line(error)) from None
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    results: list[tuple[str, str, str | None]] = []
    for name in (name for name in CASES if NAMES.get(name, name) in defined):
        torch.manual_seed(1)
        own = load_object(f"{path}:{NAMES.get(name, name)}")
        problem = None
        try:
            for one in CASES[name](own):
                results.append((name, one.shown, problem := problem_of(one)))
                if problem is not None:
                    break
        except (Exception, SystemExit, GeneratorExit) as error:  # it cannot even be made
            results.append((name, _("making it"), problem := _("it raises {error}", one_line(error))))
        if problem is None and (function := library_call(defined[NAMES.get(name, name)], name)):
            results.append((name, _("its code"), _("this is the library's own {function}: write it out", function)))
    return results


def report(path: str) -> list[list[str]]:
    """The results as a JSON-serialisable list, in the person's language; an empty problem: none."""
    return [[name, localized(shown), localized(problem or "")] for name, shown, problem in check(Path(path))]


def listing(names: list[str], file: str) -> str:
    """A Python file with these exercises' holes, and their hints in two languages."""
    parts = [
        f'"""Homework: {", ".join(names)}. Fill in what raises, then: glassformer homework --check {file}"""\n\n{HEAD}'
    ]
    for name in names:
        one = EXERCISES[name]
        before, _, after = one["code"].strip("\n").partition("HOLE")
        indent = before.rpartition("\n")[2]
        hole = f"# {one['hint']}\n{indent}# {one['zh']}\n{indent}raise NotImplementedError"
        parts.append(f"# {name}: {one['about']}\n{before}{hole}{after}\n")
    return "\n\n".join(parts)
