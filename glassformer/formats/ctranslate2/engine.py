"""The engines `int8` and `ctranslate2`: requests answered by CTranslate2 on a CPU, in 8 bits or in float32.

It takes the same requests as our own decoding and gives the same results. The model is converted when it is first asked
(spec.py) and kept as long as its weights stay as they are. Its search is the beam of CTranslate2, which is
ours under `stop_rule=first-k`; every length rule ranks what it finds. Four things are its own: what may not be written is
taken out before the softmax, so a beam's `score` adds up what is left (`logprob` and `token_logprobs` are the model's own, and
are asked for when somebody looks); of a sentence whose beam reaches the limit, hypotheses that were cut may push out some that
ended; prompts of different lengths are not decoded together; and a shortlist is that of all sentences it decodes together.

What it cannot do (`unsupported`): draws that can be repeated, traces, glossary terms, repetition
penalties, a stop that is exact, stop strings with a beam, texts that outgrow learned positions.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.engines import RequestJob
from glassformer.decode.lengths import length_rule
from glassformer.decode.request import Hypothesis, SpecialTokens, ranked
from glassformer.errors import ConfigError
from glassformer.formats.ctranslate2 import spec as conversion
from glassformer.formats.targets import target_of
from glassformer.models.weights import weight_checksum

MIN_POSITIONS = 512  # rows of a table of positions that has no end, at first
BATCH_SIZE = 32  # texts at a time, where the settings leave it open


class LazyHypothesis(Hypothesis):
    """An answer whose log-probabilities are computed when somebody reads them."""

    __slots__ = ("cached_logprobs", "cached_score", "rule", "scorer")

    def __init__(self, ids: list[int], score: float | None, ended: Any, scorer: LazyScorer, rule: Any) -> None:
        self.ids, self.cached_score, self.ended = ids, score, ended
        self.text = self.alignment = self.trace = None
        self.cached_logprobs: list[float] | None = None
        self.scorer, self.rule = scorer, rule

    @property
    def score(self) -> float:  # type: ignore[override]
        """What it was ranked by; of an answer that was the only one, by its log-probability."""
        if self.cached_score is None:
            self.cached_score = self.rule.score(self.logprob, len(self.ids), self.ended == "eos")
        return self.cached_score

    @property
    def token_logprobs(self) -> list[float]:  # type: ignore[override]
        """One for each id, then EOS's, as the model has them."""
        if self.cached_logprobs is None:
            self.scorer.score()
        assert self.cached_logprobs is not None
        return self.cached_logprobs

    @property
    def logprob(self) -> float:  # type: ignore[override]
        """Their sum."""
        return math.fsum(self.token_logprobs)


class LazyScorer:
    """The log-probabilities of all answers of one call, at once."""

    def __init__(self, engine: CTranslate2Engine, batch_size: int) -> None:
        self.engine, self.batch_size = engine, batch_size
        self.unscored: list[tuple[Sequence[int], LazyHypothesis]] = []

    def score(self) -> None:
        """Score all answers of the call at once."""
        sources = [source for source, _ in self.unscored]
        found = self.engine.token_logprobs(sources, [h.ids for _, h in self.unscored], self.batch_size)
        for (_unused, hypothesis), values in zip(self.unscored, found, strict=True):
            hypothesis.cached_logprobs = values if hypothesis.ended == "eos" else values[: len(hypothesis.ids)]
        self.unscored.clear()


def unsupported(
    model: ModelConfig, batch: Sequence[RequestJob], config: DecodeConfig, *, trace: bool = False
) -> str | None:
    """What of this CTranslate2 cannot do, as the end of a sentence; None where it can do everything."""
    setting, gpt = conversion.unsupported_setting(model), model.family == "gpt"
    constraints = [request.constraints for request, _ in batch]
    positions = max((positions_needed(model, one) for one in batch), default=0)
    beam, longer = config.beams > 1, positions > model.block_size
    cases = {
        f"it has nothing for {setting}": setting is not None,
        "it cannot trace its beam": trace,
        "its draws cannot be repeated (decode.temperature above 0)": config.temperature > 0,
        "it counts repetition otherwise (decode.repetition_penalty)": config.repetition_penalty != 1,
        "it does not look for repetition in prompts (decode.no_repeat_ngram)": config.no_repeat_ngram > 0 and gpt,
        f"it stops by first-k (decode.stop_rule={config.stop_rule}; auto would do)": beam
        and config.stop_rule in ("exact", "best-now"),
        "it knows no glossary": any(c.terms for c in constraints),
        "its beam knows no stop strings": beam and any(c.stops for c in constraints),
        "it looks for banned sequences in answers alone": gpt
        and any(len(b) > 1 for c in constraints for b in c.banned),
        "it cannot write past the positions the model has learned": longer and model.positions == "learned",
        "a GPT's context is cut otherwise past the length it was trained on": longer
        and gpt
        and model.positions == "sinusoidal",
    }
    return next((reason for reason, holds in cases.items() if holds), None)


def positions_needed(model: ModelConfig, one: RequestJob) -> int:
    """How many positions source and answer take at most."""
    request, job = one
    return len(request.ids) + job.limit if model.family == "gpt" else max(len(request.ids), job.limit)


class CTranslate2Engine:
    """A model in CTranslate2's hands. `compute`: its arithmetic; by default the 8 bits this processor has."""

    def __init__(self, model: Any, special: SpecialTokens, compute: str | None = None) -> None:
        if special.eos is None:
            raise ConfigError("CTranslate2 needs a token that ends a text; use engine=auto")
        self.config: ModelConfig = model.config
        self.special, self.eos = special, special.eos
        self.compute = compute or conversion.compute_type()
        self.has_source = self.config.family == "transformer"
        self.positions = 0
        self.runner: Any = None

    def prepare(self, model: Any, positions: int) -> None:
        """Convert the model, where that has not been done for as many positions."""
        if self.runner is not None and positions <= self.positions:
            return
        self.positions = max(MIN_POSITIONS, 1 << (positions - 1).bit_length())
        if self.config.positions == "learned":
            self.positions = self.config.block_size
        unknown = self.special.unknown
        if unknown is None:  # CTranslate2 must have one; which does not matter, since all words are known
            unknown = self.special.never[0] if self.special.never else self.special.bos
        vocabularies = conversion.Vocabularies(self.special.bos, self.eos, unknown)
        self.runner = conversion.load(
            model, vocabularies, n_positions=self.positions, compute=self.compute, threads=torch.get_num_threads()
        )

    def answer(self, model: Any, batch: Sequence[RequestJob], config: DecodeConfig) -> list[list[Hypothesis]]:
        """The hypotheses for every request, best first, in their order."""
        empty = {self.special.bos, self.eos}  # what CTranslate2 takes for an empty text
        real = [i for i, (request, _) in enumerate(batch) if not self.has_source or not empty.issuperset(request.ids)]
        results: list[list[Hypothesis]] = [[Hypothesis([], 0.0, 0.0, [], "eos")] for _ in batch]
        if not real:
            return results
        self.prepare(model, max(positions_needed(self.config, batch[i]) for i in real))
        scorer = LazyScorer(self, config.batch_size or BATCH_SIZE)
        for numbers in self.group_compatible(batch, real):
            found = self.search([batch[i] for i in numbers], config)
            # Whoever was let run past its own limit is asked again, with those of the same limit.
            again: dict[int, list[int]] = {}
            for i, own in zip(numbers, found, strict=True):
                if all(len(ids) <= batch[i][1].limit for ids, _ in own):
                    results[i] = self.hypotheses(batch[i], own, config, scorer)
                else:
                    again.setdefault(batch[i][1].limit, []).append(i)
            for same in again.values():
                for i, own in zip(same, self.search([batch[i] for i in same], config), strict=True):
                    results[i] = self.hypotheses(batch[i], own, config, scorer)
        return results

    def group_compatible(self, batch: Sequence[RequestJob], real: Sequence[int]) -> Collection[list[int]]:
        """Requests that one call can answer: the same minimum and bans; prompts of the same length."""
        groups: dict[Any, list[int]] = {}
        for i in real:
            request, job = batch[i]
            length = 0 if self.has_source else len(request.ids) + len(request.constraints.prefix)
            groups.setdefault((job.minimum, request.constraints.banned, length), []).append(i)
        return groups.values()

    def search(self, batch: Sequence[RequestJob], config: DecodeConfig) -> list[list[tuple[list[int], float]]]:
        """For each request what CTranslate2 finds: ids, with EOS where there is one, and the sum of their log-probabilities."""
        requests = [request for request, _ in batch]
        banned = [*((token,) for token in self.special.never), *requests[0].constraints.banned]
        alpha = config.alpha if config.alpha else conversion.NO_PENALTY
        options: dict[str, Any] = {
            "beam_size": config.beams,
            "num_hypotheses": config.beams,
            "length_penalty": alpha,
            "no_repeat_ngram_size": config.no_repeat_ngram,
            "disable_unk": not config.allow_unknown and self.special.unknown is not None,
            "suppress_sequences": conversion.as_tokens(banned) or None,
            "max_batch_size": config.batch_size or BATCH_SIZE,
            "return_scores": True,
            "return_end_token": True,
        }
        most, fewest = max(job.limit for _, job in batch), batch[0][1].minimum
        prefixes = [list(request.constraints.prefix) for request in requests]
        if self.has_source:
            options["use_vmap"] = config.shortlist
            options |= {"max_decoding_length": most, "min_decoding_length": fewest, "max_input_length": 0}
            prefix = conversion.as_tokens(prefixes) if any(prefixes) else None
            sources = conversion.as_tokens(request.ids for request in requests)
            found = self.runner.translate_batch(sources, prefix, **options)
            written = [one.hypotheses for one in found]
        else:
            longest = max(map(len, prefixes))
            options |= {"max_length": most - longest, "min_length": max(0, fewest - longest)}
            prompts = conversion.as_tokens([*r.ids, *prefix] for r, prefix in zip(requests, prefixes, strict=True))
            found = self.runner.generate_batch(prompts, include_prompt_in_result=False, **options)
            written = [
                [[*map(str, prefix), *map(str, ids)] for ids in one.sequences_ids]
                for prefix, one in zip(prefixes, found, strict=True)
            ]
        return [
            [
                (list(map(int, ids)), score * max(1, len(ids)) ** alpha)
                for ids, score in zip(own, one.scores, strict=True)
            ]
            for own, one in zip(written, found, strict=True)
        ]

    def hypotheses(
        self, one: RequestJob, found: Sequence[tuple[list[int], float]], config: DecodeConfig, scorer: LazyScorer
    ) -> list[Hypothesis]:
        """As our own search would give them."""
        (request, job), rule = one, length_rule(config)
        answers: list[Hypothesis] = []
        for ids, total in found:
            ended: Any = "eos" if ids and ids[-1] == self.eos else "length"
            ids = ids[:-1] if ended == "eos" else ids
            if job.stopping_criterion is not None:
                end = next((n for n in range(1, len(ids) + 1) if job.stopping_criterion(ids[:n])), None)
                ids, ended = (ids, ended) if end is None else (ids[:end], "stop")
            counts = len(found) > 1 or config.shortlist  # else the model's own, when somebody looks
            score = rule.score(total, len(ids), ended == "eos") if counts else None
            answer = LazyHypothesis(ids, score, ended, scorer, rule)
            if request.constraints.prefix:  # CTranslate2 does not count what was given
                values = self.token_logprobs([request.ids], [ids], 1)[0]
                answer.cached_logprobs = values if ended == "eos" else values[: len(ids)]
                counted = answer.logprob - sum(values[: request.constraints.unscored])
                answer.cached_score = rule.score(counted, len(ids), ended == "eos")
            else:
                scorer.unscored.append((request.ids, answer))
            answers.append(answer)
        return ranked(answers)[: config.n_best] if len(answers) > 1 else answers

    def token_logprobs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], batch_size: int
    ) -> list[list[float]]:
        """What the model gives to each token of each target, and to EOS after it."""
        limits = {"max_batch_size": batch_size, "max_input_length": 0}
        if self.has_source:
            found = self.runner.score_batch(conversion.as_tokens(sources), conversion.as_tokens(targets), **limits)
            return [list(one.log_probs) for one in found]
        whole = [[*source, *target, self.eos] for source, target in zip(sources, targets, strict=True)]
        found = self.runner.score_batch(conversion.as_tokens(whole), **limits)
        return [list(one.log_probs[len(source) - 1 :]) for source, one in zip(sources, found, strict=True)]


engines: weakref.WeakKeyDictionary[nn.Module, dict[str, tuple[Any, CTranslate2Engine]]] = weakref.WeakKeyDictionary()
lock = threading.Lock()


def cached_engine(model: Any, special: SpecialTokens, name: str) -> CTranslate2Engine:
    """The model's engine of this name: made once, and again when a weight has changed."""
    if next(model.parameters()).device.type != "cpu":
        raise ConfigError("engine={name} is for a CPU, and the model is on a GPU; use engine=auto", name=name)
    target_of("ct2").require(f"engine={name}")
    now = weight_checksum(model)
    with lock:
        made = engines.setdefault(model, {})
        known = made.get(name)
        if known is None or known[1].special != special or not torch.equal(known[0], now):
            compute = "float32" if name == "ctranslate2" else None
            known = made[name] = (now, CTranslate2Engine(model, special, compute))
    return known[1]


def answer(
    model: Any, batch: Sequence[RequestJob], config: DecodeConfig, special: SpecialTokens, *, trace: bool = False
) -> list[list[Hypothesis]]:
    """What engine=int8 or ctranslate2 answers; a sentence where it cannot."""
    reason = unsupported(model.config, batch, config, trace=trace)
    if reason is None and special.more_ends:
        reason = "it ends a text by one token, and this model by several"
    if reason is not None:
        raise ConfigError(
            "engine={engine} is CTranslate2, and {reason}; use engine=auto", engine=config.engine, reason=reason
        )
    config = replace(config, shortlist=config.shortlist is not False and getattr(model, "shortlist", None) is not None)
    return cached_engine(model, special, config.engine).answer(model, batch, config)
