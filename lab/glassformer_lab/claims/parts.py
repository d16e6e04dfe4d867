"""One part of the machine at a time: a model with some settings, trained on text or pairs, and what it reaches. The claims on
single parts (activations, tied tables, scaled embeddings, label smoothing, drift) are files of settings for this one trial."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.models import GPT, Transformer
from glassformer.nn.feedforward import MLP
from glassformer.nn.rows import as_rows
from glassformer.nn.taps import record
from glassformer_lab.alternatives.additive_attention import AdditiveAttention
from glassformer_lab.claims.claim import Budget, Measured
from glassformer_lab.claims.text import characters, drawn_rows, held_out
from glassformer_lab.claims.timing import in_turns
from glassformer_lab.claims.training import (
    BEGIN,
    END,
    Letters,
    Strings,
    TrainArgs,
    held_out_scores,
    parameters,
    phrases,
    small,
    train,
    train_on,
)

ROW = 128


def make(kind: type[GPT | Transformer], activation: str, scores: str, **settings: Any) -> Any:
    """A model by its settings; and by two that the product has not: no activation at all, and other scores of attention."""
    linear = activation == "none"
    own = {"activation": "relu" if linear else activation, "scaled_attention": scores != "product"}
    model = small(kind, **own, **settings)
    for module in model.modules():
        if linear and isinstance(module, MLP):
            module.activate = nn.Identity()
        for name, child in module.named_children():
            if scores == "additive" and type(child).__name__ == "MultiHeadAttention":
                config = model.config
                other = AdditiveAttention(config.n_embd, config.n_head, head_size=config.head_size, bias=config.bias)
                other.load_state_dict({**child.state_dict(), "weigh": other.weigh.detach()})
                setattr(module, name, other)
    return model


@torch.no_grad()
def output_sizes(model: GPT, seed: int) -> list[float]:
    """How large the output of each block is (the root of its mean square), over rows of held-out text."""
    text = characters()[0]
    with record(model, "decoder.*.residual") as seen:
        model(text[int(0.9 * len(text)) + 997 * seed :][: 8 * ROW].view(8, ROW))
    return [float(x.square().mean().sqrt()) for x in seen.values()]


@torch.no_grad()
def bleu_of(model: Transformer, task: Strings, seed: int, count: int = 300) -> float:
    """BLEU of what greedy decoding writes for sources of the test, by tokens."""
    from sacrebleu.metrics import BLEU

    pairs = task.test(count, seed)
    model.eval()
    token = torch.full_like(pairs.source[:, :1], BEGIN)
    written = []
    with torch.device("cpu"):  # what the cache keeps on the host
        state = model.start(as_rows(pairs.source, pairs.source_lengths), pairs.target.size(1) + 8)
        for _ in range(pairs.target.size(1) + 7):
            token = model.step(token, state)[:, -1:].argmax(-1)
            written.append(token)

    def words(row: list[int]) -> str:
        return " ".join(map(str, row[: row.index(END)] if END in row else row))

    wanted = [words([t for t in row if t >= 0]) for row in pairs.labels.tolist()]
    answers = [*map(words, torch.cat(written, 1).tolist())]
    return float(BLEU(tokenize="none", force=True).corpus_score(answers, [wanted]).score)


def step_of(model: GPT, ids: Tensor) -> None:
    """Forward and backward."""
    model.loss(ids).backward()


def trial(
    budget: Budget,
    task: str,
    seed: int,
    rate: float = 2e-3,
    steps: int = 1000,
    activation: str = "relu",
    scores: str = "scaled",
    smoothing: float | None = None,
    size: int | None = None,
    **settings: Any,
) -> Measured:
    """Text by the character (a GPT), phrases, or letters to reverse (an encoder-decoder); other settings are the model's. `drift`
    is the text, with the size of each block's output before and after training; `cost` times a step."""
    args = TrainArgs(budget.steps(steps), rate=rate, batch=32)
    if task == "cost":  # a step with this activation and one with ReLU, in turns
        both = [make(GPT, name, scores, n_layer=2, vocab_size=100, block_size=ROW) for name in (activation, "relu")]
        ids = torch.randint(100, (16, ROW))
        ours, theirs = in_turns(partial(step_of, both[0], ids), partial(step_of, both[1], ids), 10)
        return {"ours": ours, "theirs": theirs}
    if task in ("text", "drift"):
        depth = settings.pop("n_layer", 4)
        model = make(GPT, activation, scores, n_layer=depth, vocab_size=characters()[1], block_size=ROW, **settings)
        found: Measured = {"parameters": parameters(model)}
        if task == "drift":
            found["before"] = output_sizes(model, seed)
        losses = train(model, *drawn_rows(model, 32, ROW, seed), args)
        found |= {**held_out(model, ROW, 200, seed), "area": sum(losses) / len(losses)}
        if task == "drift":
            found["after"] = output_sizes(model, seed)
            found |= {f"growth, {when}": found[when][-1] / max(found[when][0], 1e-9) for when in ("before", "after")}
        return found
    data: Letters | Strings = Letters("reverse", 2, 12) if task == "reverse" else phrases(count=budget.steps(20_000))
    options = {"head_size": size, "block_size": 64, "vocab_size": data.vocabulary, **settings}
    pair_model = make(Transformer, activation, scores, n_layer=2, **options)
    losses = train_on(pair_model, data, args, seed, smoothing=smoothing or 0.0)
    found = {
        "area": sum(losses) / len(losses),
        "parameters": parameters(pair_model),
        **held_out_scores(pair_model, data, seed),
    }
    if smoothing is not None and isinstance(data, Strings):
        found["bleu"] = bleu_of(pair_model, data, seed)
    return found
