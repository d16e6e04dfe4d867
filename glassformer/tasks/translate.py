"""Texts to texts: by an encoder-decoder, or by a GPT that learned from pairs.

Many texts are one batch: they are cut into pieces where they are long (decode/longtext.py), all pieces of all texts are
decoded together, and each text is put together again with its own spacing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.decode import (
    BeamTrace,
    Hypothesis,
    Piece,
    TokenConstraints,
    fits_within,
    generate_batch,
    join_pieces,
    split_text,
    stream_generation,
    translate_batch,
)
from glassformer.decode.align import prompt_alignments
from glassformer.decode.generate import Streamed, stream_translation
from glassformer.decode.lengths import translation_limits
from glassformer.models import GPT, Transformer
from glassformer.tasks.constraints import TextConstraints, check_constraints, token_constraints, wanted_terms
from glassformer.tasks.results import Answer, Part
from glassformer.tasks.settings import decode_settings
from glassformer.tasks.text_model import TextModel, as_list
from glassformer.text.tokenizer import BOS, EOS


def combinations(parts: Sequence[Sequence[Hypothesis]], config: DecodeConfig) -> list[list[Hypothesis]]:
    """The answers to a text from those to its parts. Drawn: the first of each part, the second of each part, and so on.
    Searched: the `n_best` choices of one from each part, by the sum of their scores, the unfinished behind the finished."""
    if config.temperature > 0:
        return [[part[min(k, len(part) - 1)] for part in parts] for k in range(max(map(len, parts)))]
    best: list[list[Hypothesis]] = [[]]
    for part in parts:
        longer = [[*chosen, one] for chosen in best for one in part]
        longer.sort(key=lambda chosen: (sum(not h.complete for h in chosen), -sum(h.score for h in chosen)))
        best = longer[: config.n_best]
    return best


def pieces_of(model: TextModel, text: str, ids: Sequence[int]) -> list[Piece]:
    """The text as the model can read it: whole where it fits, else cut."""
    if model.kind == "gpt on pairs":
        most = max(1, (model.model.config.block_size - 2) // 2)  # the other half is for the answer
    else:
        longest = model.model.config.block_size
        most = max(1, min(longest, model.recipe.data.max_length or longest) - 1)
    if ids and len(ids) <= most and "\n" not in text and text.strip() == text:
        return [Piece(text, "")]
    return split_text(text, fits_within(model.tokenizers.source.encode, most))


def source_ids(model: TextModel, ids: Sequence[int]) -> list[int]:
    """A source with its special tokens, as in training."""
    if not ids:
        return []
    return [BOS, *ids, EOS] if model.kind == "gpt on pairs" else [*ids, EOS]


def constraints_of_pieces(
    model: TextModel, flat: Sequence[tuple[Piece, bool]], constraints: TextConstraints
) -> list[TokenConstraints]:
    """For each piece (and whether it is the first of its text) what its answer must be like."""
    known: dict[tuple[tuple[str, ...], bool], TokenConstraints] = {}
    found = [TokenConstraints(stops=constraints.stops)] * len(flat)
    for number, (piece, first) in enumerate(flat):
        if piece.text:
            key = wanted_terms(constraints, piece.text, first=first), first
            if key not in known:
                known[key] = token_constraints(model, constraints, key[0], first=first)
            found[number] = known[key]
    return found


def answers_by_gpt(
    model: GPT, prompts: list[list[int]], settings: DecodeConfig, trace: bool, how: dict[str, Any]
) -> list[list[Hypothesis]]:
    """A GPT has something to say to an empty prompt; here that is the answer to an empty text, which is empty."""
    real = [i for i, prompt in enumerate(prompts) if prompt]
    how = {**how, "demands": [how["demands"][i] for i in real]}
    # As long as a translation may be: the source is the prompt without its BOS.
    limits = [translation_limits(settings, len(prompts[i]) - 1) for i in real]
    found = [[Hypothesis([], 0.0, 0.0, [], "eos", "", trace=BeamTrace() if trace else None)] for _ in prompts]
    for i, hypotheses in zip(
        real,
        generate_batch(model, [prompts[i] for i in real], settings, trace=trace, limits=limits, **how),
        strict=True,
    ):
        found[i] = hypotheses
    return found


def joined(
    model: TextModel,
    pieces: Sequence[Piece],
    sources: Sequence[Sequence[int]],
    found: Sequence[Sequence[Hypothesis]],
    config: DecodeConfig,
) -> list[Answer]:
    """The answers to a text out of those to its pieces."""
    answers = []
    for chosen in combinations(found, config):
        # After a stop string nothing follows.
        count = next((n for n, h in enumerate(chosen, 1) if h.ended == "stop"), len(chosen))
        text = join_pieces(pieces[:count], [h.text or "" for h in chosen[:count]])
        parts = [Part(source, h, model.tokenizers) for source, h in zip(sources, chosen[:count])]
        answers.append(Answer(text, parts))
    return answers


def translate(
    model: TextModel,
    texts: Sequence[str],
    *,
    config: DecodeConfig | None = None,
    constraints: TextConstraints | None = None,
    align: bool = False,
    trace: bool = False,
    **options: Any,
) -> list[list[Answer]]:
    """For each text its answers: `n_best` of a search, best first, or `num_samples` in the order they were drawn.

    `align` adds the attention to the source (a GPT: to the prompt), `trace` the story of the beam. Options are those of
    DecodeConfig; limits on length hold for each part of a long text. An empty text stays empty."""
    model.require("translate")
    texts, constraints = as_list(texts), constraints or TextConstraints()
    settings = decode_settings(model, config, **options)
    check_constraints(model, constraints, settings)
    source = model.tokenizers.source
    pieces = [pieces_of(model, text, ids) for text, ids in zip(texts, source.encode_batch(texts), strict=True)]
    flat = [(piece, number == 0) for own in pieces for number, piece in enumerate(own)]
    sources = [source_ids(model, ids) for ids in source.encode_batch([piece.text for piece, _ in flat])]
    how: dict[str, Any] = {
        "demands": constraints_of_pieces(model, flat, constraints),
        "controls": model.special_tokens,
        "text": model.tokenizers.target.decode,
    }
    net = model.model
    if isinstance(net, Transformer):
        found = translate_batch(net, sources, settings, align=align, trace=trace, **how)
    else:
        assert isinstance(net, GPT)
        found = answers_by_gpt(net, sources, settings, trace, how)
        for prompt, hypotheses in zip(sources, found, strict=True) if align else ():
            aligned = (
                prompt_alignments(net, [prompt] * len(hypotheses), [h.ids for h in hypotheses]) if prompt else [[]]
            )
            for hypothesis, own in zip(hypotheses, aligned, strict=True):
                hypothesis.alignment = own
    answers, start = [], 0
    for own in pieces:
        here = slice(start, start + len(own))
        answers.append(joined(model, own, sources[here], found[here], settings))
        start += len(own)
    return answers


def translations(model: TextModel, texts: Sequence[str], **options: Any) -> list[str]:
    """One text for each text, in order: the best answer, or the first that was drawn. Options as for `translate`."""
    return [answers[0].text for answers in translate(model, texts, **options)]


def stream_ids(net: Any, ids: list[int], settings: DecodeConfig, how: dict[str, Any]) -> Iterator[Streamed]:
    """The tokens of one answer as they are chosen, by either family."""
    if isinstance(net, Transformer):
        return stream_translation(net, ids, settings, **how)
    fewest, most = translation_limits(settings, len(ids) - 1)
    return stream_generation(net, ids, replace(settings, min_new_tokens=fewest, max_new_tokens=most), **how)


def stream_translated(
    model: TextModel,
    text: str,
    *,
    config: DecodeConfig | None = None,
    constraints: TextConstraints | None = None,
    **options: Any,
) -> Iterator[str]:
    """The translation of one text as it is written, whole characters only; a long text comes sentence by sentence. Greedy,
    unless a temperature asks for a draw: a beam takes words back, which a stream cannot."""
    model.require("translate")
    if config is None and options.get("beam") is None and not options.get("temperature"):
        options = {"beam": 1, **options}
    settings, constraints = decode_settings(model, config, **options), constraints or TextConstraints()
    check_constraints(model, constraints, settings)
    source, net = model.tokenizers.source, model.model
    pieces = pieces_of(model, text, source.encode(text))
    demands = constraints_of_pieces(model, [(piece, i == 0) for i, piece in enumerate(pieces)], constraints)
    decode = model.tokenizers.target.decode
    done: list[str] = []
    shown = ""
    for number, (piece, own) in enumerate(zip(pieces, demands, strict=True)):
        ids = source_ids(model, source.encode(piece.text)) if piece.text else []
        how: dict[str, Any] = {"text": decode, "demands": own, "controls": model.special_tokens}
        written: list[int] = []
        done.append("")
        for step in stream_ids(net, ids, settings, how) if ids else ():
            written += [] if step.id is None else [step.id]
            if step.text:
                done[-1] += step.text
                so_far = join_pieces([*pieces[:number], replace(piece, after="")], done)
                yield so_far[len(shown) :]
                shown = so_far
        if any(stop in decode(written) for stop in constraints.stops):
            return  # after a stop string nothing follows
    yield from (join_pieces(pieces, done)[len(shown) :],) if len(join_pieces(pieces, done)) > len(shown) else ()
