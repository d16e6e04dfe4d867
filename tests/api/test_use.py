"""What is used is what was written, or is refused with a sentence that names the doctor. The broken variants: a final/ that is
read by pattern, checksums that only `doctor` looks at, damaged weights replaced by others without a word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from glassformer import runs
from glassformer.api import load
from glassformer.errors import UserError
from glassformer.files.durable import to_json
from glassformer.runs.doctor import examine
from glassformer.runs.facts import seal_of
from glassformer.runs.folder import RunFolder
from glassformer.text.tokenizer import Tokenizer
from tests.commands import call
from tests.fuzz.mutations import make_right, seal_checkpoint
from tests.small_runs import small_run
from tests.talking import make_run

TEXTS = ["the cat sat", "a dog ran"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def refused(run: Path, *words: str) -> None:
    with pytest.raises(UserError) as caught:
        load(run).translate(TEXTS)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def flip(path: Path, place: int = -9) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["final/model.safetensors", "final/state.json", "tokenizer.json"])
def test_a_flipped_bit_is_refused(name: str, run: Path) -> None:
    load(run).translate(TEXTS)
    flip(run / name)
    refused(run, name.split("/")[-1], "has changed since it was written", "glassformer doctor")


def test_a_run_json_that_was_edited_is_refused(run: Path) -> None:
    path = run / "run.json"
    path.write_text(path.read_text().replace('"n_head": 2', '"n_head": 4'))
    refused(run, "run.json has been changed", "glassformer doctor")


def test_what_the_manifest_does_not_list_is_not_read(run: Path) -> None:
    """A stray training.safetensors would replace the weights; what macOS leaves beside a file cannot even be read."""
    expected = load(run).translate(TEXTS)
    weights = load_file(run / "final" / "model.safetensors")
    save_file({f"ema/{n}": torch.zeros_like(t) for n, t in weights.items()}, run / "final" / "training.safetensors")
    (run / "final" / "._model.safetensors").write_bytes(b"\0\5\26\7 Mac OS X")
    (run / "tokenizer.source.json").write_text("{}")
    (run / "labels.json").write_text('["x"]')
    assert load(run).translate(TEXTS) == expected


def test_weights_that_are_no_numbers_are_refused(run: Path) -> None:
    path = run / "final" / "model.safetensors"
    weights = load_file(path)
    name = next(iter(weights))
    weights[name] = torch.full_like(weights[name], torch.nan)
    save_file(weights, path)
    seal_checkpoint(path.parent)
    refused(run, name, "not finite")


def test_final_weights_that_are_missing_are_told_and_damaged_ones_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = load(run).translate(TEXTS)
    saved = RunFolder(run).checkpoints.path(7)
    shutil.copytree(run / "final", saved)
    state = {"step": 7, "run": RunFolder(run).id}
    (saved / "state.json").write_bytes(to_json(state))
    seal_checkpoint(saved)
    (run / "final" / "SEAL").unlink()
    refused(run, "final cannot be used", "SEAL is missing", "glassformer doctor")
    shutil.rmtree(run / "final")
    assert load(run).translate(TEXTS) == expected
    assert "has no final weights" in (said := capsys.readouterr().err) and "step 7" in said
    model = load(run)
    assert model.origin is not None and model.origin.weights == "checkpoint of step 7, training has not ended"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}},
            "truncation",
        ),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}}, "normalizer"),
        (
            {
                "post_processor": {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": True,
                    "use_regex": True,
                }
            },
            "post",
        ),
        ({"model": {"dropout": 0.5}}, "dropout"),
        (
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(a+)+b"},  # takes for ever on "aaaa…"
                    "behavior": "Isolated",
                    "invert": False,
                }
            },
            "pre",
        ),
    ],
)
def test_a_tokenizer_with_a_will_of_its_own_is_refused(change: dict[str, Any], part: str, tmp_path: Path) -> None:
    """Sealed again, as if it had been made so: the tokenizer itself is what is refused."""
    run = make_run(tmp_path / "run", tokenizer="bpe")
    path = run / "tokenizer.json"
    facts = json.loads(path.read_text())
    for name, value in change.items():
        facts[name] = facts[name] | value if name == "model" else value
    path.write_text(json.dumps(facts))
    make_right(run, path)
    refused(run, "was not made by glassformer", part)


def test_a_tokenizer_of_another_size_is_refused(run: Path) -> None:
    Tokenizer.train("char", ["abc"], 100).save(run / "tokenizer.json")
    make_right(run, run / "tokenizer.json")
    refused(run, "target words and its model", "glassformer doctor")


def test_a_run_json_that_asks_for_a_giant_is_refused_before_it_is_built(run: Path) -> None:
    facts = json.loads((run / "run.json").read_text())
    facts["recipe"]["model"] |= {"n_layer": 9000, "n_embd": 4096}
    (run / "run.json").write_bytes(to_json(facts | {"seal": seal_of(facts)}))
    refused(run, "do not belong together")


@pytest.mark.slow
def test_examples_that_were_replaced_are_not_measured_on(tmp_path: Path) -> None:
    """Other data under the name of the test split, or one where there was none. Broken: scores of whatever lies there."""
    run = small_run(tmp_path, "pairs", steps=2, validate_every=2, save_every=2).path
    path = run / "data" / "test.examples.gz"
    commands: list[list[object]] = [
        ["evaluate", run, "--split"],
        ["compare", run, run, "--out", tmp_path / "compared", "--split"],
        ["heads", run, "--examples", 4, "--out", tmp_path / "heads", "--split"],
    ]
    whole = path.read_bytes()
    shutil.copyfile(run / "data" / "train.examples.gz", path)
    for command in (*([*c, "test"] for c in commands), ["export", run, "--to", "hf", "--out", tmp_path / "hf"]):
        done = call(*command)
        assert done.returncode == 2 and str(path) in done.stderr, (command, done.stderr)
        assert "bring it back from a copy" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "hf").exists()
    path.write_bytes(whole)
    assert call(*commands[0], "test").returncode == 0, "brought back, it is measured on again"
    shutil.copyfile(path, run / "data" / "test.text.tokens")
    done = call(*commands[0], "test")
    assert done.returncode == 2 and "is not of this run" in done.stderr, done.stderr


WRONG_KINDS: tuple[Any, ...] = ("x", None, ["x"], {"a": 1}, -1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "final/state.json", "checkpoints/step-00000002/state.json"])
def test_a_field_of_another_kind_is_a_sentence(name: str, resumable: Path, tmp_path: Path) -> None:
    """Every field, sealed again so that only its kind is wrong: whoever reads the run refuses it in a sentence that says where,
    or does not need it. Broken: an AttributeError of whoever came to it first."""
    run = tmp_path / "run"
    shutil.copytree(resumable, run)
    path = run / name
    before, sealed = json.loads(path.read_bytes()), {p: p.read_bytes() for p in path.parent.iterdir() if p.is_file()}
    if name.startswith("checkpoints/"):
        shutil.rmtree(run / "final")  # else a resume ends before it looks at a checkpoint
    more: dict[str, Any] = {"from": {"path": "x", "id": "y"}} if name == "run.json" else {}
    refusals: list[tuple[str, str]] = []
    for key, wrong in ((key, wrong) for key in before | more for wrong in WRONG_KINDS):
        path.write_bytes(to_json({**before, **more, key: wrong}))
        make_right(run, path)
        for use in (load, examine, lambda where: runs.resume(where, accept_changes=True)):
            try:
                use(run)
            except UserError as error:
                refusals.append((key, str(error)))
        for file, content in sealed.items():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        for left in (
            *run.glob("checkpoints/damaged-*"),
            *(run / "final" for _ in range(name.startswith("checkpoints/"))),
        ):
            shutil.rmtree(left, ignore_errors=True)
    assert {"step", "recipe"} & {key for key, _ in refusals}
    assert [(key, said) for key, said in refusals if str(run) not in said and key not in said] == []


@pytest.fixture(scope="module")
def resumable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, with a checkpoint and final weights."""
    folder = tmp_path_factory.mktemp("kinds")
    return small_run(folder, "pairs", steps=2, validate_every=2, save_every=2, validate_examples=1, history=False).path


@pytest.mark.parametrize("device", ["meta", "xpu", "cuda:99", "nonsense", ""])
def test_a_device_that_cannot_be_used_is_a_sentence(device: str, run: Path) -> None:
    """Torch knows names of devices that no machine has all of. Broken: what torch says about it, as a defect of ours."""
    with pytest.raises(UserError, match=r"there is no device|cannot be used here|torch sees no CUDA device"):
        load(run, device=device)


@pytest.mark.parametrize("letters", [2_000, 400_000])
def test_a_prefix_that_cannot_be_written_is_refused_before_anything_is_decoded(letters: int, run: Path) -> None:
    """Broken: every letter of it is decoded, a step each, for minutes. One that fits is written, whatever the source's length."""
    model = load(run)
    block = model.model.config.block_size
    for settings in ({"prefix": "a" * letters}, {"terms": ["a" * letters]}):
        with pytest.raises(
            UserError, match=r"at most 100,000 are taken|longer than the \d+ tokens this model can write"
        ):
            model.translate("the cat", **settings)
    assert model.translate("the cat", prefix="a" * (block // 2)).startswith("a")
