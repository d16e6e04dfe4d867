"""What of a text a vocabulary does not have: characters or words that were never seen in training, and that a model reads as one
and the same unknown token."""

from __future__ import annotations

from glassformer.text.tokenizer import UNK, Tokenizer


def unknown_pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    """The pieces of a text that the tokenizer turns into its unknown token, each once, in the order of the text. A tokenizer
    that works on bytes has none.

    >>> unknown_pieces(Tokenizer.train("word", ["the cat"], 20), "the dog and the cat and")
    ['dog', 'and']
    """
    ids = tokenizer.encode(text)
    if UNK not in ids:
        return []
    pieces = (text[start:end] for index, (start, end) in zip(ids, tokenizer.spans(text), strict=True) if index == UNK)
    return list(dict.fromkeys(piece.strip() or piece for piece in pieces if piece))
