"""One part of the machine at a time: a model with some settings, trained on text or pairs, and what it reaches. The claims on
single parts are files of settings for one of these trials."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.models import GPT, Transformer
from glassformer.nn.attention import attention_scores, masked_softmax
from glassformer.nn.feedforward import MLP
from glassformer.nn.rows import as_rows
from glassformer.nn.taps import record
from glassformer.training.optim import gradient_norms, layers_of
from glassformer_lab.alternatives.additive_attention import AdditiveAttention
from glassformer_lab.claims import training
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.timing import in_turns
from glassformer_lab.claims.training import (
    Letters,
    Strings,
    TrainArgs,
    characters,
    downsample,
    exact_match,
    held_out,
    held_out_scores,
    parameters,
    small,
    summed_loss,
    text_loss,
    train,
    train_on,
)

ROW = 128  # characters that are read at once
SORTED, LONGER, REVERSED = Letters("sort", 2, 12), Letters("sort", 13, 16), Letters("reverse", 2, 12)


# ---- activation, additive, drift, embedding-scale, smoothing, tying


def make(kind: type[GPT | Transformer], activation: str, scores: str, **settings: Any) -> Any:
    """A model by its settings; and by two that the product has not: no activation at all, and other scores of attention."""
    linear = activation == "none"
    model = small(kind, activation="relu" if linear else activation, scaled_attention=scores != "product", **settings)
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
    token = torch.full_like(pairs.source[:, :1], training.BEGIN)
    written = []
    with torch.device("cpu"):  # what the cache keeps on the host
        state = model.start(as_rows(pairs.source, pairs.source_lengths), pairs.target.size(1) + 8)
        for _ in range(pairs.target.size(1) + 7):
            token = model.step(token, state)[:, -1:].argmax(-1)
            written.append(token)

    def words(row: list[int]) -> str:
        return " ".join(map(str, row[: row.index(training.END)] if training.END in row else row))

    references = [words([t for t in row if t >= 0]) for row in pairs.labels.tolist()]
    answers = [*map(words, torch.cat(written, 1).tolist())]
    return float(BLEU(tokenize="none", force=True).corpus_score(answers, [references]).score)


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
        drift: Measured = {"before": output_sizes(model, seed)} if task == "drift" else {}
        losses = train(model, text_loss(model, 32, ROW, seed), args)
        reached = held_out(model, ROW, 200, seed)
        if drift:
            drift["after"] = output_sizes(model, seed)
            drift |= {f"growth, {when}": drift[when][-1] / max(drift[when][0], 1e-9) for when in ("before", "after")}
        return {"parameters": parameters(model), "area": sum(losses) / len(losses), **reached, **drift}
    data: Letters | Strings = REVERSED if task == "reverse" else training.phrases(count=budget.steps(20_000))
    options = {"head_size": size, "block_size": 64, "vocab_size": data.vocabulary, **settings}
    model = make(Transformer, activation, scores, n_layer=2, **options)
    losses = train_on(model, data, args, seed, smoothing=smoothing or 0.0)
    reached = held_out_scores(model, data, seed)
    if smoothing is not None and isinstance(data, Strings):
        reached["bleu"] = bleu_of(model, data, seed)
    return {"parameters": parameters(model), "area": sum(losses) / len(losses), **reached}


# ---- norms


def kind_trial(budget: Budget, norm: str, batch: int, rate: float, seed: int) -> Measured:
    """Sorting letters with one kind of norm. Scores are those of evaluation, where batch norm has the statistics it gathered;
    `gap` is how much worse its loss is there than with the statistics of the rows themselves, as in training."""
    model = small(Transformer, n_layer=2, vocab_size=SORTED.vocabulary, block_size=32, norm=norm)
    losses = train_on(model, SORTED, TrainArgs(budget.steps(800), rate=rate, batch=batch), seed)
    scores = held_out_scores(model, SORTED, seed) | {"longer": exact_match(model, LONGER.test(500, seed))}
    test = SORTED.test(500, seed)
    with torch.no_grad():
        in_training = float(summed_loss(model.train(), test)) / test.tokens
    return scores | {"gap": scores["loss"] - in_training, "curve": downsample(losses)}


def order_trial(budget: Budget, pre: bool, depth: int, warmup: int, rate: float, seed: int) -> Measured:
    """The next character of Python's source, norm before or after the sublayer; the loss is that of text held out."""
    norms = {"pre_norm": pre, "final_norm": pre, "scaled_init": False}
    model = small(GPT, n_layer=depth, vocab_size=characters()[1], block_size=ROW, **norms)
    args = TrainArgs(budget.steps(1000), rate=rate, warmup=round(warmup * min(1.0, budget.share)))
    losses = train(model, text_loss(model, 32, ROW, seed), args)
    return held_out(model, ROW, 200, seed) | {"curve": downsample(losses)}


def norms_trial(budget: Budget, part: str, seed: int, **settings: Any) -> Measured:
    """One training of either part."""
    return (kind_trial if part == "kind" else order_trial)(budget, seed=seed, **settings)


# ---- residuals


def residuals_trial(budget: Budget, depth: int, residual: bool, seed: int) -> Measured:
    """The gradient of each block before the first step, with and without norms, then a training with them."""
    found: Measured = {}
    for norm in ("none", "layer"):  # the last one is trained
        model = small(GPT, n_layer=depth, vocab_size=characters()[1], block_size=64, residual=residual, norm=norm)
        total, count = text_loss(model, 8, 64, seed)()
        (total / count).backward()
        layers = layers_of(model.named_parameters()).values()
        gradients = gradient_norms(layers, torch.get_default_device()).tolist()
        found |= {f"gradients, {norm}": gradients, f"ratio, {norm}": gradients[0] / max(gradients[-1], 1e-30)}
        model.zero_grad(set_to_none=True)
    losses = train(model, text_loss(model, 8, 64, seed), TrainArgs(budget.steps(800), rate=3e-3))
    return found | held_out(model, 64, 200, seed) | {"curve": downsample(losses)}


def gradient_lines(results: Results, depth: int) -> dict[str, Any]:
    """The gradient of each block before training, with and without residual connections and norms."""
    return {
        f"{name}, {told} norm": results.curves(f"gradients, {norm}", depth=depth, residual=residual)
        for residual, name in ((True, "with residual connections"), (False, "without"))
        for norm, told in (("layer", "layer"), ("none", "no"))
    }


# ---- scaling


def scaling_trial(budget: Budget, part: str, size: int, scaled: bool, seed: int, init: str = "") -> Measured:
    """Softmax of random queries and keys of unit variance, or a training, with and without dividing by √d_k."""
    if part == "products":
        q, k = torch.randn(500, 1, size), torch.randn(500, 10, size)
        scores = attention_scores(q, k, scaled=scaled)
        weights = masked_softmax(scores)
        slope = torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]
        return {
            "spread": float(scores.std()),
            "largest": float(weights.max(-1).values.mean()),
            "gradient": float(slope.norm(dim=(-2, -1)).mean()),
        }
    sizes = {"n_layer": 2, "n_head": 2, "head_size": size, "vocab_size": REVERSED.vocabulary, "block_size": 32}
    model = small(Transformer, **sizes, scaled_attention=scaled, init=init)
    losses = train_on(model, REVERSED, TrainArgs(budget.steps(700)), seed)
    accuracy = exact_match(model, REVERSED.test(seed=seed))
    return {"accuracy": accuracy, "curve": downsample(losses), "area": sum(losses) / len(losses)}
