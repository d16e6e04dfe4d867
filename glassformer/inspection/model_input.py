"""One sentence as the model reads it: ids with the special tokens of training around them, the answer that is watched, and
which positions are asked what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from glassformer.errors import UserError
from glassformer.language import _
from glassformer.tasks import TextModel, check_text
from glassformer.tasks.labels import MASK_MARKER, masked_ids, words_of
from glassformer.tasks.translate import recased
from glassformer.text.tokenizer import BOS, EOS, MASK, UNK, Tokenizer


@dataclass(frozen=True)
class ModelInput:
    """One sentence as the model reads it. `labels[i]` is what is to be said at place i of the row: None where nobody knows,
    and only the `positions` are asked. Of the row the first `given` tokens came from the reader."""

    source: list[int]  # of an encoder-decoder; else empty
    row: list[int]
    labels: list[int | None]
    positions: list[int]
    given: int
    words: list[int] | None = None  # the first token of each word, where the row was made word by word
    notes: list[str] = field(default_factory=list)


def read_text(tokenizer: Tokenizer, text: str, what: str) -> tuple[list[int], list[str]]:
    """Its ids, and a note on each word the vocabulary does not have. An unknown character is refused: nothing of it would
    reach the model."""
    check_text(text)
    if not text.strip():
        raise UserError("{what} is empty; there is nothing to look at", what)
    ids = tokenizer.encode(text)
    if not ids:
        raise UserError("{what} has no token that this model knows; there is nothing to look at", what)
    unknown = [text[start:end] for token, (start, end) in zip(ids, tokenizer.spans(text)) if token == UNK]
    if unknown and tokenizer.kind == "char":
        first = unknown[0]
        raise UserError(
            "{what} has the character {first!r} (U+{code:04X}), which is not in this model's vocabulary; "
            "write it without",
            what,
            first,
            ord(first[0]),
        )
    if len(unknown) == len(ids):
        raise UserError("{what} has no word that is in this model's vocabulary; there is nothing to look at", what)
    return ids, [_("{word!r} is not in the vocabulary; the model reads <unk>", word) for word in dict.fromkeys(unknown)]


def refuse_longer(ids: Sequence[int], most: int, what: str) -> None:
    """A text that does not fit the model is refused in a sentence."""
    if len(ids) > most:
        raise UserError(
            "{what} has {n_ids} tokens, and this model reads {most} at once; shorten it", what, len(ids), most
        )


def with_special_tokens(
    model: TextModel, text: str, target: str | None
) -> tuple[list[int], list[int] | None, list[str]]:
    """Source ids with the special tokens of training around them, target ids as they are."""
    longest = model.model.config.block_size
    pairs = model.kind != "transformer"  # of a GPT both are one row
    source, notes = read_text(model.tokenizers.source, text, "the text")
    if read := recased(model, text):
        notes.append(_("drawn is the text as it is written; translate reads it in small letters: {text}", read.text))
    most = longest - 3 if pairs else min(longest, model.recipe.data.max_length or longest) - 1
    refuse_longer(source, most, "the text")
    answer = None
    if target is not None:
        answer, more = read_text(model.tokenizers.target, target, "the target")
        if pairs:
            refuse_longer([*source, *answer], longest - 2, "the text and the target together")
        else:
            refuse_longer(answer, longest - 1, "the target")
        notes += [note for note in more if note not in notes]
    return [BOS, *source, EOS] if pairs else [*source, EOS], answer, notes


def make_answer_input(
    model: TextModel, source: list[int], answer: list[int], ended: bool, notes: list[str]
) -> ModelInput:
    """A source and the answer to it, for the encoder-decoder and for a GPT that answers."""
    labels: list[int | None] = [*answer, EOS if ended else None]
    if model.kind == "transformer":
        return ModelInput(source, [BOS, *answer], labels, list(range(len(labels))), 1, notes=notes)
    row = [*source, *answer]
    unasked = len(source) - 1
    return ModelInput([], row, [*[None] * unasked, *labels], list(range(unasked, len(row))), len(source), notes=notes)


def make_prompt_input(prompt: list[int], more: list[int], notes: list[str]) -> ModelInput:
    """A GPT's text and what it goes on with: each token is to be said at the place before it."""
    row = [*prompt, *more]
    return ModelInput([], row, [*row[1:], None], list(range(len(row))), len(prompt), notes=notes)


def make_bert_input(model: TextModel, text: str) -> ModelInput:
    """What a BERT or a classifier reads of a text, with the masks that stand in it or that are put into it."""
    tokenizer = model.tokenizers.target
    check_text(text)
    masked = model.kind == "mlm" and MASK_MARKER.search(text) is not None
    bare = MASK_MARKER.sub(" ", text) if model.kind == "mlm" else text
    if not text.strip():
        raise UserError("the text is empty; there is nothing to look at")
    ids: list[int] = []
    notes: list[str] = []
    words: list[int] | None = None
    if model.kind == "tag":
        words = []
        for word in words_of(model, text):
            of_word, more = read_text(tokenizer, word, "the text")
            notes += [note for note in more if note not in notes]
            words.append(1 + len(ids))
            ids += of_word
    elif bare.strip():
        ids, notes = read_text(tokenizer, bare, "the text")
    if masked:
        ids = masked_ids(model, text)
    refuse_longer(ids, model.max_text_tokens, "the text")
    row = model.with_special_tokens(ids)
    labels: list[int | None] = [None] * len(row)
    if model.kind == "classify":
        positions = [0 if model.model.config.family == "bert" else len(row) - 1]
    elif words is not None:
        positions = words
    else:
        labels = [None if token == MASK else token for token in row]
        positions = [i for i, token in enumerate(row) if token == MASK] if masked else list(range(1, 1 + len(ids)))
        if not masked:
            notes = [*notes, _("no [MASK]: at each place the model says what it reads there")]
    return ModelInput([], row, labels, positions, len(row), words=words, notes=notes)
