"""A run's lexical shortlist from the pairs it was trained on, by IBM model 1 (Brown et al. 1993): p(target token | source token)
by expectation and maximization, every link of a pair equally likely at first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from glassformer.api import load
from glassformer.data.store import run_examples
from glassformer.decode.shortlist import NAME, Shortlist
from glassformer.errors import UserError
from glassformer.improve.comparison import Answered, Pair, answered
from glassformer.runs.folder import RunFolder

FREQUENT, LIKELY = 500, 100  # target tokens for all, and for each source token
PAIRS, LONGEST = 100_000, 64  # pairs that are counted, and tokens of each of their texts
ROUNDS = 4
MAY_COST, MUST_GAIN = 0.1, 1.05  # of the metric, and of the sentences a second

Ids = Sequence[Sequence[int]]


def translation_table(
    sources: Ids, targets: Ids, rounds: int = ROUNDS
) -> tuple[Int[np.ndarray, "N"], Int[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """IBM model 1: the source and target tokens that occur together, and p(target | source)."""
    links = [np.stack(np.meshgrid(s, t), -1).reshape(-1, 2) for s, t in zip(sources, targets, strict=True)]
    place = np.repeat(np.arange(sum(map(len, targets))), np.repeat([len(s) for s in sources], list(map(len, targets))))
    together = np.concatenate(links)
    width = int(together[:, 1].max()) + 1
    known, link = np.unique(together[:, 0] * width + together[:, 1], return_inverse=True)
    source, target = known // width, known % width
    chance = np.ones(len(known))
    for _round in range(rounds):
        weight = chance[link]
        weight /= np.bincount(place, weight)[place]
        count = np.bincount(link, weight, len(known))
        chance = count / np.bincount(source, count)[source]
    return source, target, chance


def make_shortlist(sources: Ids, targets: Ids, source_size: int, *, shared: bool) -> Shortlist:
    """The shortlist of pairs of token ids. `shared`: one vocabulary for both languages, so a token may be copied."""
    counts = np.bincount(np.concatenate([np.asarray(t, dtype=np.int64) for t in targets]))
    frequent = np.argsort(-counts, kind="stable")[:FREQUENT]
    frequent = frequent[counts[frequent] > 0]
    source, target, chance = translation_table(sources, targets)
    order = np.lexsort((-chance, source))
    source, target = source[order], target[order]
    first = np.searchsorted(source, source)  # where the links of each one's source token begin
    rank = np.arange(len(source)) - first
    kept = rank < LIKELY
    likely = np.full((source_size, LIKELY + 1), -1)
    likely[source[kept], rank[kept]] = target[kept]
    if shared:
        likely[:, LIKELY] = np.arange(source_size)
    return Shortlist(frequent.astype(np.int64), likely.astype(np.int64))


def shortlist_of_run(run: RunFolder) -> Shortlist:
    """From the training pairs that a run has kept, as its tokenizers cut them."""
    pairs = list(islice(run_examples(run.recipe.data, "train", run.path / "data"), PAIRS))
    tokenizers, model = run.tokenizers, run.recipe.model
    sides = zip(*pairs)
    sources, targets = (
        [ids[:LONGEST] for ids in own.encode_batch(list(texts))]
        for own, texts in zip((tokenizers.source, tokenizers.target), sides, strict=True)
    )
    filled = [(s, t) for s, t in zip(sources, targets, strict=True) if s and t]
    sources, targets = [s for s, _t in filled], [t for _s, t in filled]
    return make_shortlist(
        sources, targets, model.source_vocab_size or model.vocab_size, shared=model.source_vocab_size is None
    )


def score_and_speed(answers: Answered) -> dict[str, float]:
    """The score and the sentences a second."""
    return {"score": answers.score, "sentences_per_second": answers.speed}


def keep_if_it_pays(run: RunFolder, pairs: Sequence[Pair], metric: str) -> dict[str, Any]:
    """Give a run a shortlist where on these held-out pairs it writes faster in 8 bits on a CPU and no worse; what was measured,
    which is nothing where CTranslate2 is not there."""
    model = load(run.path, device="cpu", task="translate")
    model._model.shortlist = table = shortlist_of_run(run)
    try:
        without, with_it = (answered(model, pairs, metric, shortlist=on, engine="int8") for on in (False, True))
    except UserError:  # CTranslate2 is not there, or cannot say this model
        return {"kept": False}
    pays = with_it.score >= without.score - MAY_COST and with_it.speed >= MUST_GAIN * without.speed
    if pays:
        table.save(run.path / NAME)
    else:
        (run.path / NAME).unlink(missing_ok=True)
    return {"kept": pays, "with_it": score_and_speed(with_it), "without": score_and_speed(without)}
