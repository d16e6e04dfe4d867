"""The files themselves: what they import, that they run and learn, and the package's own models beside them."""

from __future__ import annotations

import ast
import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from glassformer.classic import gpt as gpt_file
from glassformer.classic import transformer as classic
from tests.classic.models import FILES, IGNORE, gpt, ids, transformer

# The file ------------------------------------------------------------------------------------------------------------


def test_it_imports_torch_and_the_standard_library_alone() -> None:
    """Broken: an import of another room, after which the file no longer runs by itself."""
    for file in FILES:
        imported = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert imported - set(sys.stdlib_module_names) == {"torch"}
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 390


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_runs_by_itself_and_learns(file: Path, tmp_path: Path) -> None:
    """Broken: a toy that does not learn, or takes minutes. The file is copied away, so that it has no neighbours."""
    alone = tmp_path / "alone.py"
    alone.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    before = os.times()
    done = subprocess.run(
        [sys.executable, str(alone)], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if file.stem == "transformer":
        right = next(line for line in done.stdout.splitlines() if "unseen numbers" in line)
        assert float(right.split("%")[0]) > 95, done.stdout
    else:
        poem = [line.removeprefix("  | ") for line in done.stdout.splitlines() if line.startswith("  | ")]
        assert difflib.SequenceMatcher(None, "\n".join(poem), gpt_file.POEM.strip()).ratio() > 0.95, done.stdout
    assert "(1, 4, 16, 16)" in done.stdout or "(265, 7, 64)" in done.stdout  # shapes on the way
    assert done.stdout.splitlines()[-1].startswith("try next")
    # Processor time, not the clock: the machine that runs the tests may be busy with others.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 40


# The package's own models --------------------------------------------------------------------------------------------

ATTENTION = {"c_attns.0": "query", "c_attns.1": "key", "c_attns.2": "value", "c_proj": "out"}
ENCODER = {"ln_1": "attention_norm", "ln_2": "mlp_norm", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}
ENCODER |= {f"attn.{a}": f"attention.{b}" for a, b in ATTENTION.items()}
DECODER = {"ln_1": "attention_norm", "ln_2": "cross_norm", "ln_3": "mlp_norm"}
DECODER |= {"mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}
DECODER |= {f"m_attn.{a}": f"attention.{b}" for a, b in ATTENTION.items()}
DECODER |= {f"attn.{a}": f"cross.{b}" for a, b in ATTENTION.items()}
GPT_LAYER = {"norm1": "attention_norm", "norm2": "mlp_norm", "ffn.fc1": "mlp.up", "ffn.fc2": "mlp.down"}
GPT_LAYER |= {"attention.q_layer": "attention.query", "attention.k_layer": "attention.key"}
GPT_LAYER |= {"attention.v_layer": "attention.value", "attention.proj_layer": "attention.out"}


def package_names(n_layer: int) -> dict[str, str]:
    names = {"wte": "embedding", "encoder.norm": "encoder.norm", "decoder.norm": "decoder.norm"}
    for i in range(n_layer):
        names |= {f"encoder.layers.{i}.{a}": f"encoder.{i}.{b}" for a, b in ENCODER.items()}
        names |= {f"decoder.layers.{i}.{a}": f"decoder.{i}.{b}" for a, b in DECODER.items()}
    return {"lm_head": "output", **{f"transformer.{ours}": theirs for ours, theirs in names.items()}}


def copy_weights(ours: nn.Module, package: nn.Module, names: dict[str, str]) -> None:
    """Every parameter of one is a parameter of the other; strict, so that none is forgotten."""
    state = {}
    for name, p in ours.named_parameters():
        part, _, leaf = name.rpartition(".")
        state[f"{names[part]}.{leaf}"] = p.detach().clone()
    assert len(state) == len(list(ours.named_parameters()))
    package.load_state_dict(state, strict=True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale_embeddings", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_the_package_transformer_gives_the_same_logits(bias: bool, scale_embeddings: bool, tied: bool) -> None:
    """Broken: any difference between the readable twin and the package: norm, mask, positions, scale, padding, loss."""
    from glassformer.config import ModelConfig
    from glassformer.models.transformer import Transformer as PackageTransformer
    from glassformer.nn.rows import Rows

    ours = transformer(bias=bias, scale_embeddings=scale_embeddings)
    if tied:
        ours.lm_head.weight = ours.wte.weight
    settings: dict = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, "dropout": 0.0}
    settings |= {"bias": bias, "scale_embeddings": scale_embeddings, "tie_output": tied}
    package = PackageTransformer(ModelConfig(**settings)).eval()
    copy_weights(ours, package, package_names(2))

    src, tgt, targets = ids(3, 6), ids(3, 9), ids(3, 9)
    s, t = [6, 2, 4], [5, 9, 1]
    logits, loss = ours(src, tgt, targets, torch.tensor(s), torch.tensor(t))
    rows = Rows.padded(src, s), Rows.padded(tgt, t)
    for row, n in enumerate(t):
        torch.testing.assert_close(package(*rows)[row, :n], logits[row, :n], atol=1e-12, rtol=0)
    labels = targets.masked_fill(~classic.real_tokens(t, targets), IGNORE)
    assert loss is not None
    torch.testing.assert_close(package.loss(*rows, labels) / sum(t), loss, atol=1e-12, rtol=0)
    assert package.num_params() == ours.get_num_params()
    assert package.num_params(non_embedding=True) == ours.get_num_params(non_embedding=True)


@pytest.mark.parametrize(("no_pos", "no_res"), [(False, False), (True, False), (False, True)])
def test_the_package_gpt_gives_the_same_logits(no_pos: bool, no_res: bool) -> None:
    """Broken: any difference between the readable twin and the package, cached generation included."""
    from glassformer.config import ModelConfig
    from glassformer.models.gpt import GPT as PackageGPT
    from glassformer.nn.rows import Rows

    ours = gpt(no_pos=no_pos, no_res=no_res)
    settings: dict = {"family": "gpt", "vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16}
    settings |= {
        "n_hidden": 40,
        "dropout": 0.0,
        "activation": "gelu_tanh",
        "tie_output": True,
        "scale_embeddings": False,
    }
    settings |= {"positions": "none" if no_pos else "learned", "residual": not no_res}
    package = PackageGPT(ModelConfig(**settings)).eval()
    names = {"word_token_embedding": "embedding", "word_pos_embedding": "positions", "norm": "decoder.norm"}
    for i in range(2):
        names |= {f"transformer.{i}.{a}": f"decoder.{i}.{b}" for a, b in GPT_LAYER.items()}
    copy_weights(ours, package, names)

    tokens = ids(3, 8)
    torch.testing.assert_close(package(Rows.whole(tokens)), ours(tokens)[0], atol=1e-12, rtol=0)
    lengths, targets = [3, 8, 5], ids(3, 8)
    labels = targets.masked_fill(~classic.real_tokens(lengths, targets), IGNORE)
    loss = package.loss(Rows.padded(tokens, lengths), labels) / sum(lengths)
    torch.testing.assert_close(loss, ours(tokens, labels)[1], atol=1e-12, rtol=0)
    state = package.start(3, 8)
    stepped = torch.cat([package.step(tokens[:, i : i + 1], state) for i in range(8)], dim=1)
    torch.testing.assert_close(stepped, ours(tokens)[0], atol=1e-10, rtol=0)
