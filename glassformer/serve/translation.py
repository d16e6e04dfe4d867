"""Texts to be translated, as a job: the rows of tasks/translate.py, decoded among those of others; and what can be said of an
answer beyond its text: scores, alignment."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from glassformer.decode import Hypothesis, Request
from glassformer.decode.align import alignments, prompt_alignments
from glassformer.decode.lengths import translation_limits
from glassformer.models import Transformer
from glassformer.serve.jobs import QueuedText, ServerJob, shared_settings
from glassformer.tasks import Answer, TextConstraints, TextModel, check_constraints, decode_settings
from glassformer.tasks.markup import as_html, carried_over
from glassformer.tasks.translate import PendingText, StreamedText, constraints_of_pieces, joined, plans_of
from glassformer.text.markup import Segment, html_segments
from glassformer.text.tokenizer import UNK

NOTHING = Hypothesis([], 0.0, 0.0, [], "eos", "", alignment=[])


def distinct(lists: Iterable[Sequence[str]]) -> list[str]:
    """The words of several lists, each once."""
    return list(dict.fromkeys(word for words in lists for word in words))


@dataclass(frozen=True)
class TranslationOptions:
    """What is asked of a translator beside the texts. `decode` are options of DecodeConfig; `corrections` are texts whose answer
    is known."""

    decode: dict[str, Any] = field(default_factory=dict)
    constraints: TextConstraints = field(default_factory=TextConstraints)
    corrections: Mapping[str, str] = field(default_factory=dict)
    align: bool = False


class TranslationJob(ServerJob):
    """Each text's answers, as `tasks.translate` gives them."""

    def __init__(self, texts: Sequence[str], options: TranslationOptions, *, streams: bool = False) -> None:
        super().__init__()
        self.texts, self.options, self.streams = list(texts), options, streams
        self.plans: list[PendingText] = []
        self.corrected: dict[int, str | None] = {}  # by the number of the text
        self.where: list[tuple[int, int]] = []  # of each row: its text, and the piece of it
        self.shown: StreamedText | None = None

    def rows(self, model: TextModel) -> Iterator[QueuedText]:
        """The pieces of all texts."""
        model.require("translate")
        options, decode = self.options, dict(self.options.decode)
        if self.streams and decode.get("beam") is None and not decode.get("temperature"):
            decode["beam"] = 1  # a beam takes words back, which a stream cannot
        self.settings = decode_settings(model, None, **decode)
        check_constraints(model, options.constraints, self.settings)
        shared, shorter = shared_settings(self.settings), 0 if isinstance(model._model, Transformer) else 1
        self.corrected = {n: options.corrections.get(text.strip()) for n, text in enumerate(self.texts)}
        asked = ("" if self.corrected[n] else text for n, text in enumerate(self.texts))
        for number, plan in enumerate(plans_of(model, asked, NOTHING, trace=False)):
            self.plans.append(plan)
            lost = [piece.text for piece, ids in zip(plan.pieces, plan.sources) if UNK in ids]
            self.unknown.append(distinct(model.tokenizers.source.unknown_pieces(text) for text in lost))
            if self.streams:
                self.shown = StreamedText(plan, model.tokenizers.target.decode, options.constraints.stops)
                self.show(self.corrected[number] or "")
            constraints_of_each = constraints_of_pieces(model, plan.pieces, options.constraints)
            for piece, (ids, constraints) in enumerate(zip(plan.sources, constraints_of_each, strict=True)):
                if ids:
                    limits = translation_limits(self.settings, len(ids) - shorter)
                    self.where.append((number, piece))
                    request = Request(ids, constraints, limits, self.settings.seed)
                    yield QueuedText(self, len(self.where) - 1, request, shared)

    def take(self, row: QueuedText, hypotheses: list[Hypothesis]) -> None:
        """Keeps what one piece of a text was translated to, and streams the rest of it."""
        number, piece = self.where[row.place]
        self.plans[number].found[piece] = hypotheses
        if self.shown is not None:
            self.show(self.shown.write(piece, hypotheses[0].ids, over=True))

    def written(self, row: QueuedText, sample: int, tokens: Sequence[tuple[int, float]]) -> None:
        """Streams what has been written of one piece so far."""
        if self.shown is not None and sample == 0:
            self.show(self.shown.write(self.where[row.place][1], [token for token, _ in tokens]))

    def show(self, text: str) -> None:
        """The next bit of the stream."""
        if text:
            self.emit(text)

    def result(self, model: TextModel) -> Generator[None, None, list[list[Answer]]]:
        """For each text its answers, best first, put together from its pieces."""
        answers = []
        for number, plan in enumerate(self.plans):
            if correction := self.corrected[number]:
                answers.append([Answer(correction, [])])
                continue
            for source, hypotheses in zip(plan.sources, plan.found, strict=True):
                if source and self.options.align:
                    self.align(model, source, hypotheses)
                    yield
            answers.append(joined(model, plan, self.settings))
            yield
        return answers

    def align(self, model: TextModel, source: Sequence[int], hypotheses: Sequence[Hypothesis]) -> None:
        """Which source tokens the best answer looked at."""
        for best in hypotheses[:1]:
            if isinstance(model._model, Transformer):
                (best.alignment,) = alignments(model._model, [source], [best.ids], bos=model.special_tokens.bos)
            else:
                (best.alignment,) = prompt_alignments(model._model, [source], [best.ids])


class MarkupJob(TranslationJob):
    """Documents whose texts are translated and whose tags stay: each sentence goes to the model whole, and the tags inside it
    around the words that translate theirs (tasks/markup.py). `pages`: of each its parts, which stay or are segments."""

    def __init__(
        self,
        pages: Sequence[Sequence[str | Segment]],
        options: TranslationOptions,
        escape: Callable[[str], str] = as_html,
    ) -> None:
        self.pages, self.escape = pages, escape
        segments = [part for parts in self.pages for part in parts if isinstance(part, Segment)]
        aligned = any(segment.nodes for segment in segments)
        super().__init__([segment.text for segment in segments], replace(options, align=aligned))

    def result(self, model: TextModel) -> Generator[None, None, Any]:
        """The parts of each document in the other language."""
        answers = iter((yield from super().result(model)))
        filled: list[list[str]] = []
        for parts in self.pages:
            filled.append([])
            for part in parts:
                if isinstance(part, Segment):
                    part = carried_over(part, next(answers)[0], self.escape)
                    yield
                filled[-1].append(part)
        return filled

    def unknown_by_page(self) -> list[list[str]]:
        """Of each piece of markup the words and characters that are not in the vocabulary, each once."""
        unknown = iter(self.unknown)
        return [distinct(next(unknown) for part in parts if isinstance(part, Segment)) for parts in self.pages]


class HtmlJob(MarkupJob):
    """Pieces of HTML. Whatever is no text stays as it was, to the byte (text/markup.py)."""

    def __init__(self, pages: Sequence[str], options: TranslationOptions) -> None:
        super().__init__([html_segments(page) for page in pages], options)

    def result(self, model: TextModel) -> Generator[None, None, Any]:
        """Each piece in the other language."""
        pages = yield from super().result(model)
        return ["".join(parts) for parts in pages]


# ---- answers as JSON


def scores_of(answer: Answer) -> dict[str, Any]:
    """The answer's score and log-probability, and those of its tokens."""
    parts = [
        {"tokens": part.tokens, "logprobs": [round(v, 5) for v in part.hypothesis.token_logprobs]}
        for part in answer.parts
    ]
    return {"score": round(answer.score, 5), "logprob": round(answer.logprob, 5), "parts": parts}


def alignment_of(answer: Answer) -> dict[str, Any]:
    """For each part its tokens on both sides, how much each looked at each, and the strongest links."""
    parts = [
        {
            "sourceTokens": part.source_tokens,
            "tokens": part.tokens,
            "weights": [[round(w, 4) for w in row] for row in part.hypothesis.alignment or []],
            "links": part.links,
        }
        for part in answer.parts
    ]
    return {"parts": parts}


def unknown_of(unknown: Sequence[Sequence[str]], *, each: bool = False) -> dict[str, Any]:
    """The words or characters of texts that are not in the vocabulary, for each text or of all; no field where there are none."""
    return {"unknown": unknown if each else distinct(unknown)} if any(unknown) else {}


def tokens_of(answers: Sequence[Answer]) -> tuple[int, int]:
    """How many tokens were read for the answers to a text, and how many written."""
    return sum(len(part.source) for part in answers[0].parts), sum(len(answer.ids) for answer in answers)


def usage_of(tokens: Iterable[tuple[int, int]]) -> dict[str, int]:
    """How many tokens were read and written in all, as OpenAI's clients read it."""
    read, written = map(sum, zip(*tokens, strict=True))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
