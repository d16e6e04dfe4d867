"""An ensemble: at each step the mean of its members' probabilities. A run with itself is the run; two are what a loop over whole
texts in NumPy finds; runs that cut text otherwise are refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer import Transformer
from glassformer.config import DecodeConfig
from glassformer.decode import translate_batch
from glassformer.decode.ensemble import Ensemble
from glassformer.errors import ConfigError, UserError
from glassformer.text.tokenizer import BOS, EOS
from tests.commands import call
from tests.uncached import uncached_batch

V = 12
DRAWN = random.Random(5)
SOURCES = [[*(DRAWN.randrange(5, V) for _ in range(n % 7 + 1)), EOS] for n in range(14)]


def member(seed: int, **how: Any) -> Transformer:
    torch.manual_seed(seed)
    made = Transformer(
        vocab_size=V, block_size=16, n_layer=1, n_head=2, n_embd=how.pop("n_embd", 8), dropout=0.3, **how
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.6 * torch.randn_like(parameter))
    return made.eval()


def mean_logprobs(members: list[Transformer], source: list[int], written: list[int]) -> np.ndarray:
    """log of the mean probability of what follows, from whole texts, in float64."""
    found = []
    for model in members:
        with torch.no_grad():
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *written]]))[0, -1].double().numpy()
        found.append(np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum())
    return np.log(np.mean(found, axis=0))


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_two_are_the_mean_of_their_probabilities(engine: str) -> None:
    """Greedily, token by token; and of a beam, the log-probability of every hypothesis. Broken variants: the mean of logits or of
    log-probabilities; a member whose cache is not reordered with the beam, or not moved when a slot is left."""
    members = [member(1), member(2, n_embd=16)]
    ensemble = Ensemble(members)
    greedy = translate_batch(ensemble, SOURCES, DecodeConfig(beam=1, max_new_tokens=9, engine=engine))
    for source, (best,) in zip(SOURCES, greedy, strict=True):
        written: list[int] = []
        while len(written) < 9:
            scores = mean_logprobs(members, source, written)
            scores[[BOS, 0]] = -np.inf  # never written
            token = int(scores.argmax())
            if token == EOS:
                break
            written.append(token)
        assert [i for i in best.ids if i != EOS] == written
    config = DecodeConfig(beam=3, n_best=3, max_new_tokens=9, engine=engine, batch_size=4)
    for source, hypotheses in zip(SOURCES, translate_batch(ensemble, SOURCES, config), strict=True):
        for found in hypotheses:
            written = [i for i in found.ids if i != EOS]
            total = sum(mean_logprobs(members, source, written[:i])[token] for i, token in enumerate(written))
            total += mean_logprobs(members, source, written)[EOS] if found.complete else 0
            assert found.logprob == pytest.approx(total, abs=1e-4)


def test_cached_is_uncached() -> None:
    ensemble = Ensemble([member(1), member(2, n_embd=16), member(3, positions="learned")])
    config = DecodeConfig(beam=4, n_best=2, max_new_tokens=9)
    cached, uncached = (decode(ensemble, SOURCES, config) for decode in (translate_batch, uncached_batch))
    assert [[h.ids for h in one] for one in cached] == [[h.ids for h in one] for one in uncached]


def test_a_model_with_itself_is_the_model() -> None:
    model = member(1)
    config = DecodeConfig(beam=4, n_best=4, max_new_tokens=9)
    alone, twice = (translate_batch(net, SOURCES, config) for net in (model, Ensemble([model, model])))
    for one, other in zip(alone, twice, strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.logprob for h in one] == pytest.approx([h.logprob for h in other], abs=1e-4)


def test_runs_as_an_ensemble(tmp_path: Path) -> None:
    """load, translate, evaluate; other tokens, other kinds of models and other engines are refused."""
    words = ["cat", "hat", "mat", "mice", "day", "dog", "sun", "sea"]
    lines = [f"the {a} and the {b}\t{b} {a} .\n" for a in words for b in words]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    small = ["model.n_layer=1", "model.n_embd=16", "model.n_head=2", "train.steps=6", "data.val_fraction=0.2"]
    more = {"a": [], "b": ["train.seed=2", "model.n_embd=24"], "c": ["data.tokenizer=char"]}
    for name, settings in more.items():
        made = call("train", "pairs.tsv", *small, *settings, "--out", name, cwd=tmp_path)
        assert made.returncode == 0, made.stderr
    runs = [tmp_path / "a", tmp_path / "b"]
    both, texts = glassformer.load(runs), ["the cat and the dog", "the sea and the sun"]
    parts = [glassformer.load(run) for run in runs]
    assert "ensemble with" in repr(both)
    said = call("translate", "a", "--ensemble", "b", *texts, cwd=tmp_path)
    assert said.returncode == 0 and said.stdout.removesuffix("\n").split("\n") == both.translate(texts), said.stderr
    target = "dog cat ."
    chances = [np.exp(part.score(texts[0], target).token_logprobs) for part in parts]
    assert both.score(texts[0], target).logprob == pytest.approx(np.log(np.mean(chances, axis=0)).sum(), abs=1e-4)
    told = call("evaluate", "a", "--ensemble", "b", "--split", "val", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    losses = [json.loads(call("evaluate", n, "--split", "val", "--json", cwd=tmp_path).stdout)["loss"] for n in "ab"]
    assert json.loads(told.stdout)["loss"] <= np.mean(losses) + 1e-6, "the log is concave"
    with pytest.raises(UserError, match="into other tokens"):
        glassformer.load([runs[0], tmp_path / "c"])
    with pytest.raises(ConfigError, match="answers with one model"):
        both.translate(texts, engine="onnx")
    with pytest.raises(UserError, match="one by one"):
        both.export("ct2", tmp_path / "out")
    with pytest.raises(UserError, match="single run"):
        glassformer.load(runs, step=2)
    assert glassformer.load([runs[0]]).translate(texts) == parts[0].translate(texts)
