"""What the shell completes: recipes and their files, run folders, and settings. Only names and folders are looked at.

`glassformer --install-completion` teaches it to the shell; the rest is Typer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

DATA = (".tsv", ".csv", ".jsonl", ".txt", ".gz", ".parquet")


def paths(incomplete: str) -> Iterator[tuple[str, Path]]:
    """What is in the folder that the word has come to and goes on as it begins, as it would be typed."""
    folder, _, begun = incomplete.rpartition("/")
    before = f"{folder}/" if "/" in incomplete else ""
    try:
        found = sorted(Path(before or ".").iterdir())
    except OSError:
        return
    for path in found:
        if path.name.startswith(begun) and (begun or not path.name.startswith(".")):
            yield before + path.name, path


def complete_run(incomplete: str) -> list[str]:
    """Run folders, and folders on the way to one; before anything is typed, what is in runs/."""
    if not incomplete and (known := complete_run("runs/")):
        return known
    return [word if (path / "run.json").exists() else f"{word}/" for word, path in paths(incomplete) if path.is_dir()]


def complete_recipe(incomplete: str) -> list[str]:
    """The built-in recipes, .toml files and files of data, and run folders to go on with."""
    from glassformer.config import recipe_names

    names = [name for name in recipe_names() if name.startswith(incomplete)]
    return (
        names + [word for word, path in paths(incomplete) if path.suffix in (".toml", *DATA)] + complete_run(incomplete)
    )


def complete_setting(incomplete: str) -> list[str]:
    """`train.steps=` and all others."""
    from dataclasses import fields

    from glassformer.config.recipe import PARTS

    every = (f"{part}.{field.name}=" for part, kind in PARTS.items() for field in fields(kind))
    return [word for word in every if word.startswith(incomplete)]


COMPLETED: dict[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(("run", "runs", "first", "second", "from_run", "tokenizer"), complete_run),
    "recipe": complete_recipe,
    "overrides": complete_setting,
}
"""By the names that the parameters of verbs have."""
