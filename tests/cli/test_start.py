"""How the command line starts: quickly, in groups, and in one sentence where it is called wrongly."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import glassformer
from glassformer.cli.verbs import FIRST, groups, make_app, run_command
from glassformer.config import VERSION
from glassformer.errors import ConfigError
from glassformer.screen import QUIET, say
from tests.programs import run_program

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_whatever_needs_no_torch_does_not_wait_for_it() -> None:
    """Every --help, tables made from a config, and mistakes in a recipe. Caught: one import of a room that
    needs torch at the top of any verb, or in the package's own file."""
    run_program("help_without_torch")


@pytest.mark.slow
def test_what_compiles_nothing_does_not_wait_for_the_compiler(tmp_path: Path) -> None:
    """Its import takes as long as all the rest of a short training's start. Caught: torch's own AdamW, or its `zero_grad`;
    weights drawn, or a table of sines made, on the meta device."""
    small = ["model.n_layer=1", "model.n_embd=16", "model.n_head=1", "model.n_hidden=16", "data.size=50"]
    chosen = ["train.steps=2", "train.device=cpu", "train.optimizer=muon", "--out", str(tmp_path / "run")]
    commands = [["train", "copy", *small, *chosen, "--quiet"], ["info", "dates", "--taps"]]
    code = "import sys; from glassformer.cli.verbs import run_command; "
    code += f"print(sum(map(run_command, {commands}))); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    *_said, codes, modules = done.stdout.splitlines()
    assert codes == "0", done.stderr
    assert "torch.optim" in modules.split() and "torch._dynamo" not in modules.split()


def test_public_names_are_there_when_they_are_asked_for() -> None:
    for name in glassformer.__all__:
        assert getattr(glassformer, name) is not None and name in dir(glassformer)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        glassformer.nonsense  # noqa: B018


@pytest.mark.parametrize("columns", [70, 200])
def test_help_is_as_wide_as_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A paragraph is broken where its line is full, and there alone. Broken variant: the source's line ends, kept and wrapped
    again."""
    monkeypatch.setenv("COLUMNS", str(columns))
    run_command(["train", "--help"])
    prose = capsys.readouterr().out.partition("╭")[0].partition("Train a model")[2]
    for paragraph in re.split(r"\n\s*\n", prose):
        lines = paragraph.strip().splitlines()
        for line, following in itertools.pairwise(lines):
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > columns - 16, (line, following)
    assert "A recipe with --resume" in prose


def test_no_words_of_help_are_taken_for_markup() -> None:
    """Whatever stands in square brackets is bold, or shown. Caught: "what it does ()", where the names of the parts were taken
    for a style."""

    def texts(command: Any) -> Iterator[str]:
        for thing in (command, *command.params):
            yield from filter(None, (getattr(thing, "help", None), getattr(thing, "epilog", None)))
        for verb in getattr(command, "commands", {}).values():
            yield from texts(verb)

    for text in texts(typer.main.get_command(make_app())):
        assert set(re.findall(r"(?<!\\)\[[a-z/#@][^\[\]]*\]|\[/\]", text)) <= {"[bold]", "[/]"}, text


def test_help_shows_ten_verbs_and_all_of_them_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """Broken variants: a verb that is hidden is no verb any more, or is hidden from the shell's completion, too."""
    assert run_command(["--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in FIRST if f"│ {name} " not in text] == [] and text.count("│ plan ") == 0
    assert "glassformer --help --all" in text
    assert run_command(["--help", "--all"]) == run_command(["plan", "--help"]) == 0
    text = capsys.readouterr().out
    for heading, verbs in groups().items():
        assert heading in text and all(f" {verb} " in text for verb in verbs)
    assert make_app().info.help is not None
    run_command(["--version"])
    assert capsys.readouterr().out == f"glassformer {VERSION}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["train", "x", "--steps", "3"],
            "--steps is a setting and no option; write train.steps=…; see: glassformer train --help",
        ),
        (
            ["train", "x", "--n-head=2"],
            "--n-head is a setting and no option; write model.n_head=…; see: glassformer train --help",
        ),
        (
            ["train", "x", "--stepz", "3"],
            "there is no option --stepz (did you mean 'train.steps=…'?); see: glassformer train --help",
        ),
        (["serve", "x", "--stepz", "3"], "there is no option --stepz; see: glassformer serve --help"),
        (["train", "--opt", "x"], "there is no option --opt (did you mean '--out'?); see: glassformer train --help"),
        (["translate"], "missing argument 'run'; see: glassformer translate --help"),
    ],
)
def test_a_command_that_cannot_be_understood(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        run_command(arguments)
    assert str(error.value).casefold() == said.casefold()


def test_quiet_before_or_after_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, quiet in ((["recipes"], False), (["-q", "recipes"], True), (["recipes", "--quiet"], True)):
        run_command(arguments)
        assert QUIET.get() == quiet
        capsys.readouterr()
        say("hello")
        assert capsys.readouterr().err == ("" if quiet else "hello\n")
    run_command(["recipes"])
    assert not QUIET.get()


def test_the_completion_for_a_shell_can_be_had() -> None:
    # Typer asks which shell has started it, so a shell must: under `sh` there is nothing to be had.
    command = f"{sys.executable} -m glassformer --show-completion; exit $?"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "complete -o default -F" in done.stdout and "glassformer" in done.stdout, done


@pytest.mark.parametrize(
    "command",
    [
        f"PYTHONIOENCODING=ascii {sys.executable} -m glassformer recipes",
        f"PYTHONIOENCODING=latin-1 {sys.executable} -m glassformer --help",
        f"{sys.executable} -m glassformer --version >&-",
    ],
)
def test_terminals_that_cannot_show_everything(command: str) -> None:
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr, done.stderr


def test_a_full_stdout_is_told() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m glassformer recipes > /dev/full"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.decode().count("\n") == 1 and b"No space left" in done.stderr


def test_text_is_never_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """A run called `a[/b]` and data with `[INST]` or `:smile:` are shown as they are. Caught: a console with markup on."""
    from rich.table import Table

    from glassformer.screen import table_console

    table = Table(title="a[/b]")
    table.add_column("[bold]x[/]")
    table.add_row("[INST] :smile: [/INST]")
    console = table_console()
    console.print(table)
    console.print("[red]a[/b]")
    text = capsys.readouterr().out
    for part in ("a[/b]", "[bold]x[/]", "[INST] :smile: [/INST]", "[red]a[/b]"):
        assert part in text


def test_no_verb_makes_a_console_of_its_own() -> None:
    """Every table goes through `table_console`, every bar through `Progress`."""
    for path in (ROOT / "glassformer").rglob("*.py"):
        if path.name != "screen.py":
            content = path.read_text(encoding="utf-8")
            assert "Console(" not in content and "rich.progress" not in content, path.name


WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
SHOW = f"import glassformer, os; print([k for k in {sorted(WAITING)} if k in os.environ])"


@pytest.mark.parametrize(
    ("first", "own", "there"),
    [
        ("", {}, ["GOMP_SPINCOUNT", "KMP_BLOCKTIME"]),
        ("", {"OMP_WAIT_POLICY": "ACTIVE"}, ["OMP_WAIT_POLICY"]),
        ("import sys; sys.modules['torch'] = sys; ", {}, []),
    ],
)
def test_threads_do_not_spin_for_long(first: str, own: dict[str, str], there: list[str]) -> None:
    """Said before torch is loaded, unless somebody has said otherwise or it is too late. Caught: another's policy overruled; an
    environment changed to no effect; torch imported in the package's own file, before this is said."""
    environment = {k: v for k, v in os.environ.items() if k not in WAITING} | own
    done = subprocess.run(
        [sys.executable, "-c", first + SHOW], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(there)
