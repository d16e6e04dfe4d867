"""A run becomes a folder, the real runtime loads it, and the two say the same. Where they do not, the export fails and
leaves nothing.

Broken variants these catch: a layer with another weight, a start token or length rule that is not the runtime's, padding on
the left that counts as text, an output folder that is left behind half done.
"""

from __future__ import annotations

import json
import os
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.cli.verbs import run_command
from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.ctranslate2 import spec as ct2
from glassformer.formats.export import write
from glassformer.formats.huggingface import writer as huggingface
from glassformer.formats.huggingface.dialects import dialect_for
from glassformer.formats.onnx import spec as conversion
from glassformer.formats.parity import ParityFailed
from glassformer.formats.runtime import own_sample
from tests.small_runs import small_run

LLAMA = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
ENCODER = {
    "pre_norm": False,
    "final_norm": False,
    "positions": "learned",
    "embedding_norm": True,
    "activation": "gelu",
    "scale_embeddings": False,
}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "post-norm": ("pairs", {"pre_norm": False, "final_norm": False, "tie_output": False}),
    "pre-norm": ("pairs", {}),
    "lively": ("pairs", {"init": "xavier"}),
    "gpt2": ("text", {"positions": "learned", "activation": "gelu_tanh"}),
    "llama": ("text", {**LLAMA, "n_kv_head": 1}),
    "qwen3": ("prompts", {**LLAMA, "qk_norm": True, "tie_output": False}),
    "bert": ("masked", ENCODER),
    "bert, scaled": ("masked", ENCODER | {"scale_embeddings": True, "tie_output": False}),
    "bert classify, scaled": ("classify", ENCODER | {"scale_embeddings": True, "share_layers": True}),
    "other wavelengths": ("pairs", {"sinusoid_base": 50.0, "share_layers": True}),
    "gpt2, shared layers": ("text", {"positions": "learned", "activation": "gelu_tanh", "share_layers": True}),
    "bert classify": ("classify", ENCODER),
    "bert tag": ("tag", ENCODER | {"n_token_type": 2}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each run is trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("runs")

    def made(name: str) -> Path:
        kind, model = RUNS[name]
        place = folder / name.replace(" ", "-")
        if not (place / "run").exists():
            small_run(place, kind, model=model)
        return place / "run"

    return made


WRITING = ["post-norm", "pre-norm", "gpt2", "llama", "qwen3"]
CASES = [(name, to) for to in ("hf", "ct2", "onnx") for name in WRITING]
CASES += [(name, "gguf") for name in ("gpt2", "llama", "qwen3", "gpt2, shared layers")]
CASES += [
    (name, "hf") for name in ("bert, scaled", "bert classify, scaled", "other wavelengths", "gpt2, shared layers")
]
CASES += [(name, to) for to in ("hf", "onnx") for name in ("bert", "bert classify", "bert tag")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "to"), CASES)
def test_the_runtime_says_what_the_run_says(name: str, to: str, runs: Any, tmp_path: Path) -> None:
    """Every score, every greedy answer and every answer of a beam of four, in the program that the folder is for."""
    model = glassformer.load(runs(name), device="cpu")
    sample = list(islice(own_sample(model.recipe.data, runs(name))[1], 6))
    report = model.export(to, tmp_path / "out", sample=sample)
    assert report.passed and report.largest_logit_difference < 2e-5 and report.same_greedy == 1
    if name in WRITING:
        assert report.same_beam in (1, None)
        here, there = report.perplexity
        assert there == pytest.approx(here, rel=1e-4)
    saved = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert saved["largest_logit_difference"] == report.largest_logit_difference
    card = (tmp_path / "out" / "README.md").read_text()
    assert "## Parity" in card and "## Data" in card and "## Metrics" in card and "n_embd: 16" in card
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_transformers_loads_it_without_a_word(
    name: str, runs: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is missing, unexpected, newly initialized or ignored in the folder, nor where its model writes."""
    import transformers

    model = glassformer.load(runs(name), device="cpu")
    write(model, "hf", tmp_path, "fp32", "x")
    kind = getattr(transformers, json.loads((tmp_path / "config.json").read_text())["architectures"][0])
    transformers.logging.set_verbosity_warning()
    logger = transformers.logging.get_logger("transformers")
    logger.addHandler(caplog.handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loaded = kind.from_pretrained(tmp_path)
            given = transformers.AutoTokenizer.from_pretrained(tmp_path)(["eins zwei"], return_tensors="pt")
            if loaded.can_generate():
                loaded.generate(**given, max_new_tokens=4)
            if model.kind == "transformer":
                loaded.generate(**given)
    finally:
        logger.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.slow
@pytest.mark.parametrize("to", ["ct2", "onnx", "gguf", "hf"])
@pytest.mark.parametrize("quantize", ["fp16", "int8"])
def test_fewer_bits(to: str, quantize: str, tmp_path: Path) -> None:
    """Smaller on disk, and the report says what it cost."""
    sample = [("eins zwei drei", "one two three"), ("vier fünf", "four five")]
    wide = {**(LLAMA if to == "gguf" else {}), "n_embd": 64, "n_hidden": 128}
    run = small_run(tmp_path / "data", "prompts" if to == "gguf" else "pairs", model=wide, learning_rate=1e-3)
    model = glassformer.load(run.path, device="cpu")
    if (to, quantize) == ("hf", "int8"):
        with pytest.raises(UserError, match="int8 can be had with ct2, onnx or gguf"):
            model.export(to, tmp_path / "small", quantize=quantize)
        return
    whole = model.export(to, tmp_path / "whole", sample=sample)
    small = model.export(to, tmp_path / "small", quantize=quantize, sample=sample)
    files = {"ct2": "model.bin", "onnx": "decoder.onnx", "gguf": "model.gguf", "hf": "model.safetensors"}
    sizes = [(tmp_path / place / files[to]).stat().st_size for place in ("whole", "small")]
    assert sizes[1] < (0.7 if quantize == "fp16" else 0.6) * sizes[0]
    assert whole.largest_logit_difference < small.largest_logit_difference < 0.5 * small.largest_logit
    assert small.weights == quantize and small.passed
    again = model.export(to, tmp_path / "again", sample=sample)
    assert again.largest_logit_difference == whole.largest_logit_difference  # our own weights are as they were


@pytest.mark.slow
def test_a_layer_that_differs_is_found_out_and_nothing_is_left(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second encoder layer's feed-forward weights are another's in the folder."""
    whole = huggingface.tensors_to

    def broken(*given: Any) -> Any:
        tensors, extra = whole(*given)
        tensors["model.encoder.layers.1.fc1.weight"] = 40 * tensors["model.encoder.layers.1.fc1.weight"]
        return tensors, extra

    monkeypatch.setattr(huggingface, "tensors_to", broken)
    with pytest.raises(SystemExit) as ended:
        run_command(["export", str(runs("pre-norm")), "--to", "hf", "--out", str(tmp_path / "out")])
    said = capsys.readouterr()
    assert ended.value.code == 1 and "scores differ by" in said.err
    assert "parity on" in said.out
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("to", "module", "function"), [("ct2", ct2, "fill_linear"), ("onnx", conversion, "mlp")])
def test_a_program_that_shows_no_layers_is_found_out_by_its_scores(
    to: str, module: Any, function: str, runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(module, function)

    def broken(*given: Any) -> Any:
        if to == "onnx":
            graph, name, layer, activation, x = given
            return whole(graph, name, layer, "gelu" if name == "decoder.1.mlp" else activation, x)
        whole(*given)
        given[0].weight = 1.5 * given[0].weight

    monkeypatch.setattr(module, function, broken)
    with pytest.raises(ParityFailed, match=r"does not say what the run says: scores differ by"):
        glassformer.load(runs("lively"), device="cpu").export(to, tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_exported_is_said_with_the_nearest(tmp_path: Path) -> None:
    run = small_run(tmp_path / "data", "pairs", model={"activation": "relu2", "window": 3, "norm": "rms"}, steps=2)
    model = glassformer.load(run.path, device="cpu")
    with pytest.raises(UserError, match=r"nearest is pegasus, but model.window is 3, and pegasus has None.*model.norm"):
        model.export("hf", tmp_path / "out")
    with pytest.raises(UserError, match=r"nothing for model.activation=relu2; the nearest it has is model.activation"):
        model.export("ct2", tmp_path / "out")
    with pytest.raises(UserError, match="decoder alone"):
        model.export("gguf", tmp_path / "out")
    with pytest.raises(UserError, match=r"--to is hf, ct2, onnx, .*, not 'tflite'"):
        model.export("tflite", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_learned_bias_of_distances_is_refused_by_every_target() -> None:
    """Broken variant: graphs without the bias, which answer otherwise."""
    for family in ("transformer", "gpt"):
        config = ModelConfig(family=family, vocab_size=9, n_layer=1, n_head=2, n_embd=8, positions="relative")
        for unsupported in (ct2.unsupported, conversion.unsupported):
            assert "model.positions=relative" in str(unsupported(config))
        with pytest.raises(UserError, match=r"model\.positions is relative"):
            dialect_for(config)


@pytest.mark.slow
def test_the_command(runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its report on stdout; a sample of one's own; and only a new or empty folder is taken."""
    texts = tmp_path / "sample.tsv"
    texts.write_text("eins zwei\tone two\ndrei vier fünf\tthree four five\n", encoding="utf-8")
    out = tmp_path / "out"
    given = ["export", str(runs("pre-norm")), "--to", "ct2", "--out", str(out), "--sample", str(texts), "--json"]
    assert run_command(given) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] and report["texts"] == 2 and report["sample"] == str(texts)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    with pytest.raises(UserError, match="not empty"):
        run_command(given)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    changed = [*given[:4], "--overwrite", "--quantize", "int8", *given[4:]]
    (out / "notes.txt").write_text("somebody's")
    with pytest.raises(UserError, match=r"holds notes\.txt, which is no file of the export"):
        run_command(changed)
    (out / "notes.txt").unlink()
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    assert run_command(changed) == 0
    assert (out / "model.bin").stat().st_size < len(before["model.bin"]) and {p.name for p in out.iterdir()} == {
        *before
    }
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.bin").write_text("somebody's")
    with pytest.raises(UserError, match="was not exported by this command"):
        run_command([*given[:4], "--overwrite", "--out", str(tmp_path / "other")])
    assert sorted(os.listdir(tmp_path)) == ["other", "out", "sample.tsv"]


@pytest.mark.slow
@pytest.mark.parametrize("to", ["hf", "ct2", "onnx", "gguf"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(to: str, runs: Any, tmp_path: Path) -> None:
    """A file may not grow beyond 8 kB here."""
    import resource

    given = ["export", str(runs("gpt2")), "--to", to, "--out", str(tmp_path / "out")]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(UserError, match=r"out could not be written: .*; nothing was left there"):
            run_command(given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []
