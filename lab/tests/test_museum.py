"""The museum of mistakes: without one nothing changes; with one, the model is found by `audit`, decodes as itself, is marked
wherever it is used, and its curve is told from a right one's where a curve can show it."""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
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
from glassformer_lab.museum.diagnosis import SIGNS, Curve, diagnose, museum, table_loss
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
    for one in museum().values():
        assert one["audit"] in known()["mistake"] and one.get("sign", "start") in SIGNS


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


def test_diagnose_names_what_was_planted(folder: Path, tmp_path: Path) -> None:
    """The one whose first loss shows it; a right run of as many steps is not said to begin wrong."""
    facts = json.loads(call("diagnose", trained(folder, "large-embeddings").path, "--json", cwd=tmp_path).stdout)
    assert facts["planted"] == "large-embeddings" and list(facts["looks_like"]) == ["large-embeddings"]
    assert "large-embeddings" not in diagnose(trained(folder, "none"))
    assert call("museum", "softmaxtwice", cwd=tmp_path).stderr.count("did you mean 'softmax-twice'") == 1
    assert len(call("museum", "--list", cwd=tmp_path).stdout.splitlines()) == len(museum())
    done = call("museum", "softmax-twice", "train.r_drop=1", "--out", "museum", cwd=tmp_path)
    assert done.returncode == 2 and "train.r_drop has a loss of its own" in done.stderr


def test_the_floor_of_a_softmax_of_probabilities() -> None:
    """ln(e + V - 1) - 1 is the least loss that the planted mistake can have, at certainty; the sign's number is that."""
    vocab, sure = 12, 60 * torch.eye(12)
    least = float(loss_of_probabilities(sure[None], torch.eye(vocab), torch.arange(vocab)[None])) / vocab
    assert least == pytest.approx(math.log(math.e + vocab - 1) - 1, abs=1e-5)
    curve = Curve(2.5, least, {"loss": least, "token_accuracy": 80.0}, vocab, 5.0, 2.0, least)
    assert SIGNS["flat"](curve) is not None
    assert SIGNS["flat"](Curve(2.5, 0.9 * least, curve.validation, vocab, 5.0, 2.0, least)) is None
    logits = torch.randn(3, 4, vocab)
    doubled = F.cross_entropy(logits.softmax(-1).flatten(0, 1), torch.zeros(12, dtype=torch.long), reduction="sum")
    own = loss_of_probabilities(logits, torch.eye(vocab), torch.zeros(3, 4, dtype=torch.long))
    assert torch.allclose(own, doubled)


def test_the_tables_loss_is_the_entropy_of_what_it_can_know() -> None:
    """Labels drawn from a known distribution for each context: the table's loss is its entropy, and not below."""
    draw, odds = random.Random(0), {0: [0.7, 0.2, 0.1], 1: [0.1, 0.1, 0.8]}
    drawn = [(c, draw.choices(range(3), odds[c])[0]) for c in (draw.randrange(2) for _ in range(40_000))]
    entropy = sum(-p * math.log(p) for own in odds.values() for p in own) / 2
    assert table_loss([((0, c), label) for c, label in drawn]) == pytest.approx(entropy, abs=0.01)


def test_what_teacher_forcing_promises() -> None:
    """Tokens right 9 times in 10, ten to a text: a third of the texts. None written is a sign, as many as promised is none."""
    for written, shown in ((0.0, True), (35.0, False), (30.0, False)):
        scores = {"loss": 0.3, "token_accuracy": 90.0, "exact_match": written}
        assert (SIGNS["promise"](Curve(3.0, 0.3, scores, 40, 10.0, 2.0, 0.3)) is not None) == shown


def test_diagnosing_needs_a_validation(folder: Path, tmp_path: Path) -> None:
    run = trained(folder, "none")
    copied = tmp_path / "run"
    shutil.copytree(run.path, copied)
    (copied / "metrics.jsonl").write_text('{"step": 2, "loss": 3.0}\n')
    with pytest.raises(UserError, match="has no validation"):
        diagnose(RunFolder.open(copied))


def test_a_loss_beyond_belief_of_running_text() -> None:
    """Where nothing is written to be scored: a loss under a tenth of the table's is a sign, one that is only good is none."""
    for loss, shown in ((0.05, True), (0.5, False)):
        scores = {"loss": loss, "token_accuracy": 99.0}
        assert (SIGNS["promise"](Curve(3.0, loss, scores, 40, 10.0, 2.0, 0.3)) is not None) == shown


def test_a_training_loss_beyond_belief_beside_validations_that_are_none() -> None:
    """Targets that are not shifted are learned at once, and what is validated is not. Broken variant: a model that has learned
    its few examples by heart, whose first validations were better than the table, is taken for one."""
    scores = {"loss": 6.0, "token_accuracy": 3.0}
    for least, best, shown in ((0.01, 3.5, True), (0.01, 1.2, False), (1.0, 3.5, False)):
        assert (SIGNS["gap"](Curve(3.7, least, scores, 40, 10.0, 2.0, best)) is not None) == shown


@pytest.mark.slow
def test_the_museum(tmp_path: Path) -> None:
    """Trained very small (docs/museum.md has them all, larger): each mistake is named as the catalogue says, the right one none
    of them; called again nothing is trained; what is left is a page, a table, numbers and a figure."""
    names = ["softmax-twice", "large-embeddings", "targets-not-shifted"]
    small = ["model.n_embd=32", "model.n_hidden=64", "data.size=3000", "data.batch_tokens=512", "train.steps=150"]
    small += ["train.learning_rate=0.01", "train.warmup=20", "train.validate_every=150", "train.validate_examples=30"]
    asked = ["museum", *names, *small, "--out", "museum"]
    done = call(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "museum/museum.json").read_text())["exhibits"]
    assert [one["mistake"] for one in found] == ["none", *names]
    for one in found:
        sign = museum().get(one["mistake"], {}).get("sign")
        named = {name for name, about in museum().items() if about.get("sign") == sign and sign}
        assert set(one["diagnosis"]) == named, one
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "museum/trials").rglob("*.safetensors")}
    assert call(*asked, cwd=tmp_path).returncode == 0
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "museum/trials").rglob("*.safetensors")}
    page = (tmp_path / "museum/museum.md").read_text()
    assert all(f"| {name} |" in page for name in names) and (tmp_path / "museum/museum.svg").stat().st_size > 1000
    assert len((tmp_path / "museum/museum.csv").read_text().splitlines()) == len(names) + 2
