"""A decoder as a GGUF file: read back tensor by tensor, and, where llama.cpp is installed, run by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.gguf.spec import neighbouring_pairs
from glassformer.formats.gguf.writer import export_gguf
from glassformer.models import GPT, build_model
from glassformer.nn.positions import Rotary
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import Tokenizer

KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"positions": "learned", "activation": "gelu_tanh"},
    "gpt2, untied, unscaled": {
        "positions": "learned",
        "activation": "gelu_tanh",
        "tie_output": False,
        "scale_embeddings": False,
    },
    "llama": {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "n_kv_head": 2},
    "qwen3": {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "qk_norm": True},
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train("bpe", ["the cat sat on the mat", "a cat and a hat", "the end"] * 5, 290)


def made(kind: str, words: int) -> GPT:
    torch.manual_seed(0)
    config = ModelConfig(
        family="gpt", n_layer=2, n_head=4, n_embd=64, block_size=32, vocab_size=words, n_hidden=96, **KINDS[kind]
    )
    model = build_model(config).eval()
    assert isinstance(model, GPT)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_read_back(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Every parameter is in the file once, and every number of it is there."""
    model = made(kind, tokenizer.vocab_size)
    assert export_gguf(model, tokenizer, tmp_path / "m.gguf", name="tiny") == []
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    tensors = {t.name: np.asarray(t.data).reshape(tuple(reversed(t.shape.tolist()))) for t in reader.tensors}
    numbers = sum(t.size for t in tensors.values())
    scaled = model.config.scale_embeddings and model.config.tie_output
    extra = model.config.vocab_size * model.config.n_embd if scaled else 0
    assert numbers == model.num_params() + extra
    up = "blk.1.ffn_up.weight"
    assert np.array_equal(tensors[up], model.decoder.layers[1].mlp.up.weight.detach().numpy())
    assert reader.fields["general.architecture"].contents() == kind.split(",")[0]
    assert reader.fields["tokenizer.ggml.tokens"].contents()[:3] == ["<pad >", "<bos >", "<eos >"]


def test_pairs_beside_each_other_turn_as_ours_do() -> None:
    """Turning (2i, 2i+1) of the reordered query is turning (i, i + D/2) of ours. Broken variant: not reordered."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 8, 1, dtype=torch.float64)
    rotation = Rotary(16, 8).double().rotation(torch.tensor([[3, 11]]))
    turned = rotation.rotate(torch.stack([q[:, 0], k[:, 0]])[None, None])
    ours = turned[0, 0, 0] @ turned[0, 0, 1]

    def neighbours(x: torch.Tensor, position: int) -> torch.Tensor:
        pairs = neighbouring_pairs(x, 1).view(-1, 2)
        angle = position * 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        first, second = pairs[:, 0], pairs[:, 1]
        return torch.stack([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], 1)

    theirs = (neighbours(q, 3) * neighbours(k, 11)).sum()
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_runs_it(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The real llama.cpp: the same ids for a text, and logits as near as its float16 cache allows."""
    llama_cpp = pytest.importorskip("llama_cpp")
    model = made(kind, tokenizer.vocab_size)
    export_gguf(model, tokenizer, tmp_path / "m.gguf", name="tiny")
    runner = llama_cpp.Llama(str(tmp_path / "m.gguf"), n_ctx=32, logits_all=True, verbose=False, n_threads=1)
    text = "the cat and the hat"
    ids = runner.tokenize(text.encode(), add_bos=False, special=False)
    assert ids == tokenizer.encode(text)
    runner.eval(ids)
    theirs = np.array(runner.scores[: len(ids)])
    with torch.no_grad():
        ours = model(Rows.whole(torch.tensor([ids])))[0].numpy()
    assert np.abs(theirs - ours).max() < 2e-2 * max(1.0, float(np.abs(ours).max()))


def test_what_llama_cpp_lacks_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    small = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16, "vocab_size": tokenizer.vocab_size}
    relu = build_model(ModelConfig(family="gpt", positions="learned", activation="relu", **small))
    with pytest.raises(UserError, match="gelu_tanh alone"):
        export_gguf(relu, tokenizer, tmp_path / "m.gguf", name="x")
    pairs = build_model(ModelConfig(**small))
    with pytest.raises(UserError, match="decoder alone"):
        export_gguf(pairs, tokenizer, tmp_path / "m.gguf", name="x")
    assert not (tmp_path / "m.gguf").exists()
