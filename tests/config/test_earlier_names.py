"""A setting of decoding under the name that earlier versions had for it: wherever people may have written it, it is understood;
beside today's name it is refused in a sentence, and what is said later takes its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glassformer.api import load
from glassformer.api.training import make_recipe
from glassformer.cli.answer_file import record_of
from glassformer.cli.verbs import run_command
from glassformer.config import DecodeConfig, Recipe, read_recipe
from glassformer.config.fine_tune import fine_tuned
from glassformer.errors import ConfigError
from glassformer.files.durable import to_json
from glassformer.runs.facts import seal_of
from glassformer.runs.folder import RunFolder
from tests.talking import make_run

BOTH = r"decode\.strict is the earlier name of decode\.batch_invariant; leave one of them out"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never trained."""
    return make_run(tmp_path_factory.mktemp("random") / "run")


def write(folder: Path, decode: str) -> str:
    path = folder / "mine.toml"
    path.write_text(f'[data]\nbuiltin = "dates"\n[decode]\n{decode}\n', encoding="utf-8")
    return str(path)


def renamed(path: Path, *keys: str) -> None:
    """The file as an earlier version wrote it, with this setting on."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    settings: dict[str, Any] = facts
    for key in keys:
        settings = settings[key]
    assert settings.pop("batch_invariant") is not None
    settings["strict"] = True
    path.write_bytes(to_json(facts | {"seal": seal_of(facts)} if "seal" in facts else facts))


def test_in_a_recipe_and_in_python(tmp_path: Path) -> None:
    file, tables = write(tmp_path, "strict = true"), {"data": {"builtin": "dates"}, "decode": {"strict": True}}
    for decode in (
        read_recipe(file).decode,
        read_recipe("dates", ["decode.strict=true"]).decode,
        read_recipe(write(tmp_path, "batch_invariant = false"), ["decode.strict=true"]).decode,
        Recipe.from_dict(tables).decode,
        make_recipe(tables, {}).decode,
        make_recipe("dates", {"strict": True}).decode,
        make_recipe("dates", {"decode.strict": True}).decode,
        fine_tuned(read_recipe("dates"), tables).decode,
        DecodeConfig(strict=True),  # type: ignore[call-arg]
    ):
        assert decode.batch_invariant is True
    later = write(tmp_path, "strict = true")
    assert not read_recipe(later, ["decode.batch_invariant=false"]).decode.batch_invariant
    assert "strict" not in read_recipe(later).to_dict()["decode"]


@pytest.mark.parametrize("today", [False, True])
def test_both_names_at_once_are_refused(today: bool, tmp_path: Path, run: Path) -> None:
    """Whether they agree or not. Caught: one that silently wins."""
    both = {"strict": True, "batch_invariant": today}
    for refused in (
        lambda: read_recipe(write(tmp_path, f"strict = true\nbatch_invariant = {str(today).lower()}")),
        lambda: read_recipe("dates", [f"decode.batch_invariant={today}", "decode.strict=true"]),
        lambda: make_recipe("dates", both),
        lambda: DecodeConfig(**both),
        lambda: load(run).settings(**both),
        lambda: run_command(
            ["translate", str(run), "cat", "--set", f"batch_invariant={today}", "--set", "strict=true"]
        ),
    ):
        with pytest.raises(ConfigError, match=BOTH):
            refused()
    with pytest.raises(ConfigError, match=r"decode\.strict must be true or false"):
        read_recipe("dates", ["decode.strict=perhaps"])


def test_in_run_json(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    assert not load(folder).settings().batch_invariant
    renamed(folder / "run.json", "recipe", "decode")
    assert RunFolder(folder).recipe.decode.batch_invariant and load(folder).settings().batch_invariant


@pytest.mark.slow
def test_as_a_keyword_of_the_verbs_in_python(run: Path) -> None:
    model: Any = load(run)
    assert model.settings(strict=True) == model.settings(batch_invariant=True) != model.settings()
    assert model.translate("the cat", strict=True) == model.translate("the cat", batch_invariant=True)


@pytest.mark.slow
def test_on_the_command_line_and_in_the_record_of_an_interrupted_job(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source.txt"
    source.write_text("the cat\n", encoding="utf-8")
    for number, (given, wanted) in enumerate(
        {("--strict",): True, ("--batch-invariant",): True, ("--set", "strict=true"): True, (): False}.items()
    ):
        out = tmp_path / f"{number}.txt"
        command = ["translate", str(run), "--file", str(source), "--out", str(out), *given]
        assert run_command(command) == 0
        job = json.loads(record_of(out).read_text(encoding="utf-8"))["job"]
        assert job["options"]["batch_invariant"] is wanted and "strict" not in job["options"]
    command = ["translate", str(run), "--file", str(source), "--out", str(tmp_path / "0.txt"), "--resume"]
    renamed(record_of(tmp_path / "0.txt"), "job", "options")
    assert run_command([*command, "--batch-invariant"]) == 0
    with pytest.raises(
        ConfigError, match="there is no setting 'nonsense' in"
    ):  # of the server, whose options are read first
        run_command(["serve", str(run), "--strict", "--limit", "nonsense=1"])
    capsys.readouterr()
    run_command(["translate", "--help"])
    assert "--batch-invariant" in (shown := capsys.readouterr().out) and "--strict" not in shown
