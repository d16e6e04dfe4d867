"""Beam search against the enumeration of everything it could have found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from glassformer.config import DecodeConfig
from glassformer.decode import TokenConstraints, translate_batch
from glassformer.decode import search as search_module
from glassformer.nn import Rows, record
from tests.counts import count
from tests.laws.zoo import VOCABULARY, small
from tests.tables import CONTROLS, EOS, Possible, TableModel, by_hand, everything

ALPHAS = (-1.0, 0.0, 0.6, 1.0, 2.0)
RULES = ("gnmt", "power", "power-no-eos")
STOPS = ("exact", "first-k")


def ranking(found: list[Possible], rule: str, alpha: float) -> list[tuple[tuple[int, ...], float]]:
    ordered = sorted(found, key=lambda p: (not p.complete, -by_hand(p, rule, alpha)))
    return [(p.ids, by_hand(p, rule, alpha)) for p in ordered]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_that_covers_the_space_finds_the_best_of_everything(alpha: float) -> None:
    """240 tables for each alpha, 1,200 in all. Caught: EOS left out of (or counted into) the wrong rule's length; a stop
    that takes today's score for a bound; hypotheses lost when a sentence leaves the batch."""
    draw = random.Random(int(alpha * 10))
    tables, largest = 10, (count(fast=4, soak=5), 5)
    for rule in RULES:
        for stop in STOPS:
            for vocabulary, limit in (
                (2, 5),
                (5, 2),
                (4, 3),
                largest if rule == "gnmt" and stop == "exact" else (3, 4),
            ):
                minimum = draw.choice((0, 0, 1))
                model = TableModel(tables, vocabulary, limit, seed=draw.randrange(10**6))
                texts = sum((vocabulary - 1) ** length for length in range(limit + 1))  # and never more candidates
                config = DecodeConfig(
                    beam=texts,
                    n_best=3,
                    length_rule=rule,
                    alpha=alpha,
                    stop_rule=stop,
                    max_new_tokens=limit,
                    min_new_tokens=minimum,
                    allow_unknown=True,
                )
                found = translate_batch(model, [[n] for n in range(tables)], config, special=CONTROLS)
                for table, hypotheses in enumerate(found):
                    best = ranking(list(everything(model, table, limit, minimum)), rule, alpha)[: config.n_best]
                    assert [tuple(h.ids) for h in hypotheses] == [ids for ids, _ in best]
                    assert [h.score for h in hypotheses] == pytest.approx([score for _, score in best], abs=1e-6)


def plain_beam(
    model: TableModel, table: int, config: DecodeConfig, limit: int, ends: tuple[int, ...] = (EOS,)
) -> list[tuple[tuple[int, ...], float]]:
    """Beam search as the text of the module tells it, one sentence, lists and sorting; `exact` as running to the end."""
    logprobs = model.logits[table].detach().log_softmax(-1).tolist()
    alive: list[tuple[float, tuple[int, ...], int]] = [(0.0, (), 0)]
    ended: list[Possible] = []
    for length in range(1, limit + 1):
        candidates = [
            (total + logprob, ids, node, token)
            for total, ids, node in alive
            for token, logprob in enumerate(logprobs[node])
            if token not in ends or length > config.min_new_tokens
        ]
        candidates = sorted(candidates, reverse=True)[: (1 + len(ends)) * config.beams if config.beams > 1 else 1]
        alive = []
        for rank, (total, ids, node, token) in enumerate(candidates):
            if token in ends:
                ended += [Possible(ids, total, True)] if rank < config.beams else []
            elif len(alive) < config.beams:
                alive.append((total, (*ids, token), node * model.config.vocab_size + token + 1))
        if config.stop_rule == "first-k" and len(ended) >= config.beams:
            alive = []
        if config.stop_rule == "best-now" and len(ended) >= config.beams and alive:
            now = by_hand(Possible(alive[0][1], alive[0][0], False), config.length_rule, config.alpha)
            kept = sorted((by_hand(p, config.length_rule, config.alpha) for p in ended), reverse=True)
            alive = [] if now <= kept[config.beams - 1] else alive
    ended += [Possible(ids, total, False) for total, ids, _ in alive]
    return ranking(ended, config.length_rule, config.alpha)[: config.n_best]


@pytest.mark.parametrize("ends", [(EOS,), (EOS, 2), (3, EOS, 1)])
@pytest.mark.parametrize("stop", [*STOPS, "best-now"])
def test_a_narrow_beam_is_the_plain_beam(stop: str, ends: tuple[int, ...]) -> None:
    """Caught: an EOS below the first k candidates that counts as ended; a beam that is not filled up after one has ended, or
    after several ended by several tokens; rows of one sentence taken for another's; a second end that is written on past,
    or allowed before the minimum."""
    draw = random.Random(11)
    for seed in range(count(fast=15, soak=150)):
        model = TableModel(5, 4, 6, seed=seed, scale=2.0)
        beam = draw.choice((1, 2, 3, 5))
        config = DecodeConfig(
            beam=beam,
            n_best=draw.randrange(1, beam + 1),
            stop_rule=stop,
            length_rule=draw.choice(RULES),
            alpha=draw.choice(ALPHAS),
            max_new_tokens=6,
            min_new_tokens=draw.choice((0, 1, 3)),
        )
        special = replace(CONTROLS, eos=ends[0], more_ends=ends[1:])
        found = translate_batch(model, [[n] for n in range(5)], config, special=special)
        for table, hypotheses in enumerate(found):
            expected = plain_beam(model, table, config, 6, ends)
            assert [tuple(h.ids) for h in hypotheses] == [ids for ids, _ in expected]
            assert [h.score for h in hypotheses] == pytest.approx([score for _, score in expected], abs=1e-9)


def spelled(ids: Sequence[int]) -> str:
    return "".join("abcdefgh"[i] for i in ids)


@pytest.mark.parametrize("rule", RULES)
def test_the_exact_stop_returns_what_running_on_returns(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught: a bound at the present length (wrong for alpha > 0), at the longest length (wrong for alpha < 0), or one
    that looks at the best hypothesis where the n-th is asked for; one that only thinks of EOS, where a text that ends with a
    stop string has none, so that its sum is divided by less, and no minimum holds it back."""
    draw = random.Random(7)
    sources = [[n] for n in range(6)]
    cases = []
    for alpha in ALPHAS:
        for _ in range(count(fast=3, soak=40)):
            model = TableModel(6, 4, 6, seed=draw.randrange(10**6), scale=2.5)
            config = DecodeConfig(
                beam=draw.choice((2, 3)),
                n_best=draw.choice((1, 2)),
                alpha=alpha,
                length_rule=rule,
                max_new_tokens=6,
                min_new_tokens=draw.choice((0, 2, 3)),
            )
            stops = (draw.choice(("a", "ca", "dd", "ac")),)
            how = {"special": CONTROLS, "constraints": TokenConstraints(stops=stops), "text": spelled}
            cases.append((model, config, how, translate_batch(model, sources, config, **how)))
    monkeypatch.setattr(search_module.SearchState, "stop_rule_met", lambda self, n, best: best == -float("inf"))
    for model, config, how, stopped in cases:
        assert translate_batch(model, sources, config, **how) == stopped
    assert any(h.ended == "stop" for *_, stopped in cases for hs in stopped for h in hs)


@pytest.mark.parametrize("stop", STOPS)
def test_the_best_does_not_depend_on_how_many_are_asked_for(stop: str) -> None:
    for seed in range(count(fast=10, soak=100)):
        model = TableModel(4, 5, 5, seed=seed, scale=2.5)
        config = {"beam": 4, "stop_rule": stop, "max_new_tokens": 5, "alpha": ALPHAS[seed % 5], "special": CONTROLS}
        special = config.pop("special")
        many = translate_batch(model, [[n] for n in range(4)], DecodeConfig(**config, n_best=4), special=special)
        one = translate_batch(model, [[n] for n in range(4)], DecodeConfig(**config), special=special)
        assert [h[0] for h in many] == [h[0] for h in one]
        assert all(len(h) == 4 for h in many)
        for hypotheses in many:
            assert [h.score for h in hypotheses if h.complete] == sorted(
                (h.score for h in hypotheses if h.complete), reverse=True
            )


@pytest.mark.parametrize("stop", STOPS)
def test_a_beam_of_one_is_greedy_search(stop: str) -> None:
    """Caught: a beam of one that goes on with the second best candidate after its EOS."""
    for seed in range(count(fast=10, soak=100)):
        model = TableModel(5, 5, 5, seed=seed)
        config = DecodeConfig(beam=1, stop_rule=stop, max_new_tokens=5, alpha=ALPHAS[seed % 5])
        sources = [[n] for n in range(5)]
        greedy = translate_batch(model, sources, config, special=CONTROLS)
        beam = translate_batch(model, sources, config, special=CONTROLS, trace=True)  # a trace is of a beam
        assert [h[0].ids for h in greedy] == [h[0].ids for h in beam]
        assert [h[0].score for h in greedy] == pytest.approx([h[0].score for h in beam], abs=1e-12)
        logprobs = model.logits.detach().log_softmax(-1)
        for table, hypotheses in enumerate(greedy):
            node, expected = 0, []
            while len(expected) < 5 and (token := int(logprobs[table, node].argmax())) != EOS:
                expected.append(token)
                node = node * 5 + token + 1
            assert hypotheses[0].ids == expected


def test_a_beam_wider_than_the_vocabulary() -> None:
    model = TableModel(3, 3, 4, seed=1)
    for beam in (4, 7, 50):
        config = DecodeConfig(beam=beam, n_best=4, max_new_tokens=4)
        for hypotheses in translate_batch(model, [[0], [1], [2]], config, special=CONTROLS):
            assert len({(tuple(h.ids), h.complete) for h in hypotheses}) == 4


def rescored(model: object, source: list[int], ids: list[int], complete: bool) -> list[float]:
    """Forced decoding by the whole model at once: no cache, no search."""
    target = [1, *ids]
    with torch.no_grad():
        logits = model(Rows.whole(torch.tensor([source])), Rows.whole(torch.tensor([target])))[0]  # type: ignore[operator]
    labels = [*ids, *([2] if complete else [])]
    return [float(row[label]) for row, label in zip(logits.log_softmax(-1), labels)]


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 4, "n_best": 4},
        {"beam": 6, "n_best": 6, "length_rule": "power"},
        {"beam": 1, "length_rule": "power-no-eos", "alpha": 2.0},
        {"temperature": 1.3, "num_samples": 4, "top_k": 9},
        {"beam": 4, "n_best": 4, "no_repeat_ngram": 2, "min_new_tokens": 4, "stop_rule": "first-k"},
    ],
    ids=str,
)
def test_every_score_is_that_of_forced_decoding(settings: dict[str, object]) -> None:
    model = small("transformer", seed=5, tie_output=False)
    sources = [[5, 6, 7], [8, 9, 10, 11, 12], [17]]
    config = DecodeConfig(**settings, max_new_tokens=9)  # type: ignore[arg-type]
    for source, hypotheses in zip(sources, translate_batch(model, sources, config)):
        for h in hypotheses:
            expected = rescored(model, source, h.ids, h.ended == "eos")
            assert h.token_logprobs == pytest.approx(expected, abs=1e-6)
            assert h.logprob == pytest.approx(sum(expected), abs=1e-6)
            score = by_hand(Possible(tuple(h.ids), h.logprob, h.ended == "eos"), config.length_rule, config.alpha)
            assert h.score == pytest.approx(score, abs=1e-6)


def test_the_trace_tells_how_each_hypothesis_came_about() -> None:
    """Walking back from an ended candidate over its parents' slots gives the hypothesis; the sums add up."""
    model = TableModel(3, 5, 5, seed=3)
    config = DecodeConfig(beam=4, n_best=4, max_new_tokens=5)
    for hypotheses in translate_batch(model, [[0], [1], [2]], config, special=CONTROLS, trace=True):
        trace = hypotheses[0].trace
        assert trace is not None and all(h.trace is trace for h in hypotheses)
        told = set()
        for place, candidates in enumerate(trace.steps):
            slots = [c.slot for c in candidates if c.fate == "kept"]
            assert len(slots) == len(set(slots)) <= 4
            for c in candidates:
                if c.fate != "ended":
                    continue
                assert c.token == EOS
                ids, parent, total = [], c.parent, c.logprob
                for earlier in reversed(trace.steps[:place]):
                    node = next(e for e in earlier if e.slot == parent)
                    ids.insert(0, node.token)
                    parent, total = node.parent, total + node.logprob
                assert c.total == pytest.approx(total, abs=1e-9)
                told.add((tuple(ids), round(c.score, 9)))
        assert {(tuple(h.ids), round(h.score, 9)) for h in hypotheses if h.complete} <= told


def test_lengths_follow_the_source() -> None:
    model = small("transformer", tie_output=False, seed=4)
    sources = [[7] * n for n in (1, 4, 9)]
    for h, source in zip(translate_batch(model, sources, DecodeConfig(max_ratio=1.0, max_extra=2)), sources):
        assert len(h[0].ids) <= len(source) + 2
    for h, source in zip(translate_batch(model, sources, DecodeConfig(min_ratio=1.5, max_extra=0)), sources):
        assert 1.5 * len(source) <= len(h[0].ids) <= 2 * len(source)


def test_everyone_gets_an_answer_in_order_and_an_empty_source_an_empty_one() -> None:
    model = small("transformer", tie_output=False, seed=4)
    draw = random.Random(1)
    sources = [[draw.randrange(5, VOCABULARY) for _ in range(draw.randrange(9))] for _ in range(13)]
    short = {"max_ratio": 1.0, "max_extra": 3}
    together = translate_batch(model, sources, DecodeConfig(batch_size=5, **short))
    for source, hypotheses in zip(sources, together):
        alone = translate_batch(model, [source], DecodeConfig(**short))[0][0]
        assert hypotheses[0].ids == alone.ids and hypotheses[0].score == pytest.approx(alone.score, abs=1e-9)
        assert source or hypotheses[0].ids == []


def test_training_mode_is_left_as_it_was_and_dropout_is_off() -> None:
    model = small("transformer", dropout=0.5, tie_output=False).train()
    first, second = (translate_batch(model, [[5, 6, 7]])[0][0] for _ in range(2))
    assert model.training and first == second


def test_where_nothing_is_allowed_the_text_ends_there() -> None:
    model = small("transformer")
    ban_all = TokenConstraints(banned=tuple((t,) for t in range(VOCABULARY)))
    for config in (DecodeConfig(), DecodeConfig(beam=1), DecodeConfig(temperature=1.0)):
        (h,) = translate_batch(model, [[5]], config, constraints=ban_all)[0]
        assert h.ids == [] and h.ended == "length"


def test_the_alignment_is_the_attention_while_choosing() -> None:
    model = small("transformer", tie_output=False, seed=6)
    source = [5, 6, 7, 8]
    (h, other) = translate_batch(
        model, [source], DecodeConfig(n_best=2, max_new_tokens=6, min_new_tokens=4), align=True
    )[0]
    assert h.alignment is not None and other.alignment is not None
    assert len(h.alignment) == len(h.ids)
    assert all(len(row) == 4 and sum(row) == pytest.approx(1, abs=1e-9) for row in h.alignment)
    with record(model, "decoder.*.cross.weights") as seen:
        model(Rows.whole(torch.tensor([source])), Rows.whole(torch.tensor([[1, *h.ids[:-1]]])))
    expected = torch.stack(list(seen.values())).mean(dim=(0, 2))[0]
    assert torch.allclose(torch.tensor(h.alignment, dtype=torch.float64), expected)
