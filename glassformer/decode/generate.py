"""The calls: requests in and results out, lists in and lists out, one text as it comes. All of them are the driver's."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.decode.captured import make_driver
from glassformer.decode.driver import FIRST_BATCH, LOOKAHEAD_BATCHES, Driver, Result
from glassformer.decode.request import (
    NO_CONSTRAINTS,
    Hypothesis,
    Request,
    SpecialTokens,
    TokenConstraints,
)
from glassformer.decode.streaming import Decode, Streamer
from glassformer.errors import ConfigError

MIN_TAKEN = 64  # requests that are taken in between two steps, at least
NEVER = 1_000_000_000
SELDOM = 500_000  # new objects (that have not gone again) between two looks at the young ones
collection_lock = threading.Lock()
collection_waits = 0  # how many threads are inside `full_collections_wait`
thresholds = (0, 0, 0)  # of Python's collector, as the first of them found them


@contextmanager
def full_collections_wait() -> Iterator[None]:
    """Inside, Python's full garbage collections wait, and those of young objects are rarer. Requests and answers are as many
    objects, and at every so many new ones Python looks through *all* objects of the process, those of torch included, for
    cycles: for 29,000 sentences that took longer than anything else. Requests and answers hold no cycles.

    The first thread to come in changes the setting, the last one to leave puts it back, unless somebody else has set it.

    >>> with full_collections_wait():
    ...     gc.get_threshold()[2] == NEVER
    True
    """
    global collection_waits, thresholds
    with collection_lock:
        collection_waits += 1
        if collection_waits == 1:
            thresholds = gc.get_threshold()
            first, second, _ = thresholds
            gc.set_threshold(max(first, SELDOM) if first else 0, second, NEVER)
    try:
        yield
    finally:
        with collection_lock:
            collection_waits -= 1
            if collection_waits == 0 and gc.get_threshold()[2] == NEVER:
                gc.set_threshold(*thresholds)


def answer(
    model: Any,
    requests: Iterable[Request],
    config: DecodeConfig | None = None,
    *,
    special: SpecialTokens | None = None,
    text: Decode | None = None,
    align: bool = False,
    trace: bool = False,
    in_order: bool = True,
) -> Iterator[Result]:
    """(number, hypotheses) of every request: `n_best` of a beam, best first, or `num_samples` in the order they were drawn. An
    empty source has an empty answer; an empty prompt is BOS.

    The requests are taken as they are needed: at most some batches are held at a time, whatever the length of the input.
    `text` turns ids into text, for answers and stop strings. `align` adds the attention to the source, `trace` the story
    of the beam."""
    driver = make_driver(model, config, special, text=text, align=align, trace=trace)
    yield from answers_of(driver, requests, in_order)


def answers_of(driver: Driver, requests: Iterable[Request], in_order: bool) -> Iterator[Result]:
    """Requests in and results out of a driver, until there are no more."""
    source, taken, given = enumerate(requests), 0, 0
    held: dict[int, list[Hypothesis]] = {}
    exhausted = False
    while True:
        most = LOOKAHEAD_BATCHES * (
            driver.max_requests if driver.stepper is not None else driver.config.batch_size or FIRST_BATCH
        )
        # While a device is at work it must not be left to wait: some are taken in, then it gets its next step.
        until = taken + (max(MIN_TAKEN, most // 16) if driver.n else most)
        while not exhausted and len(driver.pending) < most and taken - given < 4 * most and taken < until:
            number, request = next(source, (-1, None))
            if request is None:
                exhausted = True
                driver.more_may_come = False
                break
            taken += 1
            if done := driver.add(number, request):
                held.update(done)
        if driver.busy:
            held.update(driver.step())
        if not in_order:
            yield from list(held.items())
            given += len(held)
            held.clear()
        while given in held:
            yield given, held.pop(given)
            given += 1
        if exhausted and not driver.busy and not held:
            return


def translate_batch(
    model: Any,
    texts: Sequence[Sequence[int]],
    config: DecodeConfig | None = None,
    *,
    constraints: TokenConstraints | Sequence[TokenConstraints] | None = None,
    special: SpecialTokens | None = None,
    text: Decode | None = None,
    align: bool = False,
    trace: bool = False,
    limits: Sequence[tuple[int, int]] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses for every source or prompt: `n_best` of a beam, best first, or `num_samples` as they were drawn."""
    if constraints is None or isinstance(constraints, TokenConstraints):
        constraints = [constraints or NO_CONSTRAINTS] * len(texts)
    if len(constraints) != len(texts):
        raise ValueError(f"{len(texts)} texts came with {len(constraints)} constraints; give one each, or one for all")
    limit_of: Sequence[tuple[int, int] | None] = limits or [None] * len(texts)
    requests = [Request(*asked) for asked in zip(texts, constraints, limit_of, strict=True)]
    how: dict[str, Any] = {"special": special, "text": text, "align": align, "trace": trace}
    with full_collections_wait():
        return [hypotheses for _, hypotheses in answer(model, requests, config, **how)]


generate_batch = translate_batch


@dataclass(frozen=True)
class Streamed:
    """One token, and the text that can be shown since it came (which may be none, or more than its own)."""

    text: str
    id: int | None  # None: what was held back, at the end
    logprob: float


def stream(
    model: Any,
    ids: Sequence[int],
    config: DecodeConfig | None = None,
    *,
    text: Decode,
    constraints: TokenConstraints | None = None,
    special: SpecialTokens | None = None,
) -> Iterator[Streamed]:
    """As `generate_batch` for one text and one sample, token by token; the texts put together are its text."""
    config, constraints = config or DecodeConfig(beam=1), constraints or NO_CONSTRAINTS
    if (config.beam or 1) > 1 or config.num_samples > 1 or constraints.terms:
        raise ConfigError(
            "streaming shows a token when it is chosen and cannot take it back; "
            "set decode.beam and decode.num_samples to 1, and ask for no glossary terms"
        )
    driver = Driver(model, replace(config, beam=1, batch_size=1), special, text=text)
    if driver.add(0, Request(ids, constraints)):
        return
    shown, seen = Streamer(text, constraints.stops), 0
    while driver.busy:
        results = driver.step()
        best = results[0][1][0] if results else None
        tokens = list(zip(best.ids, best.token_logprobs)) if best is not None else driver.partial_outputs([0])[0, 0]
        for token, logprob in tokens[seen:]:
            seen += 1
            yield Streamed(shown.push(token), token, logprob)
    rest = shown.flush()
    if rest:
        yield Streamed(rest, None, 0.0)
