"""The walk of one sentence through `model.translate`: the files of the package that are handed it, in order.

    python3 bench/walk.py runs/dates "3 mai 1979"

A second call is watched, when everything that is made once has been made. A stay is a file in which a function is given the
sentence, its tokens, or something that holds them; going back to a file that was left counts again (`--returns`) or not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import glassformer

PACKAGE = Path(glassformer.__file__).parent


def holds(value: Any, text: str, ids: list[int], depth: int = 2) -> bool:
    """Is it the sentence or its tokens, or a thing that has them?"""
    if isinstance(value, str):
        return value == text
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.long and value.numel() >= len(ids) and value.flatten()[: len(ids)].tolist() == ids
    if isinstance(value, list | tuple):
        if list(value[: len(ids)]) == ids:
            return True
        return bool(depth) and any(holds(one, text, ids, depth - 1) for one in value[:4])
    inner = [getattr(value, name, None) for name in ("ids", "tokens", "text", "sources", "pieces")]
    return bool(depth) and any(holds(one, text, ids, depth - 1) for one in inner if one is not None)


def walk(model: Any, text: str) -> list[tuple[str, str]]:
    """File and function of every call that is handed the sentence, in order."""
    ids, found = model.tokenizer.encode(text), []
    seen = False

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal seen
        path = Path(frame.f_code.co_filename)
        if seen or event != "call" or PACKAGE not in path.parents:
            return
        code = frame.f_code
        seen = True  # what is looked at here may call functions of the package
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(holds(frame.f_locals.get(name), text, ids) for name in names if name != "self"):
            found.append((path.relative_to(PACKAGE).as_posix(), code.co_qualname))
        seen = False

    model.translate(text)
    sys.setprofile(watch)
    try:
        model.translate(text)
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("text")
    parser.add_argument("--returns", action="store_true", help="count a file again when the sentence comes back to it")
    given = parser.parse_args()
    calls = walk(glassformer.load(given.run), given.text)
    stays: list[tuple[str, str]] = []
    for file, function in calls:
        known = stays[-1:] if given.returns else stays
        if file not in [before for before, _ in known]:
            stays.append((file, function))
    for number, (file, function) in enumerate(stays, 1):
        print(f"{number:3}  {file:28} {function}")
    rooms = {file.split("/")[0].removesuffix(".py") for file, _ in stays}
    print(f"{len(stays)} stays in {len(rooms)} rooms: {', '.join(sorted(rooms))}")


if __name__ == "__main__":
    main()
