"""`glassformer import` from the command line: a run that every verb accepts; what cannot be imported is one sentence.

Hostile tokenizers and configs, too: each is refused in a sentence, at once, and nothing is left behind.
"""

from __future__ import annotations

import json
import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import glassformer
from glassformer.errors import UserError
from glassformer.formats.huggingface.importing import read_folder
from glassformer.formats.huggingface.pipelines import read_sentencepiece
from glassformer.formats.import_run import read_source, write_run
from tests.commands import call, call_program
from tests.external_models import gpt2, marian, spm_bytes

pytestmark = pytest.mark.slow

PAIRS = "".join(f"{n} cats sat on the mat\ta hat and {n} mice\n" for n in range(40))


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("import")
    marian(folder / "theirs")
    (folder / "pairs.tsv").write_text(PAIRS)
    done = call("import", folder / "theirs", "--out", folder / "run", "--file", folder / "pairs.tsv")
    assert done.returncode == 0, done.stderr
    assert "marian" in done.stdout and "translate" in done.stdout
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "translate RUN 'the cat sat'",
        "look RUN 'the cat sat' --out page.html",
        "evaluate RUN --file pairs.tsv",
        "info RUN",
        "doctor RUN",
        "score RUN --file pairs.tsv",
        "evaluate RUN",
        "compare RUN RUN --examples 4",
        "heads RUN --examples 4 --loss-only",
    ],
)
def test_every_verb_accepts_it(command: str, translator: Path) -> None:
    words = [w.strip("'") for w in command.replace("'the cat sat'", "'the_cat_sat'").split()]
    done = call(*(w.replace("RUN", "run").replace("_", " ") for w in words), cwd=translator)
    assert done.returncode == 0, done.stderr


def test_a_run_is_moved_and_still_answers(translator: Path, tmp_path: Path) -> None:
    before = glassformer.load(translator / "run").translate("the cat sat", beam=3, n_best=3).texts
    write_run(read_source(str(translator / "theirs")), tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert glassformer.load(tmp_path / "b").translate("the cat sat", beam=3, n_best=3).texts == before


@pytest.mark.parametrize(("how", "there"), [("kill", False), ("kill", True), ("interrupt", True)])
def test_an_import_that_breaks_off_in_its_comparison_leaves_no_run(
    how: str, there: bool, good: Path, tmp_path: Path
) -> None:
    """Whatever is left is called unfinished by doctor and is not loaded; and the import can be made again."""
    run = tmp_path / "run"
    if there:
        run.mkdir()
    ended = call_program("broken_import", how, "import", good, "--out", run)
    assert ended.returncode == {"kill": -9, "interrupt": 130}[how], ended.stderr
    if how != "kill":
        assert (os.listdir(run) == [] if there else not run.exists()) and len(os.listdir(tmp_path)) == there
    elif there:
        with pytest.raises(UserError, match="broken off before the run was compared"):
            glassformer.load(run)
        done = call("doctor", run)
        assert done.returncode == 1 and "broken off" in done.stdout
        return
    else:
        with pytest.raises(UserError, match="no run"):
            glassformer.load(run)
        assert "has not been finished" in call("doctor", run).stdout
    assert call("import", good, "--out", run).returncode == 0
    assert (run / "parity.json").exists() and call("doctor", run).returncode == 0
    assert os.listdir(tmp_path) == ["run"]


# ----------------------------------------------------------------------------------------------------- made to do harm


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "gpt2"
    gpt2(folder)
    return folder


Facts = dict[str, Any]


def piece(number: int, name: str) -> bytes:
    own = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x15" + struct.pack("<f", -1.0)
    return b"\x0a" + bytes([len(own)]) + own


TOKENIZERS: dict[str, Callable[[Facts], Any]] = {
    "no object": lambda f: [f],
    "no model": lambda f: f | {"model": None},
    "an unknown model": lambda f: f | {"model": {"type": "Exec", "vocab": {}}},
    "an empty vocabulary": lambda f: f | {"model": f["model"] | {"vocab": {}}},
    "a vocabulary of texts": lambda f: f | {"model": f["model"] | {"vocab": {"a": "b"}}},
    "a number of 10^12": lambda f: f | {"model": f["model"] | {"vocab": {"a": 10**12}}},
    "a negative number": lambda f: f | {"model": f["model"] | {"vocab": {"a": -1}}},
    "a number twice": lambda f: f | {"model": f["model"] | {"vocab": {"a": 1, "b": 1}}},
    "a truth for a number": lambda f: f | {"model": f["model"] | {"vocab": {"a": True}}},
    "a piece of a million letters": lambda f: f | {"model": f["model"] | {"vocab": {"a" * 1_000_000: 0}}},
    "a million words": lambda f: f | {"model": f["model"] | {"vocab": {f"w{i}": i for i in range(1_000_000)}}},
    "merges that are a number": lambda f: f | {"model": f["model"] | {"merges": 7}},
    "dropout": lambda f: f | {"model": f["model"] | {"dropout": 0.5}},
    "added tokens that are a text": lambda f: f | {"added_tokens": "x"},
    "an added token of 10^12": lambda f: f | {"added_tokens": [{"id": 10**12, "content": "x"}]},
    "an added token without a text": lambda f: f | {"added_tokens": [{"id": 1, "content": ""}]},
    "a score that is no number": lambda f: f | {"model": {"type": "Unigram", "vocab": [["a", "b"]], "unk_id": 0}},
    "a score without end": lambda f: f | {"model": {"type": "Unigram", "vocab": [["a", 1e300]], "unk_id": 0}},
    "an unknown normalizer": lambda f: f | {"normalizer": {"type": "Exec", "code": "1"}},
    "replaces nothing": lambda f: f | {"normalizer": replaces({"String": ""}, "x")},
    "grows without end": lambda f: f | {"normalizer": sequence([replaces({"String": "a"}, "a" * 60)] * 5)},
    "a thousand steps": lambda f: f | {"normalizer": sequence([{"type": "NFC"}] * 1000)},
    "a damaged table of characters": lambda f: (
        f | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}}
    ),
    **{
        f"the pattern {pattern}": lambda f, p=pattern: f | {"pre_tokenizer": split(p)}
        for pattern in ("(a+)+$", "(a|a)*b", "(.*)*x", "([a-z]+)*1", "(?:a?){50}", "(a)\\1+b", "a*a*a*a*b", "(((", "[a")
    },
}


def replaces(pattern: Facts, content: str) -> Facts:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(steps: list[Facts]) -> Facts:
    return {"type": "Sequence", "normalizers": steps}


def split(pattern: str) -> Facts:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A good folder, to be spoiled."""
    (tmp_path / "bad").mkdir()
    for path in good.iterdir():
        (tmp_path / "bad" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "bad"


def refused(folder: Path, match: str | None = None) -> None:
    """One sentence, within 5 seconds and 200 MB."""
    began = time.process_time()  # its own seconds, however busy the machine is
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=match):
            read_folder(folder)
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_hostile_tokenizer_is_one_sentence(name: str, folder: Path) -> None:
    facts = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZERS[name](facts)), encoding="utf-8")
    refused(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{not json",
        b"[" * 100_000,
        b'{"model": {"type": "BPE", "vocab": {' + b"[]," * 2_000_000,
        b"[" + b"1," * 4_000_000 + b"1]",
        b'{"a": "' + b"x" * (50 << 20) + b'"}',
        b"\xff\xfe\x00",
    ],
    ids=["empty", "no JSON", "nested", "lists", "numbers", "50 MB", "no text"],
)
def test_a_tokenizer_file_that_is_none(content: bytes, folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    refused(folder)


CONFIGS: dict[str, Facts] = {
    "no type": {"model_type": None},
    "an unknown type": {"model_type": "mamba"},
    "a type that is a list": {"model_type": ["gpt2"]},
    "10^9 layers": {"n_layer": 10**9},
    "a width of 10^9": {"n_embd": 10**9},
    "a vocabulary of 10^9": {"vocab_size": 10**9},
    "a vocabulary of another size": {"vocab_size": 299},
    "no heads": {"n_head": 0},
    "heads that do not divide": {"n_head": 3},
    "a negative width": {"n_embd": -16},
    "a width that is a text": {"n_embd": "16"},
    "an unknown activation": {"activation_function": "__import__('os')"},
    "a number of a thousand digits": {"n_positions": 10**400},
    "dropout that is a text": {"resid_pdrop": "much"},
    "other layers than the file": {"n_layer": 3},
    "fewer layers than the file": {"n_layer": 1},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hostile_config_is_one_sentence(name: str, folder: Path) -> None:
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(facts | CONFIGS[name]))
    refused(folder)


def test_tensors_missing_extra_misshapen_or_not_numbers(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "transformer.h.1.mlp.c_fc.weight"
    cases = {
        "missing": {n: t for n, t in tensors.items() if n != name},
        "does not know": tensors | {"transformer.h.7.x": torch.zeros(2)},
        "shape": tensors | {name: tensors[name].T.contiguous()},
    }
    for match, changed in cases.items():
        save_file(changed, folder / "model.safetensors")
        refused(folder, match)
    save_file(tensors | {name: tensors[name] / 0}, folder / "model.safetensors")
    with pytest.raises(UserError, match="not finite"):
        write_run(read_folder(folder), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json"])
def test_a_link_is_not_followed(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    refused(folder, "plain file")


SPM: dict[str, bytes] = {
    "empty": b"",
    "noise": b"\xff" * 100,
    "a field longer than the file": b"\x0a\xff\xff\xff\xff\x0f",
    "a number without end": b"\x08" + b"\xff" * 50,
    "a piece twice": piece(0, "a") + piece(1, "a"),
    "a piece that is no text": b"\x0a\x03\x0a\x01\xff",
    "a score without end": b"\x0a\x08\x0a\x01a\x15" + struct.pack("<f", float("inf")),
    "a score of two bytes": b"\x0a\x05\x12\x01a\x0a\x00",
    "an unknown kind": piece(0, "a") + b"\x12\x02\x18\x04",
}


@pytest.mark.parametrize("name", SPM)
def test_a_hostile_sentencepiece_model_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(SPM[name])
    with pytest.raises(UserError, match=r"source\.spm"):
        read_sentencepiece(tmp_path / "source.spm")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sentencepiece_is_cut_as_by_its_own_library(kind: str, tmp_path: Path) -> None:
    import sentencepiece

    from glassformer.formats.huggingface.pipelines import pipeline
    from glassformer.text.imported import from_facts

    (tmp_path / "m.model").write_bytes(spm_bytes(kind))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=spm_bytes(kind))
    found = read_sentencepiece(tmp_path / "m.model")
    library = from_facts(pipeline(found, [name for name, _, _ in found.pieces], 0), "here")
    for text in ["the cat sat", " two  spaces ", "naïve café, ½ ﬁne", "xyz unknown 你好", ""]:
        ids = [i if i >= 0 else 0 for i in library.encode(text, add_special_tokens=False).ids]
        assert ids == theirs.encode(text)


def test_a_run_is_not_written_over_and_a_run_is_not_imported(translator: Path) -> None:
    done = call("import", translator / "theirs", "--out", translator / "run")
    assert done.returncode == 2 and "holds a run already" in done.stderr
    done = call("import", translator / "run")
    assert done.returncode == 2 and "is a run already" in done.stderr
    done = call("import", translator / "nowhere" / "at" / "all")
    assert done.returncode == 2 and "there is no folder" in done.stderr
