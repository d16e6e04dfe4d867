"""`glassformer tokenize`: what a tokenizer makes of a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli import lines, options
from glassformer.errors import ConfigError, UserError


@options.documented
def tokenize(
    tokenizer: Path,
    texts: options.Texts = None,
    file: options.InputFile = None,
    side: str = "source",
    decode: bool = False,
    as_json: options.AsJson = False,
) -> None:
    """The pieces that a tokenizer cuts texts into, with | between them, then a tab and their ids; or, with --decode, the text
    of ids. Control tokens (BOS, EOS) are the model's and not shown; what the vocabulary does not have is <unk>."""
    given = lines.Input(texts, file)
    given.check()
    if side not in ("source", "target"):
        raise ConfigError("--side is source or target, not {side!r}", side)
    from glassformer.runs.folder import RunFolder
    from glassformer.text.imported import load_tokenizer

    cut = getattr(RunFolder.open(tokenizer).tokenizers, side) if tokenizer.is_dir() else load_tokenizer(tokenizer)

    def written(text: str) -> str:
        if decode:
            try:
                ids = [int(word) for word in text.replace(",", " ").split()]
            except ValueError:
                raise UserError("with --decode a text is ids, such as 5 8 2, not {text!r}", text) from None
            out = cut.decode(ids)
            return lines.as_line({"ids": ids, "text": out}) if as_json else lines.escaped(out)
        ids = cut.encode(text)
        pieces = cut.pieces(ids)
        if as_json:
            return lines.as_line({"source": text, "ids": ids, "pieces": pieces})
        return lines.escaped("|".join(pieces).replace("\t", "\\t")) + "\t" + " ".join(map(str, ids))

    def answer(texts: Sequence[str]) -> list[lines.Output]:
        return [lines.Output([written(text)]) for text in texts]

    empty: dict[str, Any] = {"text": ""} if decode else {"ids": [], "pieces": []}
    lines.reply(given, lines.TextJob("tokenize", "", {"json": as_json}, answer, as_json, empty))
