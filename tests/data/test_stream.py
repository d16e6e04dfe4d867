"""Token files and the order of things."""

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from glassformer.data.store import run_examples
from glassformer.data.stream import Position, Stream, epoch_order, random_bits, uniform
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.runs.folder import RunFolder
from glassformer.text.flat import ranges
from tests.counts import count

sequences = st.lists(st.lists(st.integers(0, 99), max_size=12), max_size=30)


@settings(max_examples=count(fast=50, soak=1000), deadline=None)
@given(sequences)
def test_a_token_file_returns_what_was_written(tmp_path_factory, lists):
    """Broken variant: offsets written without the first 0, or an empty sequence skipped."""
    prefix = tmp_path_factory.mktemp("tokens") / "train"
    file = TokenFile.write(prefix, iter(lists), vocab_size=100)
    assert [file[i].tolist() for i in range(len(file))] == lists
    assert file.lengths.tolist() == [len(s) for s in lists]
    chosen = np.array([i for i in range(len(lists)) if i % 2 == 0], np.int64)
    assert file.take(chosen).tolist() == list(itertools.chain.from_iterable(lists[i] for i in chosen))
    assert [p.name for p in prefix.parent.iterdir()] == ["train.tokens"]


def test_the_number_type_follows_the_vocabulary(tmp_path):
    """Broken variant: uint16 for everything, which turns token 65536 into token 0."""
    assert TokenFile.write(tmp_path / "a", [[65535]], vocab_size=65536).tokens.dtype == np.uint16
    wide = TokenFile.write(tmp_path / "b", [[65536]], vocab_size=65537)
    assert wide.tokens.dtype == np.uint32 and wide[0].tolist() == [65536] and wide.vocab_size == 65537
    assert TokenFile.write(tmp_path / "c", [[-100, 3]])[0].tolist() == [-100, 3]
    for wrong in (-1, 7):
        with pytest.raises(ValueError, match="vocabulary"):
            TokenFile.write(tmp_path / "d", [[wrong]], vocab_size=7)


def test_a_token_file_is_mapped_and_not_loaded(tmp_path):
    """Broken variant: reading the file with np.fromfile."""
    file = TokenFile.write(tmp_path / "t", [[1, 2], [3]], vocab_size=10)
    assert isinstance(file.tokens, np.memmap) and isinstance(file.offsets, np.memmap)


def test_writing_needs_little_memory(tmp_path):
    """Broken variant: collecting all sequences (or all offsets) before writing. The file is 16 MB, the buffer a few."""
    tracemalloc.start()
    TokenFile.write(tmp_path / "t", (np.full(1000, i % 100) for i in range(8000)), vocab_size=100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "t.tokens").stat().st_size > 16_000_000
    assert peak < 12_000_000


def test_a_failed_write_leaves_what_was_there(tmp_path):
    """Broken variant: writing under the final name from the start."""
    TokenFile.write(tmp_path / "t", [[1, 2, 3]], vocab_size=10)

    def breaks():
        yield [4, 5]
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        TokenFile.write(tmp_path / "t", breaks(), vocab_size=10)
    assert TokenFile.open(tmp_path / "t")[0].tolist() == [1, 2, 3]
    assert [p.name for p in tmp_path.iterdir()] == ["t.tokens"]


def test_a_truncated_or_missing_file_is_refused_in_a_sentence(tmp_path):
    """Broken variant: trusting the name, without the magic word and the sizes."""
    TokenFile.write(tmp_path / "t", [[1, 2, 3], [4]], vocab_size=10)
    whole = (tmp_path / "t.tokens").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "cut.tokens").write_bytes(whole[:size])
        with pytest.raises(UserError, match="not a complete token file"):
            TokenFile.open(tmp_path / "cut")
    with pytest.raises(UserError, match="cannot be read"):
        TokenFile.open(tmp_path / "nothing")


def test_ranges_are_the_slices_one_after_the_other():
    starts, lengths = np.array([5, 0, 9]), np.array([3, 0, 2])
    assert ranges(starts, lengths).tolist() == [5, 6, 7, 9, 10]


def philox(counter: int, key: int) -> list[int]:
    """Philox4x64-10 as in Salmon et al. (2011), in plain integers."""
    low = 2**64 - 1
    x = [(counter >> 64 * i) & low for i in range(4)]
    k = [key & low, key >> 64]
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [(b >> 64) ^ x[1] ^ k[0], b & low, (a >> 64) ^ x[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B97F4A7C15) & low, (k[1] + 0xBB67AE8584CAA73B) & low]
    return x


def test_words_are_those_of_philox():
    """Broken variant: NumPy's seeding (which hashes the key), or another generator: orders would differ elsewhere."""
    seed, epoch, item = 7, 3, 11
    place = (item << 64) + (int(Stream.MASK) << 128)
    expected = philox(place + 1, seed + (epoch << 64)) + philox(place + 2, seed + (epoch << 64))
    assert random_bits(8, seed, epoch, Stream.MASK, item).tolist() == expected
    assert random_bits(5, seed, epoch, Stream.MASK, item).tolist() == expected[:5]


@settings(max_examples=count(fast=50, soak=500), deadline=None)
@given(st.integers(0, 300), st.integers(-(2**40), 2**70), st.integers(0, 50))
def test_an_order_is_a_permutation_and_repeats(n, seed, epoch):
    order = epoch_order(n, seed, epoch)
    assert sorted(order.tolist()) == list(range(n))
    assert order.tolist() == epoch_order(n, seed, epoch).tolist()


def test_orders_differ_between_seeds_epochs_and_streams():
    """Broken variant: the epoch left out of the key (the order of epoch 0 for ever)."""
    orders = [
        tuple(epoch_order(50, seed, epoch, stream).tolist())
        for seed, epoch, stream in itertools.product(range(5), range(5), Stream)
    ]
    assert len(set(orders)) == len(orders)


def test_every_place_is_equally_likely():
    """Broken variant: a sort by a few bits only. Where item 0 of 5 ends up, in 5,000 epochs: chi-square with 4 degrees."""
    places = np.array([int(np.flatnonzero(epoch_order(5, 1, epoch) == 0)[0]) for epoch in range(5000)])
    observed = np.bincount(places, minlength=5)
    assert ((observed - 1000) ** 2 / 1000).sum() < 23.5  # 1 in 10,000


def test_unit_is_uniform():
    u = uniform(random_bits(100_000, 1, 0))
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.005 and abs((u < 0.1).mean() - 0.1) < 0.005


def test_a_position_is_two_integers():
    assert Position() == Position(0, 0) and Position(2, 5) != Position(2, 6)


@pytest.mark.parametrize("vocab_size", [100, 1 << 17, None])
@pytest.mark.parametrize("lengths", [[], [0], [1], [3, 0, 2], [5] * 1000])
def test_a_token_file_is_read_by_safetensors(vocab_size: int | None, lengths: list[int], tmp_path: Path) -> None:
    """By somebody else's reader, whatever the number of bytes; and what is cut or is no such file is refused in a sentence."""
    draw = np.random.default_rng(len(lengths))
    sequences = [draw.integers(0, 100, n).tolist() for n in lengths]
    written = TokenFile.write(tmp_path / "x", sequences, vocab_size)
    found = load_file(tmp_path / "x.tokens")
    starts = found["offsets"]
    assert [found["tokens"][a:b].tolist() for a, b in itertools.pairwise(starts)] == sequences
    assert [written[i].tolist() for i in range(len(written))] == sequences and written.vocab_size == vocab_size
    assert found["tokens"].dtype == written.tokens.dtype and written.offsets.flags.aligned
    content = (tmp_path / "x.tokens").read_bytes()
    for spoiled in (content[:-1], content[:300], content + b"x", b"", bytes(len(content)), b"x" * len(content)):
        (tmp_path / "x.tokens").write_bytes(spoiled)
        with pytest.raises(UserError, match="not a complete token file"):
            TokenFile.open(tmp_path / "x")


def test_token_files_of_earlier_versions_are_read() -> None:
    """Format 1: numbers, offsets, then the header. The same sentences as in the examples beside them."""
    folder = Path(__file__).parents[1] / "fixtures" / "run-with-examples"
    run = RunFolder(folder)
    stored = list(run_examples(run.recipe.data, "val", folder / "data"))
    found = TokenFile.open(folder / "data" / "val.source")
    assert len(found) == len(stored) > 0
    for ids, (source, _) in zip((found[i] for i in range(len(found))), stored, strict=True):
        assert ids.tolist() == run.tokenizers.source.encode(source)
