"""`glassformer improve RUN --only backtranslate`: pairs of a text and what a run makes of it, tagged, in order, gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glassformer.api import load
from glassformer.cli import answer_file
from glassformer.cli.improve import improve
from glassformer.config import DataConfig
from glassformer.data.sources import open_split
from tests.commands import call
from tests.talking import SENTENCES, make_run

pytestmark = pytest.mark.slow

TEXTS = ["the cat", "", "a dog\tran", "Tom lives in Rome.", "   ", "the river"] * 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("reverse") / "run")


@pytest.fixture
def mono(tmp_path: Path) -> Path:
    path = tmp_path / "mono.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


def expected(run: Path, tag: str) -> list[tuple[str, str]]:
    """Each text that is no blank, behind what the run says to it."""
    real = [" ".join(text.split()) for text in TEXTS if text.strip()]
    said = [one.strip() for one in load(run, device="cpu").translate([t for t in TEXTS if t.strip()])]
    return [(f"{tag}{source}", target) for source, target in zip(said, real, strict=True) if source]


@pytest.mark.parametrize("tag", ["<bt>", ""])
def test_pairs_are_answer_tab_text_as_training_reads_them(run: Path, mono: Path, tmp_path: Path, tag: str) -> None:
    """Caught: sides exchanged, a pair for a blank line, a tab inside a side, a tag that is not put or not left out."""
    out = tmp_path / "synthetic.tsv"
    done = call(
        "improve", run, "--only", "backtranslate", "--text", mono, "--out", out, "--tag", tag, "--device", "cpu"
    )
    assert done.returncode == 0, done.stderr
    assert all(line.strip() for line in out.read_text(encoding="utf-8").splitlines())
    data = DataConfig(train=str(out), val_fraction=0.0)
    assert list(open_split(data, "train")) == expected(run, f"{tag} " if tag else "")


def test_what_was_broken_off_goes_on_to_the_same_file(
    run: Path, mono: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled, too. Caught: pairs lost or doubled because blank lines give none, another draw after the break."""
    whole, broken = tmp_path / "whole.tsv", tmp_path / "broken.tsv"
    settings = ["temperature=1", "batch_size=1", "seed=5"]
    options: dict[str, Any] = {"only": "backtranslate", "text": mono, "settings": settings, "device": "cpu"}
    improve(run, out=whole, **options)
    write, written = answer_file.AnswerFile.write, []

    def failing(self: answer_file.AnswerFile, text: str, lines: int) -> None:
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(lines)
        write(self, text, lines)

    monkeypatch.setattr(answer_file.AnswerFile, "write", failing)
    with pytest.raises(KeyboardInterrupt):
        improve(run, out=broken, **options)
    monkeypatch.undo()
    assert 0 < written[0] < len(TEXTS) and broken.read_bytes() != whole.read_bytes()
    improve(run, out=broken, **options)
    assert broken.read_bytes() == whole.read_bytes()


def test_sampled_sources_are_other_ones_and_several(run: Path, mono: Path, tmp_path: Path) -> None:
    words = ("improve", run, "--only", "backtranslate", "--text", mono, "--device", "cpu")
    assert call(*words, "--out", tmp_path / "best.tsv").returncode == 0
    assert (
        call(*words, "--out", tmp_path / "drawn.tsv", "--set", "temperature=1", "--set", "num_samples=2").returncode
        == 0
    )
    best, drawn = ((tmp_path / name).read_text().splitlines() for name in ("best.tsv", "drawn.tsv"))
    assert len(drawn) > len(best) and not set(drawn) <= set(best)


def test_a_draw_that_breaks_off_inside_a_character_leaves_no_mark(mono: Path, tmp_path: Path) -> None:
    """By a run that writes bytes at random. Broken variant: U+FFFD in what is learned from."""
    run, out = make_run(tmp_path / "bytes", tokenizer="bpe", vocab_size=300), tmp_path / "drawn.tsv"
    said = load(run, device="cpu").translate(TEXTS[0], temperature=1.0, num_samples=20)
    assert any("\ufffd" in one for one in said)
    improve(run, only="backtranslate", text=mono, out=out, settings=["temperature=1"], device="cpu")
    pairs = out.read_text(encoding="utf-8")
    assert len(pairs.splitlines()) > 8 and "\ufffd" not in pairs


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--tag", " <bt>"], "--tag must not begin, end or double its blanks"),
        (["--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    run: Path, mono: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    done = call("improve", run, "--only", "backtranslate", "--text", mono, "--out", tmp_path / "out.tsv", *options)
    assert done.returncode == 2 and sentence in done.stderr and not (tmp_path / "out.tsv").exists()


def test_a_file_that_is_there_is_left_alone(run: Path, mono: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text(SENTENCES[0])
    done = call("improve", run, "--only", "backtranslate", "--text", mono, "--out", tmp_path / "mine.tsv")
    assert done.returncode == 2 and (tmp_path / "mine.tsv").read_text() == SENTENCES[0]
