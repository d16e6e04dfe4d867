"""Somebody's model, made: from `my_model.py:Model` to a torch.nn.Module, with small sizes for what nobody said; what becomes of
a law, the place in somebody's file that broke it, and what is known of its mistake."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import re
import sys
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

import glassformer
from glassformer.errors import UserError
from glassformer.language import _

VOCABULARIES = ("vocab_size", "n_vocab", "ntoken", "src_vocab_size", "tgt_vocab_size", "src_vocab", "tgt_vocab")
LENGTHS = (
    "block_size",
    "max_seq_len",
    "max_len",
    "seq_len",
    "n_positions",
    "context_length",
    "max_position_embeddings",
)
SMALL: dict[str, Any] = {
    **dict.fromkeys(LENGTHS, 24),
    **dict.fromkeys(("n_layer", "n_layers", "num_layer", "num_layers", "depth", "N"), 2),
    **dict.fromkeys(("n_head", "n_heads", "num_head", "num_heads", "nhead", "heads", "h"), 4),
    **dict.fromkeys(("n_embd", "dim", "d_model", "embed_dim", "embed_size", "hidden_size", "emb_size"), 32),
    **dict.fromkeys(("d_ff", "feedforward_dim", "ffn_dim", "hidden_dim", "dim_feedforward"), 64),
    "dropout": 0.1,
    "bias": True,
    "norm_eps": 1e-5,
}
"""Small sizes for parameters that a model needs and nobody gave, by the names that they usually have."""


@cache
def known() -> dict[str, Any]:
    """What is said of every law, of every mistake and of listings that do not run, from mistakes.toml."""
    return tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def file_and_line(path: Path, line: int) -> str:
    """file:line, the file as seen from the working directory; empty for a library's."""
    if "site-packages" in path.parts:
        return ""
    with contextlib.suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"


def line_of(module: nn.Module, words: Sequence[str] = ()) -> str:
    """file:line in a module's forward, of the first of the words that it has, or else of its def; empty for a library's."""
    try:
        lines, start = inspect.getsourcelines(type(module).forward)
        path = Path(inspect.getsourcefile(type(module).forward) or "")
    except (OSError, TypeError):
        return ""
    hits = [i for word in words for i, line in enumerate(lines) if word in line.partition("#")[0] and i]
    return file_and_line(path, start + (hits or [0])[0])


def calling_line() -> str:
    """file:line of the innermost call on the stack that is neither a library's nor the audit's."""
    calls = [(Path(f.filename), f.lineno or 0) for f in reversed(traceback.extract_stack())]
    places = (file_and_line(path, line) for path, line in calls if path.parent != Path(__file__).parent)
    return next((place for place in places if place), "")


@dataclass(frozen=True)
class AuditResult:
    """What became of one law: it holds, or the name of a mistake and its place; with neither, it could not be asked."""

    law: str
    holds: bool = False
    mistake: str = ""
    measured: str = ""
    where: str = ""


def judged(
    law: str, holds: bool, mistake: str, measured: str, module: nn.Module, words: Sequence[str] = ()
) -> AuditResult:
    """A finding, with its place where the law is broken."""
    return (
        AuditResult(law, True, "", measured)
        if holds
        else AuditResult(law, False, mistake, measured, line_of(module, words))
    )


def one_line(error: BaseException) -> str:
    """What went wrong, and in which line of whose file, torch's and ours left out."""
    ours = (str(Path(glassformer.__file__).parent), str(Path(__file__).parents[1]))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f.filename]
    frames = [f for f in frames if not f.filename.startswith((*ours, "<"))]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}{where}"


def hint_of(error: str, otherwise: str = "") -> str:
    """What to do about an error, as the end of a sentence: the erratum of a listing that does not run as it is printed, or else
    the other hint."""
    for listing in known()["listing"]:
        if match := re.search(listing["error"], error):
            name, template = (match.groups() or ("",))[0], listing["cure"]
            cure = _(template, name=known()["import"].get(name, name)) if name else _(template)
            return _("; {cure} (docs/errata.md#{erratum})", cure, listing["erratum"])
    return otherwise and _("; {hint}", otherwise)


def load_object(target: str) -> Any:
    """`my_model.py:Model` or `package.module:Model`: the class, function or model of that name. The file is run."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UserError(
            "say which model: my_model.py:Model, a file and what it is called there, not {target!r}", target
        )
    path = Path(place).resolve()
    if place.endswith(".py") and not path.is_file():
        raise UserError("there is no file {path}", place)
    try:
        if place.endswith(".py"):
            name_here = f"audited_{path.stem}"  # no other module's name, whatever the file is called
            spec = importlib.util.spec_from_file_location(name_here, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name_here] = module  # where dataclasses look themselves up
            sys.path.insert(0, str(path.parent))
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except (Exception, SystemExit) as error:  # whatever somebody's file does when it is run
        raise UserError(
            "{path} cannot be imported: {error}{hint}", place, one_line(error), hint_of(one_line(error))
        ) from None
    if not hasattr(module, name):
        raise UserError("{path} has no {name}", place, name)
    return getattr(module, name)


def parse_args(args: Sequence[str]) -> dict[str, Any]:
    """`name=value` each, a value as Python writes it, or else a text."""
    found: dict[str, Any] = {}
    for one in args:
        name, equals, value = one.partition("=")
        if not equals:
            raise UserError("--arg is NAME=VALUE, such as vocab_size=100, not {given!r}", one)
        found[name] = value
        with contextlib.suppress(ValueError, SyntaxError):
            found[name] = ast.literal_eval(value)
    return found


def make_config(annotation: Any, thing: Any, known: Mapping[str, Any]) -> Any:
    """A config for a constructor: of its own class, small where the names are known; or any object with the fields."""
    kind = vars(sys.modules[thing.__module__]).get(annotation) if isinstance(annotation, str) else annotation
    if isinstance(kind, type) and kind is not inspect.Parameter.empty:
        with contextlib.suppress(Exception):
            return kind(**{name: known[name] for name in inspect.signature(kind).parameters if name in known})
    return SimpleNamespace(**known)


def build(target: str, args: Mapping[str, Any], vocab: int = 0) -> nn.Module:
    """The model itself; or made by a function or class, with the given arguments and small sizes for others that it needs."""
    thing = load_object(target)
    if isinstance(thing, nn.Module):
        return thing
    if not callable(thing):
        raise UserError("{target} is {kind}, and no torch.nn.Module", target, type(thing).__name__)
    known = SMALL | dict.fromkeys(VOCABULARIES, vocab or 40) | dict(args)
    if hasattr(thing, "config_class"):  # Hugging Face's
        given: dict[str, Any] = {"config": thing.config_class(**args)}
    else:
        parameters = inspect.signature(thing).parameters
        given = {name: value for name, value in args.items() if name in parameters}
        for name, p in parameters.items():
            if p.default is p.empty and name not in given and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                as_object = name in ("config", "args", "cfg", "hparams", "params", "opt")
                if not as_object and name not in known:
                    raise UserError("{target} needs {name}; say it by --arg {name}=VALUE", target, name)
                given[name] = make_config(p.annotation, thing, known) if as_object else known[name]
        unused = args.keys() - given.keys()
        if unused and given.keys() <= args.keys() | known.keys():
            raise UserError("{target} takes no {name}", target, min(unused))
    try:
        model = thing(**given)
    except Exception as error:
        hint = hint_of(one_line(error), _("say its sizes by --arg NAME=VALUE"))
        raise UserError("{target} cannot be made: {error}{hint}", target, one_line(error), hint) from None
    if not isinstance(model, nn.Module):
        raise UserError("{target} is {kind}, and no torch.nn.Module", target, type(model).__name__)
    if "_modules" not in vars(model):
        raise UserError("{target} is no whole torch.nn.Module: its __init__ begins with super().__init__()", target)
    return model
