"""Alignment by words: links of tokens gathered into links of words, as Pharaoh wrote them (0-0 1-2 …)."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.decode import Hypothesis
from glassformer.decode.align import alignments, prompt_alignments
from glassformer.decode.ensemble import Ensemble
from glassformer.errors import UserError
from glassformer.models import Transformer
from glassformer.tasks.results import Answer, DecodedPart
from glassformer.tasks.text_model import TextModel
from glassformer.tasks.translate import source_ids
from glassformer.text.languages import is_han


def words_of_pieces(pieces: Sequence[str]) -> list[int | None]:
    """For each piece of a text the number of the word that its first letter belongs to; None for one of blanks alone. Words
    stand between blanks; a Chinese character is one by itself.

    >>> words_of_pieces(["The", " ho", "use", " ", "sta", "nds"])
    [0, 1, 1, None, 2, 2]
    """
    found: list[int | None] = []
    word, inside = -1, False
    for piece in pieces:
        first = None
        for letter in piece:
            if letter.isspace():
                inside = False
                continue
            alone = is_han(letter)
            if not inside or alone:
                word += 1
            inside = not alone
            first = word if first is None else first
        found.append(first)
    return found


def word_links(answer: Answer, *, tokens_are_words: bool = False) -> list[tuple[int, int]]:
    """(source word, answer word), counted from 0 through all parts, each link once. `tokens_are_words`: for a tokenizer whose
    pieces are words and hold no blanks."""
    links: set[tuple[int, int]] = set()
    before_source = before_target = 0
    for part in answer.parts:
        numbered: list[list[int | None]] = [
            list(range(len(side))) if tokens_are_words else words_of_pieces(side)
            for side in (part.source_tokens, part.tokens)
        ]
        source, target = numbered
        for s, t in part.links:
            if s < len(source) and t < len(target) and source[s] is not None and target[t] is not None:
                links.add((before_source + int(source[s] or 0), before_target + int(target[t] or 0)))
        before_source += 1 + max((w for w in source if w is not None), default=-1)
        before_target += 1 + max((w for w in target if w is not None), default=-1)
    return sorted(links)


def forced_links(model: TextModel, source: str, target: str) -> list[tuple[int, int]]:
    """The word links of a pair whose target may be anyone's: the attention while it is forced on the model."""
    model.require("translate")
    read, written = source_ids(model, model.tokenizers.source.encode(source)), model.tokenizers.target.encode(target)
    longest = model._model.config.block_size
    if max(len(read), len(written) + 1) > longest:
        raise UserError("a side of the pair has more than the {longest} tokens that the model reads at once", longest)
    if not read or not written:
        return []
    net = model._model.members[0] if isinstance(model._model, Ensemble) else model._model
    if isinstance(net, Transformer):
        (weights,) = alignments(net, [read], [written], bos=model.special_tokens.bos)
    else:
        (weights,) = prompt_alignments(net, [read], [written])
    found = Hypothesis(written, 0.0, 0.0, [], "eos", target, alignment=weights)
    answer = Answer(target, [DecodedPart(read, found, model.tokenizers)])
    return word_links(answer, tokens_are_words=model.tokenizers.target.tokens_are_words)
