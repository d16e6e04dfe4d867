"""Which program answers under `engine=auto` on a CPU: ours, or CTranslate2 where it writes the same and is faster.

It writes the same under greedy search; its beam stops by another rule. Which is faster depends on machine and model, so both are
tried: once our own decoding has worked for `WORTH_A_TRIAL` seconds, both answer the next requests; the faster one's answers are
taken, and it goes on. Texts that come alone and texts that come together are tried apart. A model whose weights somebody holds
(`model.model`) may change at any time and is not handed to another program.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from glassformer import machine
from glassformer.decode.captured import make_driver
from glassformer.decode.driver import Driver, Result
from glassformer.decode.engines import suits_external
from glassformer.decode.external import external_engine
from glassformer.decode.request import NO_CONSTRAINTS
from glassformer.models.eval_mode import eval_mode

WORTH_A_TRIAL = 1.0  # seconds of decoding; a trial takes two or three times as long
TRIAL_TEXTS, ROUNDS = 32, 3  # at most so often, and not again when a second has passed
COPIES = 3  # of the weights, that must fit into free memory: while a model is converted there are so many


@dataclass
class Timing:
    """What is known of a model's speed for texts of one kind."""

    seconds: float = 0.0  # that our own decoding has worked
    is_faster: bool | None = None  # CTranslate2; None: not tried yet


timings: weakref.WeakKeyDictionary[nn.Module, dict[bool, Timing]] = weakref.WeakKeyDictionary()


def may_be_tried(driver: Driver) -> bool:
    """Under these settings, would CTranslate2 write what this driver writes?"""
    model, config, special = driver.model, driver.config, driver.special
    if config.engine != "auto" or config.batch_invariant or config.beams > 1 or config.temperature > 0:
        return False
    if driver.shortlist is not None:  # CTranslate2 takes those of all sentences together
        return False
    if driver.align or driver.trace or not driver.cached or special.eos is None or special.more_ends:
        return False
    weight = next(model.parameters())
    if len(driver.members) > 1 or weight.device.type != "cpu" or weight.dtype != torch.float32 or model.handed_out:
        return False
    return is_installed()


@cache
def is_installed() -> bool:
    """Is CTranslate2 there? (Looked for once: a look takes as long as some tokens.)"""
    return find_spec("ctranslate2") is not None


class TrialDriver:
    """A driver whose requests are answered by CTranslate2 where that has been seen to be faster."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.engine: Any = external_engine("ctranslate2")
        self.config, self.alone = replace(driver.config, engine="ctranslate2"), False

    def step(self) -> list[Result]:
        """As `Driver.step`."""
        driver = self.driver
        if not driver.n:
            self.alone = len(driver.pending) == 1 and not driver.more_may_come
        timing = timings.setdefault(driver.model, {}).setdefault(self.alone, Timing())
        due = timing.is_faster is None and timing.seconds > WORTH_A_TRIAL
        # A trial, and the other program, begin when what is under way is finished.
        driver.closed = bool(driver.n and driver.pending) and (due or bool(timing.is_faster)) and self.suits()
        if not driver.n and (due or timing.is_faster) and self.suits():
            return self.try_both(timing) if due else self.answer(self.take_pending(None))
        began = time.perf_counter()
        results = driver.step()
        timing.seconds += time.perf_counter() - began
        return results

    def take_pending(self, most: int | None) -> list[Any]:
        """Requests that wait, which do so no longer: the first ones, or all."""
        driver = self.driver
        taken = driver.pending[:most]
        driver.pending = driver.pending[len(taken) :]
        for *_unused, job in taken:
            driver.requests.pop(job.request_id, None)
        return [one[1:] for one in taken]

    def suits(self) -> bool:
        """Can CTranslate2 do all that the waiting requests ask for, and would it do so as this model does?"""
        batch = [one[1:] for one in self.driver.pending]
        free = all(request.constraints is NO_CONSTRAINTS for request, _ in batch)
        can = free and self.engine.unsupported(self.driver.model_config, batch, self.config) is None
        return can and suits_external(self.driver.model)

    @torch.no_grad()
    def answer(self, batch: list[Any]) -> list[Result]:
        """These requests, answered by CTranslate2."""
        driver = self.driver
        with eval_mode(driver.model):
            answers = self.engine.answer(driver.model, batch, self.config, driver.special)
        return [
            (job.request_id, driver.finish(request, own)) for (request, job), own in zip(batch, answers, strict=True)
        ]

    def answer_ourselves(self, batch: list[Any]) -> list[Result]:
        """The same requests by our own decoding, as a new call of it would."""
        driver, results = self.driver, []
        other = make_driver(driver.model, driver.config, driver.special, text=driver.text)
        other.more_may_come = False
        for request, job in batch:
            results += other.add(job.request_id, request)
        while other.busy:
            results += other.step()
        return results

    def try_both(self, timing: Timing) -> list[Result]:
        """The first requests that wait, answered by both; the answers of the faster one. Nobody's where CTranslate2 fails, or
        where the memory for its copy is missing: they go on waiting, for ours."""
        timing.is_faster = False
        weights = sum(p.numel() * p.element_size() for p in self.driver.model.parameters())
        if (machine.available_memory(torch.device("cpu")) or 0) < COPIES * weights:
            return []
        batch = [one[1:] for one in self.driver.pending[:TRIAL_TEXTS]]
        try:
            self.answer(batch[:1])  # converts the model, and starts its threads
            seconds, results = fastest(lambda: self.answer(batch))
        except (ImportError, RuntimeError, ValueError):
            return []
        own_seconds, own_results = fastest(lambda: self.answer_ourselves(batch))
        timing.is_faster = seconds < own_seconds
        self.take_pending(TRIAL_TEXTS)
        return results if timing.is_faster else own_results


def fastest(call: Callable[[], list[Result]]) -> tuple[float, list[Result]]:
    """Seconds of the fastest of a few calls, and what it gave."""
    times: list[float] = []
    while not times or (len(times) < ROUNDS and sum(times) < WORTH_A_TRIAL):
        began = time.perf_counter()
        results = call()
        times.append(time.perf_counter() - began)
    return min(times), results
