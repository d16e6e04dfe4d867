"""A lexical shortlist: of the whole vocabulary it changes nothing; a token outside of it is never written, and the probabilities
of the others are among themselves; who else is in the batch does not matter; a program of another's gets the same table."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer import Transformer
from glassformer.config import DecodeConfig
from glassformer.decode import Request, TokenConstraints, answer, translate_batch
from glassformer.decode.request import SpecialTokens
from glassformer.decode.shortlist import Shortlist, SlicedOutput
from glassformer.errors import ConfigError, UserError
from glassformer.improve.shortlist import make_shortlist, translation_table
from glassformer.text.tokenizer import BOS, EOS
from tests.decode.test_ensemble import SOURCES, V, member
from tests.laws.test_decoding_cache import same

SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 3, "n_best": 3},
    {"beam": 3, "engine": "plain"},
    {"temperature": 1.0, "num_samples": 2},
]
PARITY = Shortlist(
    np.array([5]), np.array([[-1, -1]] * 5 + [[6, 8] if i % 2 else [7, 9] for i in range(5, V)])
)  # an even source token allows 7 and 9, an odd one 6 and 8


def with_table(table: Shortlist, **how: Any) -> Transformer:
    model = member(3, **how).double()
    model.shortlist = table
    return model


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_the_whole_vocabulary_is_no_shortlist(search: dict[str, Any]) -> None:
    """Broken variants: the bias of the output layer left out; a softmax that counts what is not in the list."""
    model = with_table(Shortlist(np.arange(V), np.full((V, 1), -1)), output_bias=True)
    config = {"max_new_tokens": 9, **search}
    with_it, without = (translate_batch(model, SOURCES, DecodeConfig(shortlist=on, **config)) for on in (None, False))
    assert same(with_it, without)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_only_its_tokens_are_written_whoever_is_in_the_batch(search: dict[str, Any]) -> None:
    """Few slots, so that sentences join and leave. Broken variants: the union of the batch's shortlists for everybody; a table
    that stays where it was when its slot moves; a row of the output layer in another's place."""
    model = with_table(PARITY)
    config = DecodeConfig(max_new_tokens=9, min_new_tokens=3, batch_size=3, **search)
    together = translate_batch(model, SOURCES, config)
    for source, own in zip(SOURCES, together, strict=True):
        may = {5, *(t for s in source if s > 4 for t in PARITY.likely[s].tolist())}
        assert all(set(h.ids) <= may for h in own)
    alone = [translate_batch(model, [source], config)[0] for source in SOURCES]
    assert same(together, alone)
    assert any(set(h.ids) - {5} for own in together for h in own)  # or this test would see nothing


def test_probabilities_are_among_the_shortlist() -> None:
    """Token by token from the whole text, by a softmax over the sentence's own tokens in NumPy."""
    model = with_table(PARITY)
    for source, own in zip(SOURCES, translate_batch(model, SOURCES, DecodeConfig(max_new_tokens=9)), strict=True):
        tokens = PARITY.tokens(source, SpecialTokens(), TokenConstraints())
        written = [*own[0].ids, *([EOS] if own[0].ended == "eos" else [])]
        for at, token in enumerate(written):
            with torch.no_grad():
                logits = model(torch.tensor([source]), torch.tensor([[BOS, *written[:at]]]))[0, -1].double().numpy()
            wanted = logits[token] - math.log(np.exp(logits[tokens]).sum())
            assert own[0].token_logprobs[at] == pytest.approx(wanted, abs=1e-4)


def test_a_cpu_multiplies_with_the_rows_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: logits of the whole vocabulary that are only masked, which is right and no faster."""
    made: list[int] = []
    init = SlicedOutput.__init__

    def counted(self: Any, *given: Any) -> None:
        init(self, *given)
        made.append(self.weight.size(1))

    monkeypatch.setattr(SlicedOutput, "__init__", counted)
    model = with_table(PARITY)
    odd = [[5, 7, EOS]]
    translate_batch(model, odd, DecodeConfig(max_new_tokens=5))
    assert set(made) == {4}  # 5, 6, 8 and EOS
    made.clear()
    translate_batch(model, odd, DecodeConfig(max_new_tokens=5, shortlist=False))
    model.decoder.register_forward_hook(lambda *_: None)  # to whoever listens the model itself answers
    translate_batch(model, odd, DecodeConfig(max_new_tokens=5))
    assert not made


def test_what_is_asked_for_is_in_it() -> None:
    model, source = with_table(PARITY), [5, 7, EOS]
    for constraints in (TokenConstraints(prefix=(11,)), TokenConstraints(terms=(((11, 10),),))):
        request = Request(source, constraints, limits=(4, 8))
        ((_, hypotheses),) = answer(model, [request], DecodeConfig(beam=4))
        assert 11 in hypotheses[0].ids


def test_asked_for_where_there_is_none() -> None:
    with pytest.raises(
        ConfigError, match="this run has no shortlist; `glassformer improve RUN --only distill` makes one"
    ):
        translate_batch(member(3), SOURCES, DecodeConfig(shortlist=True))


def test_model_one_by_hand() -> None:
    """Two pairs, "a b" with "x y" and "a" with "x": after the first round p(x|a) = 0.75 and p(y|b) = 0.5 (from counts of
    1/2 + 1 and 1/2 for a), and the likelihood's maximum is a with x, b with y."""
    first = dict(zip(zip(*translation_table([[0, 1], [0]], [[5, 6], [5]], 1)[:2]), [0.75, 0.25, 0.5, 0.5]))
    source, target, chance = translation_table([[0, 1], [0]], [[5, 6], [5]], 1)
    assert dict(zip(zip(source, target), chance)) == pytest.approx(first)
    source, target, chance = translation_table([[0, 1], [0]], [[5, 6], [5]], 60)
    found = dict(zip(zip(source.tolist(), target.tolist()), chance.tolist()))
    assert found[0, 5] > 0.95 and found[1, 6] > 0.95


def test_a_table_of_pairs_is_kept_in_a_file(tmp_path: Path) -> None:
    """Its tokens are those of the pairs, the likeliest first, and a copy where the vocabulary is shared."""
    table = make_shortlist([[5, 6], [5]], [[7, 8, 8], [7]], 9, shared=True)
    assert table.frequent.tolist() == [7, 8] and table.likely[6].tolist()[:2] == [8, 7]
    assert table.likely[5, 0] == 7 and table.likely[4, -1] == 4 and set(table.likely[4, :-1]) == {-1}
    table.save(tmp_path / "table")
    again = Shortlist.load(tmp_path / "table", 9, 9)
    assert np.array_equal(again.frequent, table.frequent) and np.array_equal(again.likely, table.likely)
    for sizes in ((8, 9), (9, 8)):
        with pytest.raises(UserError, match="is no shortlist of this run's vocabulary"):
            Shortlist.load(tmp_path / "table", *sizes)
    (tmp_path / "table").write_bytes(b"no table")
    with pytest.raises(UserError, match="is no shortlist"):
        Shortlist.load(tmp_path / "table", 9, 9)


def test_ctranslate2_reads_the_same_table() -> None:
    """Sentence by sentence, its answers and their scores are ours; broken variant: a vmap.txt that it does not use."""
    pytest.importorskip("ctranslate2")
    model = with_table(PARITY, tie_output=False).float()
    for source in SOURCES:
        ours, theirs = (
            translate_batch(model, [source], DecodeConfig(engine=engine, beam=1, max_new_tokens=9))[0][0]
            for engine in ("auto", "ctranslate2")
        )
        assert ours.ids == theirs.ids and ours.score == pytest.approx(theirs.score, abs=1e-3)
