"""The README, done: every command in it runs, the Chinese one is in step, and its tree is that of the disk.

One small run for all of them: the recipes of the README, made small by the command line's own overrides. What installs is asked
of make without doing it; the server is asked over loopback and told to end; what would fetch something from the network is
only held to the names that there are."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ENVIRONMENT, call
from tests.small_runs import write_data

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
TINY = ["train.steps=2", "train.validate_every=2", "train.save_every=2", "train.validate_examples=2", "model.n_embd=16"]
DATES = [*TINY, "model.n_hidden=16", "data.size=300"]


def fenced(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def prompts(text: str) -> list[str]:
    """The commands of the console blocks, in order."""
    return [
        line.removeprefix("$ ") for block in fenced(text, "console") for line in block.splitlines() if line[:2] == "$ "
    ]


def inline(text: str) -> list[str]:
    return re.findall(r"`(glassformer [^`]+)`", text)


def headings(text: str) -> list[str]:
    """The levels of the headings, in order: their words differ."""
    return re.findall(r"^(#+) ", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)


def commands(text: str) -> list[str]:
    """Every line of code without its comment, of the consoles the commands alone; and every command in backticks."""
    code = "\n".join(
        [*fenced(text, "python"), *fenced(text, "toml"), *re.findall(r"^ {4}(make .*)$", text, re.MULTILINE)]
    )
    written = [re.sub(r"\s*#.*", "", line).strip() for line in code.splitlines()]
    return [line for line in written if line] + prompts(text) + inline(text)


def tables(text: str) -> list[str]:
    """For each table its rows, as a number."""
    return [f"a table of {block.count(chr(10))} lines" for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def links(text: str) -> list[str]:
    """Where links lead; a page or picture that there is in Chinese stands for the English one."""
    found = (link.replace(".zh.", ".") for link in re.findall(r"\]\(([^)]+)\)", text))
    return [link for link in found if link != "README.md"]


def rooms(text: str) -> list[str]:
    """The folders of the tree."""
    return re.findall(r"^  (\w+)/ ", "".join(fenced(text, "text")), re.MULTILINE)


@pytest.mark.parametrize("what", [headings, commands, tables, links, rooms], ids=lambda f: f.__name__)
def test_the_chinese_readme_is_in_step(what: object) -> None:
    english, chinese = Counter(what(ENGLISH)), Counter(what(CHINESE))  # type: ignore[operator]
    missing, extra = sorted((english - chinese).elements()), sorted((chinese - english).elements())
    told = f"README.zh.md is out of step with README.md in its {what.__name__}: "  # type: ignore[attr-defined]
    assert english and not missing and not extra, told + f"it lacks {missing} and has {extra} that README.md has not"


def test_both_lead_to_each_other_and_to_files_that_are_there() -> None:
    assert "(README.zh.md)" in ENGLISH and "(README.md)" in CHINESE
    for text in (ENGLISH, CHINESE):
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert "://" in link or (ROOT / link).exists(), link
    for link in re.findall(r"\]\((docs/[^)#]+\.md)", CHINESE):
        in_chinese = link.replace(".md", ".zh.md")
        assert link.endswith(".zh.md") or not (ROOT / in_chinese).exists(), f"{in_chinese} is there; link to it"


def test_a_difference_would_be_seen() -> None:
    """Broken variants: a command, a row, a room left out, a heading of another level."""
    assert Counter(commands(ENGLISH)) != Counter(commands(ENGLISH.replace("glassformer plan", "glassformer plans")))
    assert tables(ENGLISH) != tables(re.sub(r"^\| `copy`.*\n", "", ENGLISH, flags=re.MULTILINE))
    assert headings(ENGLISH) != headings(ENGLISH.replace("## What is built in", "### What is built in"))
    assert rooms(ENGLISH) != rooms(ENGLISH.replace("  probe/ ", ""))


def test_the_tree_is_that_of_the_disk() -> None:
    there = {p.name for p in (ROOT / "glassformer").iterdir() if p.is_dir() and not p.name.startswith(("_", "."))}
    assert Counter(rooms(ENGLISH)) == Counter(there)


def test_the_walks_of_contributing_lead_to_what_is_there() -> None:
    """Every `name` (`file.py`) is in that file, every file exists. Caught: a walk that a renaming has left behind."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text[text.index("## Walks") : text.index("## Words")]
    for path in re.findall(r"`([\w/]+\.(?:py|md|po))`", walks):
        assert any((ROOT / room / path).is_file() for room in (".", "glassformer")), path
    named = re.findall(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)", walks)
    assert len(named) > 10
    for name, path in named:
        file = next(f for room in ("glassformer", ".") if (f := ROOT / room / path).is_file())
        source = file.read_text(encoding="utf-8")
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", source), f"{name} is not in {path}"


def test_the_recipes_named_are_those_there_are() -> None:
    from glassformer.config import recipe_names

    (table,) = re.findall(r"^\| recipe .*\n(?:\|.*\n)+", ENGLISH, re.MULTILINE)
    assert set(re.findall(r"`([a-z0-9-]+)`", table)) <= set(recipe_names())


# ---- every command


def test_what_make_is_asked_for() -> None:
    wanted = re.findall(r"^ {4}make (\w+)", ENGLISH, re.MULTILINE) + re.findall(r"`make (\w+)`", ENGLISH)
    assert {"demo", "test", "docs"} <= set(wanted)
    done = subprocess.run(["make", "--dry-run", *wanted], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pairs.tsv and mine.toml as the README has them, and the run `dates`, of two steps."""
    folder = tmp_path_factory.mktemp("readme")
    write_data(folder, "pairs")
    (folder / "train.tsv").rename(folder / "pairs.tsv")
    (folder / "mine.toml").write_text(fenced(ENGLISH, "toml")[0], encoding="utf-8")
    (folder / "my_model.py").write_text("from glassformer.classic import GPT as Model\n", encoding="utf-8")
    done = call("train", "dates", *DATES, cwd=folder)
    assert done.returncode == 0, done.stderr
    for other in ("a", "b"):
        (folder / "runs" / other).symlink_to("dates")
    return folder


def run_it(command: str, place: Path) -> None:
    """A command of the README, as it stands but for its size."""
    words = shlex.split(command)[1:]
    if words[:2] == ["data", "get"]:
        from glassformer.data.download import collections

        assert words[2] in collections()
        return
    if words == ["reproduce", "NAME"]:
        words = ["reproduce"]  # the list of names
    if words[0] == "train" and "--resume" not in words:
        words += TINY
    words += {"plan": ["--seconds", "0.2"], "heads": ["--examples", "2", "--loss-only"]}.get(words[0], [])
    words += {"look": ["--no-pictures"], "compare": ["--examples", "4"]}.get(words[0], [])
    done = call(*words, cwd=place)
    assert done.returncode == 0, (command, done.stderr)


@pytest.mark.slow
def test_every_command_runs(place: Path) -> None:
    """In the order of the README: what a later one needs an earlier one has made."""
    done = [c for c in dict.fromkeys([*prompts(ENGLISH), *inline(ENGLISH)]) if c.startswith("glassformer ")]
    served = [command for command in done if command.startswith(("glassformer serve", "glassformer open"))]
    own = [c for c in done if c not in served and "<" not in c]
    assert len(own) >= 12 and served
    for command in own:
        run_it(command, place)


@pytest.fixture
def server(place: Path) -> Iterator[str]:
    """The README's server, on a free port."""
    (command,) = (c for c in prompts(ENGLISH) if c.startswith("glassformer serve"))
    words = [sys.executable, "-m", "glassformer", *shlex.split(command)[1:], "--port", "0"]
    process = subprocess.Popen(words, cwd=place, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                yield found[1]
                break
        else:
            pytest.fail("the server never listened")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


@pytest.mark.slow
def test_the_server_answers_the_request(server: str) -> None:
    (asked,) = (shlex.split(c) for c in prompts(ENGLISH) if c.startswith("curl"))
    fields = dict(word.split("=", 1) for flag, word in itertools.pairwise(asked) if flag == "-d")
    path = urllib.parse.urlsplit(f"//{next(word for word in asked if word.startswith('localhost'))}").path
    body = urllib.parse.urlencode(fields).encode()
    with urllib.request.urlopen(server + path, body, timeout=60) as answer:
        assert "translatedText" in json.load(answer)


@pytest.mark.slow
def test_the_one_file_begins_as_it_is_shown() -> None:
    """(That it learns what it is taught is asked in tests/classic/test_files.py.) Broken variants: a file that has moved; a model
    of another size than the README's."""
    (command,) = (c for c in prompts(ENGLISH) if c.startswith("python3"))
    words = [sys.executable, *shlex.split(command)[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        process.kill()
    shown = next(block for block in fenced(ENGLISH, "console") if command in block)
    assert "parameters" in first and first in shown


def figures_in(text: str) -> Counter[str]:
    """Every number of a README, as often as it stands there; 229k and 22.9 万 are one, and a month's number is none."""
    text = re.sub(r"(?<=年) \d+ 月", "", text)
    text = re.sub(r"([\d.]+) 万", lambda m: f"{float(m[1]) * 10:g}k", text)
    return Counter(found.rstrip(".,") for found in re.findall(r"(?<![\w.#])\d[\d,.]*(?:k(?![A-Za-z])|%)?", text))


def test_the_page_on_pypi_needs_nothing_beside_it() -> None:
    """There a link into the repository, or a picture of it, leads nowhere; and its commands are commands. Broken variant:
    README.md."""
    (name,) = re.findall(r'^readme = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    page = (ROOT / name).read_text(encoding="utf-8")
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]*)\)", page)) and "![" not in page
    verbs = re.findall(r"^ {4}glassformer (\w+)", page, re.MULTILINE)
    assert len(verbs) > 5 and all(call(verb, "--help").returncode == 0 for verb in verbs)


def test_both_readmes_give_the_same_figures() -> None:
    """Caught: a measurement that was brought up to date in one language alone."""
    english, chinese = figures_in(ENGLISH), figures_in(CHINESE)
    assert english - chinese == chinese - english == Counter() and english.total() > 150
