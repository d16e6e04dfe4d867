"""The cases of the fuzzer. A case is drawn by its number: it spoils something in a folder of its own, and names the command
that meets it."""

from __future__ import annotations

import inspect
import json
import random
import shutil
import tomllib
import typing
from functools import cache
from pathlib import Path
from typing import Any

import typer

from glassformer.cli import data as data_verbs
from glassformer.cli.options import as_command
from glassformer.cli.verbs import groups, name_of
from glassformer.config.recipe import PARTS
from tests.fuzz import mutations
from tests.runs.test_isolation import RECIPE

EXTREMES = [
    *("-1", "0", "1", "1000000000", "1000000000000", "9" * 400, "1e400", "-1e9", "1e-30", "0.5", "nan", "inf"),
    *("", "none", "true", "x", "[]", "[[1]]", "1,1", "-1,2", "{}", "\u00fc\u4e2d\U0001f600", "[/b]", "../../etc"),
    *("x" * 3000, "not\udce9utf8", "a\nb", "\x1b[31m"),
]
PATHS = [
    "",
    "nowhere/at/all",
    "theirs",
    "theirs/notes.md",
    "/dev/full",
    "/dev/zero",
    "x" * 3000,
    "not\udce9utf8",
    "[/b]",
    ".",
]
LEGITIMATE = {"train.steps", "data.size"}  # large values of these ask for long work that somebody may want
VERBS: dict[str, list[Any]] = {
    "pairs": ["translate", "RUN", "eins zwei drei"],
    "text": ["generate", "RUN", "--prompt", "eins zwei", "--set", "temperature=0"],
    "classify": ["classify", "RUN", "eins zwei drei"],
    "masked": ["fill", "RUN", "eins ___ drei"],
    "tag": ["tag", "RUN", "eins zwei drei"],
}
"""For each kind of run the verb that answers by it."""
COMMANDS: dict[str, list[Any]] = {
    "translate": ["pairs", "eins zwei"],
    "generate": ["text", "--prompt", "eins"],
    "fill": ["masked", "eins ___"],
    "classify": ["classify", "eins"],
    "tag": ["tag", "eins"],
    "evaluate": ["pairs", "--limit", "2"],
    "score": ["text", "eins zwei"],
    "compare": ["pairs", "pairs", "--examples", "2"],
    "look": ["pairs", "eins zwei", "--out", "new"],  # without it, into the run's own folder
    "heads": ["pairs", "--examples", "2", "--out", "new"],
    "doctor": ["pairs"],
    "info": ["pairs", "--tokenize", "eins"],
    "museum": ["--list"],
    "audit": ["glassformer.classic:GPT"],
    "homework": ["attention"],
    "plan": ["mine.toml"],
    "recipes": [],
    "train": ["mine.toml", "train.steps=1"],
    "import": ["theirs"],
    "export": ["pairs", "--to", "gguf", "--out", "new"],
    "data check": ["train.tsv"],
    "data get": ["shakespeare", "--mirror", "http://127.0.0.1:9"],
}
"""What each verb is called with; its options come from its signature. What trains for
minutes whatever it is given (`demo`, `reproduce`, `verify-resume`, `sweep`, `complexity`, `study`) or serves without end is left
out."""


@cache
def options_of(verb: str) -> dict[str, Any]:
    """The options of a verb as they are written, and the type of each."""
    every = {name: function for group in groups().values() for name, function in group.items()}
    function = (every | {f"data {name_of(one)}": one for one in data_verbs.VERBS})[verb]
    found = {}
    for name, parameter in inspect.signature(as_command(function)).parameters.items():
        kind, *notes = typing.get_args(parameter.annotation)
        if isinstance(notes[0], typer.models.OptionInfo):
            given = [word for word in notes[0].param_decls or () if word.startswith("--")]
            found[given[0] if given else "--" + name.replace("_", "-")] = kind
    return found


def as_toml(value: Any) -> str:
    """A value as TOML writes it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {as_toml(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(v) for v in value if v is not None) + "]"
    return json.dumps(value)


class Case:
    """One thing spoiled, and the command that meets it."""

    def __init__(self, number: int, home: Path, folder: Path) -> None:
        self.draw = random.Random(number)
        self.home, self.folder = home, folder
        self.kind = self.draw.choice(list(VERBS))
        self.told = ""
        self.answer_counts = False  # whether an answer without a word must be the right one
        self.theirs = folder / "theirs"
        self.theirs.mkdir()
        for name in ("notes.md", "metrics.jsonl", "tokenizer.json"):
            (self.theirs / name).write_text(f"somebody's {name}\n")

    def run_copy(self) -> Path:
        shutil.copytree(self.home / self.kind / "run", self.folder / "run")
        return self.folder / "run"

    def write_recipe(self, data: Path) -> Path:
        recipe = self.folder / "mine.toml"
        recipe.write_text(RECIPE.format(name="mine", data=data))
        return recipe

    def own_verb(self) -> list[Any]:
        """The command whose answer is known."""
        return [self.folder / "run" if word == "RUN" else word for word in VERBS[self.kind]]

    def verb(self, run: Path) -> list[Any]:
        resume = ["train", run, "train.steps=5", "--resume", "--accept-changes"]
        others = [["doctor", run], resume, ["evaluate", run, "--limit", "2"], ["info", run]]
        return self.draw.choice([self.own_verb(), self.own_verb(), *others])

    def seal(self, run: Path, path: Path, chance: float) -> None:
        """With or without seals that say the file was written so: with them, the checks behind the checksums are reached."""
        sealed = self.draw.random() < chance
        if sealed:
            mutations.make_right(run, path)
            self.told += " (sealed again)"
        self.answer_counts = not sealed

    def spoiled_field(self) -> list[Any]:
        """A field of a JSON file of the run, or of the header of a file of tensors."""
        run = self.run_copy()
        paths = sorted(p for p in run.rglob("*") if p.suffix in (".json", ".safetensors"))
        path = self.draw.choice(paths)
        if path.suffix == ".json":
            value, what = mutations.spoil_field(json.loads(path.read_bytes()), self.draw)
            path.write_bytes(json.dumps(value).encode("utf-8", "surrogatepass"))
        else:
            what = mutations.spoil_tensor_header(path, self.draw)
        self.told = f"{path.relative_to(run)}: {what}"
        self.seal(run, path, 0.5 if path.suffix == ".json" else 0.9)
        return self.verb(run)

    def spoiled_bytes(self) -> list[Any]:
        run = self.run_copy()
        path = self.draw.choice(sorted(p for p in run.rglob("*") if p.is_file()))
        how = mutations.spoil_bytes(path, self.draw)
        self.told = f"{path.relative_to(run)}: {how}"
        self.seal(run, path, 0.3 if path.is_file() and not path.is_symlink() else 0)
        return self.verb(run)

    def stray_file(self) -> list[Any]:
        """What other programs leave, and what somebody copied to the wrong place."""
        run = self.run_copy()
        names = ["._model.safetensors", "training.safetensors", "model2.safetensors", "state.json~", ".DS_Store"]
        where = self.draw.choice([run / "final", run, run / "data", *run.glob("checkpoints/*")])
        path = where / self.draw.choice(names)
        path.write_bytes(self.draw.randbytes(100))
        self.told, self.answer_counts = f"{path.relative_to(run)} is there", True
        return self.verb(run)

    def spoiled_recipe(self) -> list[Any]:
        """A field of a recipe: a wrong type, an absurd size, a table in the place of a number."""
        recipe = self.write_recipe(self.home / "pairs" / "train.tsv")
        value, self.told = mutations.spoil_field(tomllib.loads(recipe.read_text()), self.draw)
        value = value if isinstance(value, dict) else {"model": value}
        text = "".join(f"{json.dumps(k)} = {as_toml(v)}\n" for k, v in value.items() if v is not None)
        recipe.write_bytes(text.encode("utf-8", "surrogatepass"))
        long = "steps" in self.told  # so many steps are somebody's wish
        verb = ["plan", recipe] if long else ["train", recipe, "train.steps=1", "--out", self.folder / "new"]
        return self.draw.choice([verb, verb, ["info", recipe]])

    def extreme_setting(self) -> list[Any]:
        part = self.draw.choice(list(PARTS))
        name = self.draw.choice(list(typing.get_type_hints(PARTS[part])))
        value = self.draw.choice(EXTREMES[:3] if f"{part}.{name}" in LEGITIMATE else EXTREMES)
        recipe = self.write_recipe(self.home / "pairs" / "train.tsv")
        self.told = f"{part}.{name}={value[:60]!r}"
        steps = [] if name == "steps" else ["train.steps=1"]
        return ["train", recipe, *steps, f"{part}.{name}={value}", "--out", self.folder / "new"]

    def extreme_option(self) -> list[Any]:
        """An option of a verb, from the verb's own signature."""
        verb = self.draw.choice(list(COMMANDS))
        shutil.copy(self.home / "pairs" / "train.tsv", self.folder)
        self.write_recipe(self.folder / "train.tsv")
        words = [self.home / word / "run" if word in VERBS else word for word in COMMANDS[verb]]
        kinds = options_of(verb)
        name = self.draw.choice([*kinds, "--not-an-option"])
        values = PATHS if Path in (kinds.get(name), *typing.get_args(kinds.get(name))) else EXTREMES
        given = [] if kinds.get(name) is bool else [self.draw.choice(values)]
        if name == "--set":
            given = [f"{self.draw.choice(list(typing.get_type_hints(PARTS['decode'])))}={given[0]}"]
        self.told = f"{verb} {name} {str(given)[:60]}"
        return [*verb.split(), *words, name, *given]

    def hostile_data(self) -> list[Any]:
        path, self.told = mutations.hostile_data(self.folder, self.draw)
        train = ["train", self.write_recipe(path), "train.steps=1", "--out", self.folder / "new"]
        lines = ["translate", self.home / "pairs" / "run", "--file", path, "--out", self.folder / "answers"]
        return self.draw.choice([train, ["data", "check", path], lines])

    def command(self) -> list[Any]:
        kinds = [self.spoiled_field, self.spoiled_field, self.spoiled_bytes, self.spoiled_bytes, self.stray_file]
        kinds += [
            self.spoiled_recipe,
            self.extreme_setting,
            self.extreme_option,
            self.extreme_option,
            self.hostile_data,
        ]
        return self.draw.choice(kinds)()
