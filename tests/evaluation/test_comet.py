"""COMET: our encoder, mix and estimator give the scores of the published formula on the same weights, however the checkpoint was
made, and every verb that scores translations takes it.

The reference is written here from the formula (Rei et al. 2020; unbabel-comet's RegressionMetric) on transformers' XLM-R.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from torch import nn

from glassformer import evaluate
from glassformer.errors import UserError
from glassformer.evaluation.comet import load_comet, sparsemax
from glassformer.formats.comet import import_comet
from tests.commands import call
from tests.external_models import BERT, byte_level, noisy

TEXTS = [
    ("the cat sat", "a cat sat", "the cat sat on the mat"),
    ("three mice", "three mice, or four?", "four mice"),
    ("one day " * 20, "the mice ate", "naïve café 你好"),  # longer than the encoder reads
    ("a hat", "", "a hat"),
]
SIDES = [list(side) for side in zip(*TEXTS, strict=True)]


def published(folder: Path, **hparams: Any) -> tuple[Any, Any, nn.Sequential, torch.Tensor]:
    """A checkpoint as the package leaves it, of a small random encoder: `folder/comet`, and `folder/encoder` for its config."""
    torch.manual_seed(3)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    roles = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    encoder = folder / "encoder"
    tokenizer = byte_level(encoder, special, mask_token="<mask>", unk_token="<unk>", frame="<s> $A </s>", **roles)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=42, type_vocab_size=1, **BERT
    )
    config.architectures = ["XLMRobertaForMaskedLM"]  # what the folder of the encoder itself says
    config.save_pretrained(encoder)
    body = noisy(transformers.XLMRobertaModel(config, add_pooling_layer=False))
    sizes = [6 * 16, 12, 8]
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.Linear(a, b), nn.Tanh(), nn.Dropout(0.1)]
    head = nn.Sequential(*parts, nn.Linear(sizes[-1], 1)).eval()
    scalars = torch.randn(3)
    state = {f"encoder.model.{n}": t for n, t in body.state_dict().items()}
    state |= {f"estimator.ff.{n}": t for n, t in head.state_dict().items()}
    state |= {f"layerwise_attention.scalar_parameters.{i}": s.reshape(1) for i, s in enumerate(scalars)}
    state |= {"layerwise_attention.gamma": torch.tensor([1.7]), "layerwise_attention.dropout_mask": torch.zeros(3)}
    told = {"class_identifier": "regression_metric", "pretrained_model": "tiny", "hidden_sizes": sizes[1:]}
    told |= {"activations": "Tanh", "final_activation": None, "pool": "avg", "layer": "mix", "layer_norm": True}
    told |= {"layer_transformation": "softmax", **hparams}
    (folder / "comet" / "checkpoints").mkdir(parents=True)
    (folder / "comet" / "hparams.yaml").write_text(yaml.safe_dump(told))
    torch.save({"state_dict": state, "hyper_parameters": told}, folder / "comet" / "checkpoints" / "model.ckpt")
    return body, tokenizer, head, scalars


@torch.no_grad()
def reference(body: Any, tokenizer: Any, head: nn.Sequential, scalars: torch.Tensor, **how: Any) -> list[float]:
    """The scores by the formula, a text at a time and so without padding."""

    def vector(text: str) -> torch.Tensor:
        # the package cuts at two tokens less than max_position_embeddings - 2
        ids = tokenizer(text, truncation=True, max_length=42 - 2 - 2, return_tensors="pt")["input_ids"]
        layers = body(input_ids=ids, output_hidden_states=True).hidden_states
        if how.get("layer", "mix") != "mix":
            mixed = layers[how["layer"]][0]
        else:
            if how.get("layer_norm", True):
                layers = [(x - x.mean()) / (x.var(correction=0) + 1e-12).sqrt() for x in layers]
            sparse = how.get("layer_transformation") == "sparsemax"
            weights = sparsemax(scalars) if sparse else torch.softmax(scalars, 0)
            mixed = 1.7 * sum(w * x[0] for w, x in zip(weights, layers, strict=True))
        return {"avg": mixed.mean(0), "max": mixed.amax(0), "cls": mixed[0]}[how.get("pool", "avg")]

    found = []
    for source, translation, wanted in TEXTS:
        s, t, r = map(vector, (source, translation, wanted))
        found.append(head(torch.cat([t, r, t * r, (t - r).abs(), t * s, (t - s).abs()])).item())
    return found


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"layer_norm": False, "pool": "max"},
        {"layer": 1, "pool": "cls"},
        {"layer_transformation": "sparsemax"},
    ],
    ids=str,
)
def test_scores_are_those_of_the_formula(tmp_path: Path, how: dict[str, Any]) -> None:
    parts = published(tmp_path, **how)
    import_comet(tmp_path / "comet", tmp_path / "ours", allowed=True, encoder=tmp_path / "encoder")
    found = load_comet(tmp_path / "ours", torch.device("cpu")).scores(*SIDES)
    np.testing.assert_allclose(found, reference(*parts, **how), atol=2e-5)
    assert found.std() > 1e-3, "scores that are all the same would hide a mistake"


def test_sparsemax_is_the_nearest_distribution() -> None:
    """By brute force over the simplex of three: no distribution of a fine grid is nearer."""
    for z in (torch.tensor([0.3, 0.1, -2.0]), torch.tensor([2.0, 0.1, 0.0]), torch.zeros(3)):
        steps = torch.arange(0, 1.001, 0.02)
        grid = torch.cartesian_prod(steps, steps)
        grid = grid[grid.sum(1) <= 1 + 1e-6]
        corners = torch.cat([grid, 1 - grid.sum(1, keepdim=True)], dim=1)
        found = sparsemax(z)
        assert abs(float(found.sum()) - 1) < 1e-6 and float(found.min()) >= 0
        assert float((found - z).norm()) <= float((corners - z).norm(dim=1).min()) + 1e-5


def test_what_was_called_sparsemax_and_trained_with_softmax(tmp_path: Path) -> None:
    """The package reads `sparsemax_patch` in hparams.yaml as softmax, whatever the checkpoint says."""
    parts = published(tmp_path, layer_transformation="sparsemax")
    told = tmp_path / "comet" / "hparams.yaml"
    told.write_text(told.read_text().replace("sparsemax", "sparsemax_patch"))
    import_comet(tmp_path / "comet", tmp_path / "ours", allowed=True, encoder=tmp_path / "encoder")
    found = load_comet(tmp_path / "ours", torch.device("cpu")).scores(*SIDES)
    np.testing.assert_allclose(found, reference(*parts), atol=2e-5)


def test_what_cannot_be_imported_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    published(tmp_path)
    source, encoder = tmp_path / "comet", tmp_path / "encoder"
    with pytest.raises(UserError, match="--pickle"):
        import_comet(source, tmp_path / "ours", allowed=False, encoder=encoder)
    with pytest.raises(UserError, match=r"tiny.*--tokenizer FOLDER"):
        import_comet(source, tmp_path / "ours", allowed=True, encoder=None)
    told = source / "hparams.yaml"
    good = told.read_text()
    told.write_text(good.replace("regression_metric", "unified_metric"))
    with pytest.raises(UserError, match="kind 'unified_metric'"):
        import_comet(source, tmp_path / "ours", allowed=True, encoder=encoder)
    told.write_text(good)
    checkpoint = torch.load(source / "checkpoints" / "model.ckpt", weights_only=True)
    del checkpoint["state_dict"]["estimator.ff.3.bias"]
    torch.save(checkpoint, source / "checkpoints" / "model.ckpt")
    with pytest.raises(UserError, match="1 tensors are missing"):
        import_comet(source, tmp_path / "ours", allowed=True, encoder=encoder)
    (source / "checkpoints" / "model.ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match="without running code"):
        import_comet(source, tmp_path / "ours", allowed=True, encoder=encoder)
    with pytest.raises(UserError, match="is no COMET"):
        load_comet(encoder, torch.device("cpu"))
    assert not (tmp_path / "ours").exists()


def test_every_verb_that_scores_translations_takes_it(tmp_path: Path) -> None:
    """import, train (as the metric), evaluate and compare; evaluate's number is the mean of the scores of what was written."""
    published(tmp_path)
    made = call("import", "comet", "--pickle", "--tokenizer", "encoder", "--out", "ours", cwd=tmp_path)
    assert made.returncode == 0 and "--comet ours" in made.stdout, made.stderr
    words = ["cat", "hat", "mat", "mice", "day", "dog", "sun", "sea"]
    pairs = [(f"the {a} and the {b}", f"{b} {a} .") for a in words for b in words]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    small = ["model.n_layer=1", "model.n_embd=16", "model.n_head=2", "train.steps=4", "train.validate_every=2"]
    small += ["train.comet=ours", "train.metric=comet", "data.val_fraction=0.2", "--out", "run"]
    trained = call("train", "pairs.tsv", *small, cwd=tmp_path)
    assert trained.returncode == 0 and "COMET" in trained.stderr + trained.stdout, trained.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(line["val_comet"]) for line in lines if "val_loss" in line)
    (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs[:5]))
    more = ["--comet", "ours", "--out", "said.txt", "--json"]
    told = call("evaluate", "run", "--file", "test.tsv", *more, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    said = (tmp_path / "said.txt").read_text().splitlines()
    scorer = load_comet(tmp_path / "ours", torch.device("cpu"))
    expected = 100 * scorer.scores([a for a, _ in pairs[:5]], said, [b for _, b in pairs[:5]]).mean()
    assert json.loads(told.stdout)["comet"] == pytest.approx(expected, abs=1e-3)
    assert evaluate(tmp_path / "run", pairs[:5], comet=tmp_path / "ours")["comet"] == pytest.approx(expected, abs=1e-3)
    assert "comet" not in evaluate(tmp_path / "run", pairs[:5]), "it is asked for each time: the folder may be gone"
    both = call("compare", "run", "run", "--split", "val", "--comet", "ours", "--json", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert json.loads(both.stdout)["scores"]["comet"]["difference"]["value"] == 0
    gone = call("train", "pairs.tsv", "train.comet=nowhere", "--out", "other", cwd=tmp_path)
    assert gone.returncode == 2 and "is no COMET" in gone.stderr
