"""An export target is one object: what people read of it is made of it, and its module does what the verb asks."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from glassformer.decode.engines import EXTERNAL_ENGINES, LogitsEngine, SearchEngine, external_engine
from glassformer.errors import UserError
from glassformer.formats.export import check
from glassformer.formats.targets import HELP, TARGETS, FormatWriter, names

ROOT = Path(__file__).parents[2]


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("name", TARGETS)
def test_its_module_provides_what_the_verb_asks(name: str) -> None:
    writer = TARGETS[name].writer
    asked = {
        part: parameters(function) for part, function in vars(FormatWriter).items() if inspect.isfunction(function)
    }
    asked = {part: given for part, given in asked.items() if not part.startswith("_")}
    assert len(asked) == 3 and isinstance(writer, ModuleType)
    assert {part: parameters(getattr(writer, part)) for part in asked} == asked


@pytest.mark.parametrize("name", TARGETS)
def test_what_it_needs_is_installed_by_its_extra(name: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert all(any(line.startswith(f"{module}>=") for line in extras[name]) for module in TARGETS[name].needs)


def test_the_documents_list_every_target() -> None:
    """Caught: a target that is new, gone or called otherwise."""
    lines = [f"    glassformer export RUN --to {t.name:<11} # {t.description}" for t in TARGETS.values()]
    assert "\n".join(["", *lines, ""]) in (ROOT / "docs/how-to/export.md").read_text(encoding="utf-8")
    chinese = (ROOT / "docs/how-to/export.zh.md").read_text(encoding="utf-8").splitlines()
    listed = [line.split()[4] for line in chinese if line.startswith("    glassformer export RUN --to ")]
    assert listed[: len(TARGETS)] == list(TARGETS)


def test_sentences_are_made_of_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(f"{target.name} ({target.help})" in HELP for target in TARGETS.values())
    assert names().replace(" or ", ", ").split(", ") == list(TARGETS) and "hf" not in names("int8")
    with pytest.raises(UserError, match="hf takes --quantize fp16 or none, not int8; int8 can be had with ct2, onnx"):
        check(None, "hf", "int8")  # type: ignore[arg-type]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="exporting to onnx needs onnx and onnxruntime; install with: pip"):
        check(None, "onnx", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EXTERNAL_ENGINES)
def test_every_engine_of_other_people_has_its_module(name: str) -> None:
    """It searches or gives logits, with the arguments that the driver passes."""
    engine = external_engine(name)
    kind, method = (LogitsEngine, "net") if name == "onnx" else (SearchEngine, "answer")
    assert isinstance(engine, kind) and isinstance(engine, LogitsEngine) is not isinstance(engine, SearchEngine)
    assert parameters(getattr(engine, method)) == parameters(getattr(kind, method))
    assert external_engine("auto") is None
