"""A lexical shortlist: how it is made and kept, and that CTranslate2 writes no token outside of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer import Transformer
from glassformer.config import DecodeConfig
from glassformer.decode import translate_batch
from glassformer.decode.shortlist import Shortlist
from glassformer.errors import ConfigError, UserError
from glassformer.improve.shortlist import make_shortlist, translation_table
from tests.decode.test_ensemble import SOURCES, V, member

PARITY = Shortlist(
    np.array([5]), np.array([[-1, -1]] * 5 + [[6, 8] if i % 2 else [7, 9] for i in range(5, V)])
)  # an even source token allows 7 and 9, an odd one 6 and 8


def with_table(table: Shortlist, **how: Any) -> Transformer:
    model = member(3, **how).double()
    model.shortlist = table
    return model


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


@pytest.mark.parametrize("engine", ["ctranslate2", "int8"])
def test_only_its_tokens_are_written(engine: str) -> None:
    """Sentence by sentence. Broken variants: a vmap.txt that is not used; one that is used where nobody wants it."""
    pytest.importorskip("ctranslate2")
    model = with_table(PARITY, tie_output=False).float()
    outside = 0
    for source in SOURCES:
        config = DecodeConfig(engine=engine, beam=2, max_new_tokens=9, min_new_tokens=3)  # type: ignore[arg-type]
        with_it, without = (
            translate_batch(model, [source], replace(config, shortlist=on))[0][0] for on in (None, False)
        )
        allowed = {5, *(t for s in source if s > 4 for t in PARITY.likely[s].tolist())}
        assert set(with_it.ids) <= allowed
        outside += not set(without.ids) <= allowed
    assert outside
