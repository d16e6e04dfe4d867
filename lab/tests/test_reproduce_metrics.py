"""The metrics of `glassformer reproduce` beside computations of their own."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from glassformer import runs
from glassformer.config import ModelConfig, read_recipe
from glassformer.errors import UserError
from glassformer.evaluation.teacher_forced import random_batches_loss, whole_loss
from glassformer.models import GPT
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import Tokenizer
from glassformer_lab.reproduce import reproduction as study
from glassformer_lab.reproduce.metrics import validation_tokens
from glassformer_lab.reproduce.reproduction import data_settings
from tests.small_collections import SHAKESPEARE, numbers, write_shakespeare

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(
        ModelConfig(family="gpt", vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=16, dropout=0.5)
    ).eval()


def surprise(model: GPT, before: Sequence[int], following: int) -> float:
    """Of one token after those before it in its block, by the definition."""
    scores = model(Rows.whole(torch.tensor([list(before)])))[0, -1].double()
    return -math.log(float(scores.exp()[following] / scores.exp().sum()))


@pytest.mark.parametrize("length", [9, 17, 30, 5, 100])
@torch.no_grad()
def test_the_loss_of_the_whole_text(model: GPT, length: int) -> None:
    """Token by token. Broken variants: the rest after the last full block left out; the first token of a block not asked for
    (it belongs to the block before); a mean of blocks of different lengths."""
    tokens = torch.randint(0, 11, (length,), generator=torch.Generator().manual_seed(length))
    text = tokens.tolist()
    by_hand = [surprise(model, text[(i - 1) // 8 * 8 : i], text[i]) for i in range(1, length)]
    assert len(by_hand) == length - 1
    assert whole_loss(model, tokens, 8, CPU) == pytest.approx(statistics.fmean(by_hand), abs=1e-5)


@torch.no_grad()
def test_the_estimate_is_the_one_of_nanogpt(model: GPT) -> None:
    """`get_batch` and `estimate_loss` of its train.py, with torch's own cross-entropy. Broken variants: a sum for a mean, labels
    not shifted, starts that leave out the last place."""
    data = torch.randint(0, 11, (40,), generator=torch.Generator().manual_seed(2))
    draw = torch.Generator().manual_seed(1337)
    losses = torch.zeros(200)
    for k in range(200):
        ix = torch.randint(len(data) - 8, (64,), generator=draw)
        x = torch.stack([data[i : i + 8] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + 8] for i in ix])
        logits = model(Rows.whole(x))
        losses[k] = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
    assert random_batches_loss(model, data, 8, CPU) == pytest.approx(float(losses.mean()), abs=1e-5)
    assert random_batches_loss(model, data[:9], 8, CPU, batches=2) > 0, "one block and the next token"
    with pytest.raises(UserError, match="no block"):
        random_batches_loss(model, data[:8], 8, CPU)


def test_the_sign_that_ends_a_text_is_not_scored(tmp_path: Path) -> None:
    write_shakespeare(tmp_path, 3000)
    settings = [
        *SHAKESPEARE,
        "train.steps=1",
        *data_settings(study.reproduction("shakespeare-char"), tmp_path, tmp_path),
    ]
    recipe = read_recipe("shakespeare-char", settings)
    run = runs.train(recipe, tmp_path / "run")
    tokens = validation_tokens(run)
    text = (tmp_path / "input.txt").read_text(encoding="utf-8")
    assert run.tokenizers.target.decode(tokens.tolist()) == text[int(0.9 * len(text)) :]
    assert len(tokens) == len(text) - int(0.9 * len(text))


def test_tokenised_text_comes_back_as_it_was() -> None:
    """Words stay apart by the spaces the publisher put there: what is scored is what was written."""
    english, german = numbers(300, 0)
    odd = [
        "t-shirt &apos;s",
        "a &quot; b &amp; c",
        "ein(e) 3,5-m-brett .",
        "un@@ known @-@ joined",
        "größe , schwarz-weiß !",
    ]
    tokenizer = Tokenizer.train("bpe", english + german, 10_000)
    for text in [*odd, *english[:50], *german[:50]]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
