"""The museum of mistakes: without one nothing changes; with one, the model is found by `audit`, decodes as itself, and is marked
wherever it is used."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import glassformer
from glassformer import runs
from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.engines import decoding_model
from glassformer.errors import UserError
from glassformer.models import FAMILIES, build_model
from glassformer.nn.known import is_as_built
from glassformer.nn.rows import Rows
from glassformer.runs.folder import RunFolder
from glassformer_lab.audit import audit, find_subject, known
from glassformer_lab.museum import museum
from glassformer_lab.museum.planting import MISTAKES as PLANTED
from glassformer_lab.museum.planting import loss_of_probabilities, plant, planting
from tests.commands import call
from tests.number_pairs import pairs, recipe, write_tsv

SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 32, "vocab_size": 40, "block_size": 24, "dropout": 0.1}
MISTAKES = list(museum())


def built(mistake: str, **more: Any) -> Any:
    torch.manual_seed(0)
    model = build_model(ModelConfig(**SIZES | more))  # type: ignore[arg-type]
    return model if mistake == "none" else plant(model, mistake)


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_without_a_mistake_nothing_changes(family: str) -> None:
    """The model is exactly its class, weights and loss to the bit. Broken variant: a mixin that is always put before it."""
    model = built("none", family=family)
    torch.manual_seed(0)
    plain = FAMILIES[family](ModelConfig(**SIZES, family=family))  # type: ignore[arg-type]
    assert type(model) is FAMILIES[family] and is_as_built(model)
    text = [torch.randint(40, (3, 9)) for _ in range(2 if family == "transformer" else 1)]
    assert torch.equal(model.eval().loss(*text), plain.eval().loss(*text))


def test_every_mistake_has_its_place_in_the_catalogue() -> None:
    assert sorted(museum()) == sorted(PLANTED)
    assert all(one["audit"] in known()["mistake"] for one in museum().values())


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_audit_finds_each(mistake: str) -> None:
    """And in the right model nothing (lab/tests/test_audit.py). Broken variant: a mistake that is named and not installed."""
    assert museum()[mistake]["audit"] in {one.mistake for one in audit(find_subject(built(mistake)))}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_weights_keep_their_names_and_a_copy_its_mistake(mistake: str) -> None:
    """A run of the museum is saved and loaded as any other: built again with the same weights, or copied, it gives the same
    logits, and (but for what is in the first weights or in training alone) others than the right model with those weights."""
    model, right, again = built(mistake).eval(), built("none").eval(), built(mistake).eval()
    assert model.state_dict().keys() == right.state_dict().keys()
    right.load_state_dict(model.state_dict())
    again.load_state_dict(model.state_dict())
    lengths = {"source_lengths": [9, 4]}  # the second row has padding
    text = [torch.randint(40, (2, 9)), torch.randint(40, (2, 6))]
    logits = model(*text, **lengths)
    assert torch.equal(logits, again(*text, **lengths)) and torch.equal(logits, copy.deepcopy(model)(*text, **lengths))
    alike = torch.allclose(logits, right(*text, **lengths), atol=1e-6)
    assert alike == (mistake in ("double-dropout", "large-embeddings", "targets-not-shifted"))


@pytest.mark.parametrize(
    ("mistake", "settings", "needed"),
    [
        ("causal-encoder", {"family": "gpt"}, "model.family=transformer"),
        ("unmasked-decoder", {"family": "bert"}, "model.family=transformer"),
        ("no-positions", {"positions": "rotary"}, "model.positions=sinusoidal"),
        ("residual-after-norm", {"pre_norm": False}, "model.pre_norm=true"),
        ("double-dropout", {"dropout": 0.0}, "model.dropout above 0"),
        ("large-embeddings", {"tie_output": False}, "model.tie_output=true"),
        ("unmasked-decoder", {"positions": "relative"}, "positions other than model.positions=relative"),
        ("causal-encoder", {"positions": "relative"}, "positions other than model.positions=relative"),
        ("softmaxtwice", {}, "did you mean 'softmax-twice'"),
    ],
)
def test_a_mistake_that_has_no_place_is_refused(mistake: str, settings: dict[str, Any], needed: str) -> None:
    """Broken variant of the masks': the decoder read by the encoder's table of distances."""
    with pytest.raises(UserError, match=needed):
        built(mistake, **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Number pairs, and a run of a few steps for some of the mistakes."""
    folder = tmp_path_factory.mktemp("museum")
    write_tsv(folder / "train.tsv", pairs(300))
    return folder


def trained(folder: Path, mistake: str) -> RunFolder:
    if RunFolder.is_run(folder / mistake):
        return RunFolder.open(folder / mistake)
    asked = recipe(folder, model={"dropout": 0.1}, steps=4, validate_every=4, save_every=4)
    return runs.train(asked, folder / mistake, build=None if mistake == "none" else planting(mistake))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_decodes_has_the_mistake(mistake: str) -> None:
    """The copy that engine=auto decodes with gives the logits of the model itself, on sources of different lengths together.
    Broken variant: the class is one that `nn.known` knows (`stands_for`), and the fast copy is the right model."""
    model = built(mistake).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    source, target = Rows.padded(torch.randint(40, (3, 9)), [9, 4, 1]), torch.randint(40, (3, 5))
    logits = []
    with torch.no_grad():
        for one in (model, decoding_model(model, DecodeConfig(), 3)):
            cache = one.start(source, 8)
            logits.append(torch.stack([one.step(token, cache) for token in target.split(1, dim=1)]))
    assert torch.allclose(logits[0], logits[1], atol=1e-4)


def test_a_run_is_marked_for_ever(folder: Path) -> None:
    """In run.json: a model without the mistake is not made of its weights, and it does not go on without it. Broken variants: the
    right model, answering with weights that were learned by a wrong one; a run that goes on as a right one."""
    run = trained(folder, "softmax-twice")
    assert json.loads((run.path / "run.json").read_text())["build"] == "softmax-twice"
    for use in (
        lambda: glassformer.load(run.path),
        lambda: runs.resume(run.path),
        lambda: runs.RunFolder.open(run.path).load_model(),
    ):
        with pytest.raises(UserError, match="was trained with build=softmax-twice, and here build=None"):
            use()
    with pytest.raises(UserError, match="here build=no-positions"):
        runs.resume(run.path, build=planting("no-positions"))
    model = run.load_model(build=planting("softmax-twice"))
    text = [torch.randint(5, 9, (2, 4)), torch.randint(5, 9, (2, 3))]
    assert torch.allclose(model(*text).sum(-1), torch.ones(2, 3)), "what it gives as logits are probabilities"


def test_it_goes_on_with_its_mistake_to_the_bit(folder: Path, tmp_path: Path) -> None:
    """Broken variant: the mistake is planted when a run begins, and not when it goes on."""
    asked = recipe(folder, model={"dropout": 0.1}, steps=8, validate_every=4, save_every=4, schedule="constant")
    straight = runs.train(asked, tmp_path / "straight", build=planting("double-dropout"))
    runs.train(
        replace(asked, train=replace(asked.train, steps=4)), tmp_path / "later", build=planting("double-dropout")
    )
    later = runs.resume(tmp_path / "later", asked, accept_changes=True, build=planting("double-dropout"))
    weights = [run.load_model(build=planting("double-dropout")).state_dict() for run in (straight, later) if run]
    assert len(weights) == 2 and all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_what_the_command_refuses(tmp_path: Path) -> None:
    assert call("museum", "softmaxtwice", cwd=tmp_path).stderr.count("did you mean 'softmax-twice'") == 1
    assert len(call("museum", "--list", cwd=tmp_path).stdout.splitlines()) == len(museum())
    done = call("museum", "softmax-twice", "train.r_drop=1", "--out", "museum", cwd=tmp_path)
    assert done.returncode == 2 and "train.r_drop has a loss of its own" in done.stderr


def test_the_loss_of_probabilities() -> None:
    """At certainty it is ln(e + V - 1) - 1, the least that the planted mistake can have; and else cross-entropy of a softmax."""
    vocab, sure = 12, 60 * torch.eye(12)
    least = float(loss_of_probabilities(sure[None], torch.eye(vocab), torch.arange(vocab)[None])) / vocab
    assert least == pytest.approx(math.log(math.e + vocab - 1) - 1, abs=1e-5)
    logits = torch.randn(3, 4, vocab)
    doubled = F.cross_entropy(logits.softmax(-1).flatten(0, 1), torch.zeros(12, dtype=torch.long), reduction="sum")
    own = loss_of_probabilities(logits, torch.eye(vocab), torch.zeros(3, 4, dtype=torch.long))
    assert torch.allclose(own, doubled)


@pytest.mark.slow
def test_the_museum(tmp_path: Path) -> None:
    """Trained very small (docs/museum.md has them all, larger): audit finds each, in the right one nothing; called again nothing
    is trained; what is left is a page, a table, numbers and a figure."""
    names = ["softmax-twice", "large-embeddings", "targets-not-shifted"]
    small = ["model.n_embd=32", "model.n_hidden=64", "data.size=3000", "data.batch_tokens=512", "train.steps=150"]
    small += ["train.learning_rate=0.01", "train.warmup=20", "train.validate_every=150", "train.validate_examples=30"]
    asked = ["museum", *names, *small, "--out", "museum"]
    done = call(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "museum/museum.json").read_text())["exhibits"]
    assert [one["mistake"] for one in found] == ["none", *names]
    assert all(museum()[one["mistake"]]["audit"] in one["audit"] for one in found[1:]) and not found[0]["audit"]
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "museum/trials").rglob("*.safetensors")}
    assert call(*asked, cwd=tmp_path).returncode == 0
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "museum/trials").rglob("*.safetensors")}
    page = (tmp_path / "museum/museum.md").read_text()
    assert all(f"| {name} |" in page for name in names) and (tmp_path / "museum/museum.svg").stat().st_size > 1000
