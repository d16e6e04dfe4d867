"""Laws of the tokenizers: exact round trips, control ids out of reach, one answer however often it is trained."""

from __future__ import annotations

import itertools
import json
import random
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import UserError
from glassformer.text.languages import is_han, lowercase
from glassformer.text.tokenizer import (
    BOS,
    CONTROL,
    CONTROL_NAMES,
    EOS,
    MASK,
    PAD,
    UNK,
    Tokenizer,
    byte_letters,
)
from tests.counts import count
from tests.programs import FOLDER, run_program

KINDS = ("char", "word", "bpe", "unigram")
BYTE_KINDS = ("bpe", "unigram")
# Names of control tokens, ours and other people's, so that a naive tokenizer would learn them or let them through.
NAMES = [
    *CONTROL_NAMES,
    "<pad>",
    "<bos>",
    "<eos>",
    "<unk>",
    "<mask>",
    "<s>",
    "</s>",
    "[MASK]",
    "[PAD]",
    "[UNK]",
    "<|endoftext|>",
]
TEXTS = [
    "The quick brown fox jumps over the lazy dog; it doesn't stop.",
    'He said: "twenty-one (21) of them, at 19:30!"',
    "Die Straße ist lang, und das Mädchen läuft zum Café.",
    "我喜欢你。今天天气真好，我们去公园吧！",
    "你喜欢我，我喜欢你。今天天气不好。",
    *NAMES,
    " ".join(NAMES),
] * 3


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: Tokenizer.train(kind, TEXTS, 400) for kind in KINDS}


@pytest.fixture(scope="module")
def reloaded(trained: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("tokenizers")
    out = {}
    for kind, tokenizer in trained.items():
        tokenizer.save(folder / f"{kind}.json")
        out[kind] = Tokenizer.load(folder / f"{kind}.json")
    return out


def random_text(generator: random.Random) -> str:
    """Control characters, Latin, combining marks, Han, emoji with joiners, private use, the astral planes; no surrogates."""
    ranges = [
        (0, 0x20),
        (0x20, 0x7F),
        (0x80, 0x250),
        (0x300, 0x370),
        (0x600, 0x700),
        (0x2000, 0x2070),
        (0x3000, 0x3100),
    ]
    ranges += [
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A4),
        (0xE000, 0xE100),
        (0xFDD0, 0x10000),
        (0x1F300, 0x1FAFF),
        (0x10000, 0x110000),
    ]
    length = generator.randrange(0, 24)
    return "".join(chr(generator.randrange(*generator.choice(ranges))) for _ in range(length))


def test_control_ids_are_fixed() -> None:
    assert (PAD, BOS, EOS, UNK, MASK, CONTROL) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_byte_level_round_trip_is_exact(reloaded: dict[str, Tokenizer], kind: str) -> None:
    """10,000 random strings. Breaks with a prefix space, a normaliser, a missing byte in the vocabulary, or byte fallback
    by name (`<0x41>` typed by a user)."""
    tokenizer = reloaded[kind]
    generator = random.Random(0)
    texts = [random_text(generator) for _ in range(10_000)] + ["<0x41>", "\ufeffa", "a\r\nb", " a ", "▁Ġ", "", *NAMES]
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert tokenizer.decode(ids) == text
        assert all(i >= CONTROL for i in ids)


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.sampled_from(NAMES)).map("".join))
@settings(deadline=None, max_examples=count(fast=100, soak=2000))
def test_no_text_becomes_a_control_id(
    trained: dict[str, Tokenizer], reloaded: dict[str, Tokenizer], kind: str, text: str
) -> None:
    """For ids, the file as the bare library reads it, and spans. Breaks when controls are registered as special tokens, or
    have names that training text can spell (all such names are in the training text here)."""
    ids = reloaded[kind].encode(text)
    allowed = {UNK} if kind in ("char", "word") else set()
    assert not (set(ids) & set(range(CONTROL))) - allowed
    assert ids == trained[kind].encode(text)
    bare = reloaded[kind].library.encode(text).ids
    assert not (set(bare) & set(range(CONTROL))) - allowed
    assert len(reloaded[kind].spans(text)) == len(ids)


def test_the_library_default_would_let_text_through() -> None:
    """The danger is real: the same vocabulary with `</s>` as a special token turns typed text into a control id."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.train_from_iterator(TEXTS, tokenizers.trainers.BpeTrainer(special_tokens=["</s>"], show_progress=False))
    assert 0 in library.encode("I typed </s> myself").ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lowercase", [False, True])
def test_save_and_load_keep_everything(tmp_path: Path, kind: str, lowercase: bool) -> None:
    tokenizer = Tokenizer.train(kind, TEXTS, 400, lowercase)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.kind, again.lowercase, again.vocab_size) == (kind, lowercase, tokenizer.vocab_size)
    text = "THE Quick fox, Straße 我喜欢你!"
    assert again.encode(text) == tokenizer.encode(text)
    if lowercase:
        assert again.encode(text) == again.encode(text.lower())
    assert list(tmp_path.iterdir()) == [tmp_path / "tokenizer.json"]  # no temporary file is left


@pytest.mark.parametrize("kind", KINDS)
def test_the_bare_library_reads_the_file_and_agrees(reloaded: dict[str, Tokenizer], tmp_path: Path, kind: str) -> None:
    reloaded[kind].save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    line_ends = [] if kind == "word" else ["a\nb\tc"]  # which no text has: a vocabulary of words passes over them
    for text in ("The lazy dog isn't quick; über Straße!", *line_ends, *NAMES):
        assert library.encode(text).ids == reloaded[kind].encode(text)


def test_char_takes_every_character(reloaded: dict[str, Tokenizer]) -> None:
    text = "The fox 喜欢 Straße"
    tokenizer = reloaded["char"]
    ids = tokenizer.encode(text)
    assert len(ids) == len(text) and tokenizer.pieces(ids) == list(text) and tokenizer.decode(ids) == text
    assert tokenizer.encode("☃") == [UNK]


@pytest.mark.parametrize("lower", [False, True])
def test_words_are_looked_up_as_they_are_cut(lower: bool) -> None:
    """The library's own way, of whole texts, against each span looked up by itself. Caught: letters that change in number or by
    their place when they are made small, Chinese that is left uncut, ids in another text's place."""
    draw = random.Random(5)
    tokenizer = Tokenizer.train("word", TEXTS, 400, lowercase=lower)
    letters = "ab Z'-9.:,ß\u0130ΣσÉé\n\t我喜欢😀\u2e7f\u2e80\x7f\x80\0_"
    texts = ["", *TEXTS, *("".join(draw.choices(letters, k=draw.randrange(12))) for _ in range(300))]
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        words, known = [text[start:end] for start, end in tokenizer.spans(text)], tokenizer.library.get_vocab()
        assert [*"".join(words).replace(" ", "")] == [c for c in text if not c.isspace()]  # no text has blanks alone
        cut = [lowercase(word) if lower else word for word in words]
        if (
            tokenizer.spans(text)[:1]
            and tokenizer.spans(text)[0][0] == 0
            and not (text[0].isspace() or is_han(text[0]))
        ):
            cut[0] = f" {cut[0]}"
        assert ids == [known.get(word, UNK) for word in cut]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_spans_name_the_text(reloaded: dict[str, Tokenizer], kind: str) -> None:
    """Right for Chinese and for bytes of a cut character: a span covers the characters its id helps to write."""
    tokenizer = reloaded[kind]
    text = "The fox, 我喜欢你 and ☃😀 é"
    ids = tokenizer.encode(text)
    pieces, spans = tokenizer.pieces(ids), tokenizer.spans(text)
    assert len(pieces) == len(spans) == len(ids)
    covered = {i for start, end in spans for i in range(start, end)}
    assert covered == set(range(len(text))) - ({8} if kind == "word" else set()), "no text has a blank before Chinese"
    for piece, (start, end), index in zip(pieces, spans, ids, strict=True):
        if index != UNK and "\\x" not in piece:
            assert text[start:end] == (piece.removeprefix(" ") if kind == "word" and start == 0 else piece)
    assert all(start <= later for (start, _), (later, _) in itertools.pairwise(spans))
    snowman = [p for p, (start, end) in zip(pieces, spans, strict=True) if text[start:end].strip() == "☃"]
    assert snowman == (["\\xe2", "\\x98", "\\x83"] if kind in BYTE_KINDS else ["<unk>"])


@pytest.mark.parametrize("kind", KINDS)
def test_control_ids_are_shown_but_not_decoded(reloaded: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = reloaded[kind]
    ids = tokenizer.encode("fox")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, MASK, UNK]) == tokenizer.decode(ids)
    assert tokenizer.pieces([PAD, BOS, EOS, UNK, MASK]) == ["<pad>", "<bos>", "<eos>", "<unk>", "<mask>"]


def test_cut_characters_decode_to_the_replacement_mark(reloaded: dict[str, Tokenizer]) -> None:
    ids = reloaded["bpe"].encode("☃")
    assert reloaded["bpe"].decode(ids[:-1]) == "\ufffd"


def test_lowercase_keeps_the_offsets_of_the_original() -> None:
    """İ becomes two characters when lowered; spans still count the characters the user wrote."""
    for kind in KINDS:
        tokenizer = Tokenizer.train(kind, ["i̇stanbul οδοσ"], 300, lowercase=True)
        spans = tokenizer.spans("İstanbul ΟΔΟΣ")
        assert spans[-1][1] == len("İstanbul ΟΔΟΣ") and len(spans) == len(tokenizer.encode("İstanbul ΟΔΟΣ"))
        assert UNK not in tokenizer.encode("İstanbul ΟΔΟΣ")


@pytest.mark.slow
def test_training_is_deterministic(capsys: pytest.CaptureFixture[str]) -> None:
    """Here and in a fresh process, where hash seeds and thread timing differ. The library alone gives another unigram
    each time."""
    for _ in range(2):
        runpy.run_path(str(FOLDER / "trained_tokenizers.py"))
    first = capsys.readouterr().out
    runs = [first[: len(first) // 2], first[len(first) // 2 :]]
    for _ in range(count(fast=1, soak=20)):
        runs.append(run_program("trained_tokenizers"))
    assert len(set(runs)) == 1 and len(first.split()) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        *((kind, unit) for kind in BYTE_KINDS for unit in ("a", " ", "喜", "word ", " \n", "ab😀 12")),
        ("word", "喜"),  # jieba alone is quadratic here: the first version was stopped after ten minutes
        ("word", "a"),
        ("char", "a"),
    ],
)
def test_a_megabyte_takes_linear_time(reloaded: dict[str, Tokenizer], kind: str, unit: str) -> None:
    """A quadratic encoder needs hours here (10^12 steps): it does not come back. One that gives up loses text."""
    text = unit * (1_000_000 // len(unit.encode()))
    ids = reloaded[kind].encode(text)
    if kind in BYTE_KINDS:
        assert reloaded[kind].decode(ids) == text
    else:
        assert ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_surrogate_is_refused_in_a_sentence(reloaded: dict[str, Tokenizer], kind: str) -> None:
    for use in (reloaded[kind].encode, reloaded[kind].spans):
        with pytest.raises(UserError, match=r"lone surrogate \(U\+D83D\) at character 3"):
            use("ab\ud83d")


@pytest.mark.parametrize("kind", KINDS)
def test_training_errors_are_sentences(kind: str) -> None:
    with pytest.raises(UserError, match="no text"):
        Tokenizer.train(kind, [" ", "\n"], 300)
    with pytest.raises(UserError, match="vocab_size"):
        Tokenizer.train(kind, ["text"], 5)

    def broken() -> Iterator[str]:
        yield "fine"
        raise UserError("line 7 is not UTF-8")

    with pytest.raises(UserError, match="line 7"):  # an error of the source comes out as it was raised
        Tokenizer.train(kind, broken(), 300)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError, match="char, word, bpe, unigram"):
        Tokenizer.train("sentence", ["text"], 300)


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_is_bounded_and_frequent_first(kind: str) -> None:
    size = 300
    tokenizer = Tokenizer.train(kind, TEXTS, size)
    assert CONTROL < tokenizer.vocab_size <= size
    small = Tokenizer.train("word", ["a a a b b c"], CONTROL + 2)
    assert small.encode("a b c") == [CONTROL, CONTROL + 1, UNK]


def test_byte_letters_are_the_alphabet_of_the_library() -> None:
    assert set(byte_letters().values()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert (
        tokenizers.decoders.ByteLevel().decode(list(byte_letters().values())[:94]) == bytes(range(0x21, 0x7F)).decode()
    )


def test_foreign_files_are_refused(tmp_path: Path, trained: dict[str, Tokenizer]) -> None:
    """A tokenizer with special tokens would let a user spell them."""
    with pytest.raises(UserError, match="cannot be read"):
        Tokenizer.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"model": 3}')
    with pytest.raises(UserError, match="not a tokenizer"):
        Tokenizer.load(tmp_path / "bad.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        Tokenizer.load(tmp_path / "bytes.json")
    special = tokenizers.Tokenizer.from_str(trained["bpe"].library.to_str())
    special.add_special_tokens([CONTROL_NAMES[EOS]])
    special.save(str(tmp_path / "special.json"))
    with pytest.raises(UserError, match="not made by glassformer"):
        Tokenizer.load(tmp_path / "special.json")
    facts = json.loads(trained["word"].library.to_str())
    facts["model"]["vocab"] = {name: i for i, name in enumerate(["the", *CONTROL_NAMES])}
    (tmp_path / "shifted.json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match="not made by glassformer"):
        Tokenizer.load(tmp_path / "shifted.json")
