"""Texts to texts: by an encoder-decoder, or by a GPT that learned from pairs.

Texts are cut into pieces where they are long (decode/longtext.py), the pieces of all texts are decoded side by side, and each
text is put together again with its own spacing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.data.transforms import Recased, last_sentence, windows
from glassformer.decode import (
    NO_CONSTRAINTS,
    BeamTrace,
    Hypothesis,
    Piece,
    Request,
    TokenConstraints,
    answer,
    fits_within,
    join_pieces,
    split_text,
    stream,
    unwrapped,
)
from glassformer.decode.align import alignments, prompt_alignments
from glassformer.decode.ensemble import Ensemble
from glassformer.decode.generate import Streamed, full_collections_wait
from glassformer.decode.lengths import translation_limits
from glassformer.decode.streaming import Streamer
from glassformer.errors import UserError
from glassformer.models import Transformer
from glassformer.tasks.results import Answer, DecodedPart, word_links
from glassformer.tasks.settings import (
    TextConstraints,
    check_constraints,
    decode_settings,
    token_constraints,
    wanted_terms,
)
from glassformer.tasks.text_model import TextModel, as_list
from glassformer.text.tokenizer import BOS, EOS, Tokenizer

AT_ONCE = (64, 1024)  # texts that are encoded together: the first few, so that they are answered soon, and then
NOTHING_ASKED = TextConstraints()


def combinations(parts: Sequence[Sequence[Hypothesis]], config: DecodeConfig) -> list[list[Hypothesis]]:
    """The answers to a text from those to its parts. Drawn: the first of each part, the second of each part, and so on.
    Searched: the `n_best` choices of one from each part, by the sum of their scores, the unfinished behind the finished."""
    if config.temperature > 0:
        return [[part[min(k, len(part) - 1)] for part in parts] for k in range(max(map(len, parts)))]
    # Unfinished parts, the sum of scores, (choices before, the last).
    best: list[tuple[int, float, Any]] = [(0, 0.0, None)]
    for part in parts:
        longer = [(cut + (not h.complete), total + h.score, (own, h)) for cut, total, own in best for h in part]
        longer.sort(key=lambda choice: (choice[0], -choice[1]))
        best = longer[: config.n_best]
    chosen: list[list[Hypothesis]] = []
    for _, _, own in best:
        backwards = []
        while own is not None:
            own, last = own
            backwards.append(last)
        chosen.append(backwards[::-1])
    return chosen


def most_tokens(model: TextModel) -> int:
    """The longest text the model reads at once, in tokens, without BOS and EOS."""
    longest = model._model.config.block_size
    if model.kind == "gpt on pairs":
        return max(1, (longest - 2) // 2)  # the other half is for the answer
    return max(1, min(longest, model.recipe.data.max_length or longest) - 1)


def is_whole(text: str, ids: Sequence[int], most: int) -> bool:
    """Can the model read the text as it is?"""
    return 0 < len(ids) <= most and "\n" not in text and text.strip() == text


def pieces_of(model: TextModel, text: str, ids: Sequence[int]) -> list[Piece]:
    """The text as the model can read it: whole where it fits, else cut; a sentence that is broken into lines in one."""
    most = most_tokens(model)
    if is_whole(text, ids, most):
        return [Piece(text, "")]
    return split_text(unwrapped(text), fits_within(model.tokenizers.source.encode, most))


def source_ids(model: TextModel, ids: Sequence[int]) -> list[int]:
    """A source with its special tokens, as in training."""
    if len(ids) <= len(model.tokenizers.source.before):
        return []
    return [BOS, *ids, EOS] if model.kind == "gpt on pairs" else [*ids, EOS]


def constraints_of_pieces(
    model: TextModel, pieces: Sequence[Piece], constraints: TextConstraints
) -> Iterator[TokenConstraints]:
    """For each piece of a text what its answer must be like."""
    if constraints == NOTHING_ASKED:
        before = model.tokenizers.target.before
        yield from repeat(
            TokenConstraints(prefix=before, unscored=len(before)) if before else NO_CONSTRAINTS, len(pieces)
        )
        return
    for number, piece in enumerate(pieces):
        first = number == 0
        terms = wanted_terms(constraints, piece.text, first=first)
        yield token_constraints(model, constraints, terms, first=first)


@dataclass(slots=True)
class PendingText:
    """A text on its way: its pieces, their sources, what has been found for the first of them, and for all that need no model."""

    pieces: list[Piece]
    sources: list[list[int]]
    found: list[list[Hypothesis]]  # nothing yet: an empty list
    recased: Recased | None = None  # where the text was put into small letters


def joined(model: TextModel, text: PendingText, config: DecodeConfig) -> list[Answer]:
    """The answers to a text out of those to its pieces."""
    tokenizers, pieces, sources = model.tokenizers, text.pieces, text.sources
    if len(pieces) == 1 and not pieces[0].before and not pieces[0].after and text.recased is None:
        return [Answer(h.text or "", [DecodedPart(sources[0], h, tokenizers)]) for h in text.found[0]]
    answers = []
    for chosen in combinations(text.found, config):
        # After a stop string nothing follows.
        count = next((n for n, h in enumerate(chosen, 1) if h.ended == "stop"), len(chosen))
        written = join_pieces(pieces[:count], [h.text or "" for h in chosen[:count]])
        parts = [DecodedPart(source, h, tokenizers) for source, h in zip(sources, chosen[:count])]
        answers.append(Answer(text.recased.answer(written) if text.recased else written, parts))
    return answers


def translate_each(
    model: TextModel,
    texts: Iterable[str],
    *,
    config: DecodeConfig | None = None,
    constraints: TextConstraints | None = None,
    align: bool = False,
    trace: bool = False,
    **options: Any,
) -> Iterator[list[Answer]]:
    """As `translate`, of any number of texts: they are read as they are needed, and answered in order."""
    model.require("translate")
    constraints, net = constraints or TextConstraints(), model._model
    settings = decode_settings(model, config, **options)
    check_constraints(model, constraints, settings)
    is_pair = isinstance(net, Transformer)
    constrained = constraints != NOTHING_ASKED or bool(model.tokenizers.target.before)
    # In order; results come in the same order, so the next is for the first of them.
    plans: deque[PendingText] = deque()
    nothing = Hypothesis([], 0.0, 0.0, [], "eos", "", alignment=[] if align else None)

    def requests() -> Iterator[Request]:
        for plan in plans_of(model, texts, nothing, trace):
            plans.append(plan)
            asked = constraints_of_pieces(model, plan.pieces, constraints) if constrained else repeat(NO_CONSTRAINTS)
            for ids, own in zip(plan.sources, asked, strict=False):
                if ids:
                    # A GPT's answer is as long as a translation may be: the source is the prompt without its BOS.
                    yield Request(ids, own, None if is_pair else translation_limits(settings, len(ids) - 1))

    def first() -> list[Answer]:
        return joined(model, plans.popleft(), settings)

    how: dict[str, Any] = {"special": model.special_tokens, "text": model.tokenizers.target.decode}
    for _, hypotheses in answer(net, requests(), settings, align=align and is_pair, trace=trace, **how):
        while all(plans[0].found):
            yield first()
        plan, number = plans[0], plans[0].found.index([])
        if align and not is_pair:
            prompts = [plan.sources[number]] * len(hypotheses)
            for hypothesis, links in zip(hypotheses, prompt_alignments(net, prompts, [h.ids for h in hypotheses])):
                hypothesis.alignment = links
        plan.found[number] = hypotheses
        if number + 1 == len(plan.found) or all(plan.found):
            yield first()
    while plans:
        yield first()


def truecase(tokenizer: Tokenizer, word: str) -> str:
    """A word in small letters, or with a capital where a tokenizer needs fewer pieces for it so: a name, or a noun of German."""
    small, capital = word.lower(), word.capitalize()
    return min(
        small, capital, key=lambda spelled: len(tokenizer.encode(f" {spelled}"))
    )  # small where there is no difference


def recased(model: TextModel, text: str) -> Recased | None:
    """A text in capitals or as a headline as a run reads it that has learned sources in small letters; else None."""
    if not model.recipe.data.augment:
        return None
    found = Recased.of(text, partial(truecase, model.tokenizers.source))
    return found if found.text != text else None


def plans_of(model: TextModel, texts: Iterable[str], nothing: Hypothesis, trace: bool) -> Iterator[PendingText]:
    """Texts cut into pieces that the model can read. An empty piece has its answer already."""
    source, most, least = model.tokenizers.source, most_tokens(model), len(model.tokenizers.source.before)
    begins, ends = ([BOS] if model.kind == "gpt on pairs" else []), [EOS]
    if model.recipe.data.features_field is not None:
        texts = map(model.as_learned, texts)
    for text, ids in encoded(source, texts):
        read = recased(model, text)
        if read:
            text, ids = read.text, source.encode(read.text)
        elif len(ids) > least and is_whole(text, ids, most):
            yield PendingText([Piece(text, "")], [begins + ids + ends], [[]])
            continue
        pieces = pieces_of(model, text, ids)
        whole = len(pieces) == 1 and pieces[0].text == text
        rows = [ids] if whole else source.encode_batch([piece.text for piece in pieces])
        sources = [source_ids(model, row) for row in rows]
        found = [[] if row else [replace(nothing, trace=BeamTrace() if trace else None)] for row in sources]
        yield PendingText(pieces, sources, found, read)


def encoded(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Texts with their ids. Some are encoded together; of a list, the next while the last ones are answered (the tokenizer works
    outside Python's lock). What else gives texts is read no sooner than it has to be."""
    count, most = AT_ONCE
    waiting = iter(texts)
    some = list(islice(waiting, count))
    if len(some) < count or not isinstance(texts, list):
        while some:
            yield from zip(some, tokenizer.encode_batch(some), strict=True)
            count = min(2 * count, most)
            some = list(islice(waiting, count))
        return
    with ThreadPoolExecutor(1, "encode") as pool:
        ids = tokenizer.encode_batch(some)
        while some:
            count = min(2 * count, most)
            others = list(islice(waiting, count))
            coming = pool.submit(tokenizer.encode_batch, others)
            yield from zip(some, ids, strict=True)
            some, ids = others, coming.result()


def translate(model: TextModel, texts: Sequence[str], **options: Any) -> list[list[Answer]]:
    """For each text its answers: `n_best` of a search, best first, or `num_samples` in the order they were drawn.

    `align` adds the attention to the source (a GPT: to the prompt), `trace` the story of the beam; `constraints` is a
    TextConstraints. Options are those of DecodeConfig; limits on length hold for each part of a long text. An empty text
    stays empty."""
    model.require("translate")
    with full_collections_wait():
        return list(translate_each(model, as_list(texts), **options))


def translations(model: TextModel, texts: Sequence[str], **options: Any) -> list[str]:
    """One text for each text, in order: the best answer, or the first that was drawn. Options as for `translate`."""
    return [answers[0].text for answers in translate(model, texts, **options)]


def translate_in_context(model: TextModel, lines: Sequence[str], **options: Any) -> list[str]:
    """The lines of documents, between which are blank lines, each translated with as many before it as the run was trained with
    (`data.context`); of what is written with its context the last sentence. Options as for `translate`."""
    model.require("translate")
    size = model.recipe.data.context
    if not size:
        raise UserError("this run reads one sentence at a time: it was trained with data.context=0")
    return [last_sentence(text) for text in translations(model, list(windows(lines, size)), **options)]


class StreamedText:
    """A text of several pieces as it is written: each piece grows by itself, and is shown when those before it are whole."""

    def __init__(self, plan: PendingText, decode: Any, stops: Sequence[str]) -> None:
        self.pieces, self.recased = plan.pieces, plan.recased
        self.streamers = [Streamer(decode, stops) for _ in self.pieces]
        self.texts = ["" for _ in self.pieces]
        self.whole = [not piece.text.strip() for piece in self.pieces]
        self.shown = ""
        self.first = 0  # the first piece that is not whole

    def write(self, place: int, tokens: Sequence[int], *, over: bool = False) -> str:
        """What can be shown of the text now that was not before."""
        streamer = self.streamers[place]
        for token in tokens[len(streamer.ids) :]:
            self.texts[place] += streamer.push(token)
        if over:
            self.texts[place] += streamer.flush()
            self.whole[place] = True
        while self.first < len(self.whole) and self.whole[self.first]:
            self.first += 1
        if place > self.first:
            return ""
        count = min(self.first + 1, len(self.pieces))
        pieces = [*self.pieces[: count - 1], replace(self.pieces[count - 1], after="")]
        # Whole to its end: with what stands behind the last piece.
        text = join_pieces(self.pieces if self.first == len(self.pieces) else pieces, self.texts[:count])
        text = self.recased.answer(text) if self.recased else text
        new = text[len(self.shown) :] if text.startswith(self.shown) else ""
        self.shown = text if new else self.shown
        return new


def stream_ids(net: Any, ids: list[int], settings: DecodeConfig, how: dict[str, Any]) -> Iterator[Streamed]:
    """The tokens of one answer as they are chosen, by either family."""
    if isinstance(net, Transformer):
        return stream(net, ids, settings, **how)
    fewest, most = translation_limits(settings, len(ids) - 1)
    return stream(net, ids, replace(settings, min_new_tokens=fewest, max_new_tokens=most), **how)


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
    temperature = options.get("temperature")
    draws = model.recipe.decode.temperature if temperature is None else temperature
    if config is None and options.get("beam") is None and not draws:
        options = {"beam": 1, **options}
    settings, constraints = decode_settings(model, config, **options), constraints or TextConstraints()
    check_constraints(model, constraints, settings)
    decode = model.tokenizers.target.decode
    (plan,) = plans_of(model, [text], Hypothesis([], 0.0, 0.0, [], "eos", ""), trace=False)
    shown = StreamedText(plan, decode, constraints.stops)
    asked = constraints_of_pieces(model, plan.pieces, constraints)
    for place, (ids, own) in enumerate(zip(plan.sources, asked, strict=True)):
        how: dict[str, Any] = {"text": decode, "constraints": own, "special": model.special_tokens}
        written: list[int] = []
        for step in stream_ids(model._model, ids, settings, how) if ids else ():
            written += [] if step.id is None else [step.id]
            if new := shown.write(place, written):
                yield new
        if any(stop in decode(written) for stop in constraints.stops):
            return  # after a stop string nothing follows
        if new := shown.write(place, written, over=True):
            yield new


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
