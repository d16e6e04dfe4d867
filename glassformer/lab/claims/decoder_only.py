"""Is a decoder alone enough? A GPT on pairs beside an encoder-decoder, at equal parameters and at equal multiplications; a GPT
that classifies beside a BERT; and the rank of their attention."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.data.builtin.toys import QUESTIONS, in_context
from glassformer.lab.claims.lab import (
    Fit,
    Strings,
    as_one_text,
    dates,
    exact_match,
    padded,
    parameters,
    phrases,
    train,
    train_on,
)
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import Condition, exactly, larger, within
from glassformer.lab.claims.words import Words
from glassformer.models import BERT, GPT, Transformer
from glassformer.nn.taps import record
from glassformer.plots.panels import BarPanel, panels

ARMS = {
    "encoder-decoder": "encoder-decoder, 2+2 layers",
    "equal parameters": "GPT, as many parameters",
    "equal compute": "GPT, as many multiplications a pair",
}
WIDTH = 64


def plan(effort: Effort) -> list[Settings]:
    """Pairs, labels, and the cost of cross-attention in the paper's base model."""
    found = grid(effort, part=["pairs"], task=["dates", "phrases"], arm=list(ARMS))
    found += grid(effort, part=["labels"], arm=["GPT", "BERT"]) + grid(effort, part=["base"], seeds=False)
    found += grid(effort, part=["in-context"])
    return found


def make(arm: str, vocabulary: int) -> nn.Module:
    """Two blocks that read (12 d² numbers each) and two that write (16 d²) are about five of a GPT's (12 d²). A GPT of two
    blocks does as many multiplications: each token goes through two blocks, whichever side it is on."""
    settings: dict[str, Any] = {
        "n_head": 4,
        "n_embd": WIDTH,
        "vocab_size": vocabulary,
        "block_size": 192,
        "dropout": 0.0,
    }
    if arm == "encoder-decoder":
        return Transformer(n_layer=2, **settings)
    return GPT(n_layer=5 if arm == "equal parameters" else 2, **settings)


def rank_of(weights: Tensor) -> tuple[float, float]:
    """Of square attention matrices: the share of full rank that they have numerically, and the effective rank (Roy and
    Vetterli 2007: e to the entropy of the singular values) as a share of their size."""
    values = torch.linalg.svdvals(weights.double())
    full = (values > 1e-10 * values[..., :1]).sum(-1) / values.size(-1)
    shares = values / values.sum(-1, keepdim=True)
    effective = (-(shares * shares.clamp(min=1e-30).log()).sum(-1)).exp() / values.size(-1)
    return float(full.double().mean()), float(effective.mean())


@torch.no_grad()
def ranks(model: nn.Module, task: Strings) -> Measured:
    """Of the self-attention of trained models, on one sentence each: causal in a decoder, full in an encoder."""
    model.eval()
    found = []
    for pair in task.held_out[:4]:
        pairs = task.pairs([pair])
        pattern = "encoder.*.attention.weights" if isinstance(model, Transformer) else "decoder.*.attention.weights"
        with record(model, pattern) as seen:
            if isinstance(model, Transformer):
                model.encode(pairs.source)
            else:
                model(as_one_text(pairs)[0])
        found += [rank_of(weights) for weights in seen.values()]
    return {"rank": sum(r for r, _ in found) / len(found), "effective_rank": sum(e for _, e in found) / len(found)}


def classify(effort: Effort, arm: str, seed: int) -> Measured:
    """The language of a line, read off the first token (BERT) or the last (GPT)."""
    from glassformer.data.builtin.languages import language_lines

    lines = language_lines("train", effort.steps(8000)), language_lines("test", min(600, effort.steps(20_000)))
    names = sorted({label for part in lines for _, label in part})
    letters = {
        letter: 3 + i for i, letter in enumerate(sorted({c for part in lines for text, _ in part for c in text}))
    }
    settings: dict[str, Any] = {
        "n_layer": 2,
        "n_head": 4,
        "n_embd": WIDTH,
        "vocab_size": len(letters) + 3,
        "block_size": 160,
    }
    kind = GPT if arm == "GPT" else BERT
    model: Any = kind(dropout=0.0, head="classify", n_label=len(names), **settings)
    draw = torch.Generator().manual_seed(seed)

    def batch(some: list[tuple[str, str]]) -> tuple[Tensor, list[int], Tensor, Tensor]:
        rows = [[1, *(letters[c] for c in text[:150]), 2] for text, _ in some]
        lengths = [len(row) for row in rows]
        places = torch.tensor([n - 1 for n in lengths] if arm == "GPT" else [0] * len(rows))
        return padded(rows), lengths, places, torch.tensor([names.index(label) for _, label in some])

    def scores(some: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        ids, lengths, places, wanted = batch(some)
        return model(ids, lengths=lengths)[torch.arange(len(ids)), places], wanted

    def loss(_: int) -> tuple[Tensor, int]:
        some = [lines[0][i] for i in torch.randint(len(lines[0]), (32,), generator=draw).tolist()]
        found, wanted = scores(some)
        return nn.functional.cross_entropy(found, wanted, reduction="sum"), len(wanted)

    train(model, loss, Fit(effort.steps(400), muon=0.02))
    model.eval()
    with torch.no_grad():
        found, wanted = scores(lines[1])
    return {"accuracy": 100 * float((found.argmax(-1) == wanted).double().mean()), "parameters": parameters(model)}


def look_up(effort: Effort, seed: int) -> Measured:
    """A table that stands in the prompt alone, and six of its entries asked for: can a small GPT look them all up? Guessing
    among the entries shown is right once in their number to the sixth."""
    held = in_context("test", min(1000, effort.steps(20_000)))
    task = Strings(in_context("train", effort.steps(20_000)), held, str.split)
    model = GPT(
        n_layer=2, n_head=4, n_embd=WIDTH, vocab_size=task.vocabulary, block_size=64, dropout=0.0, positions="rotary"
    )
    train_on(model, task, Fit(effort.steps(500), rate=4e-3, warmup=100, muon=0.02), seed)
    shown = [prompt.count(",") + 1 for prompt, _ in held]
    return {
        "accuracy": exact_match(model, task.test()),
        "chance": 100 * sum(n**-QUESTIONS for n in shown) / len(shown),
    }


@torch.no_grad()
def written_a_second(model: Any, task: Strings) -> float:
    """Target tokens a second, 32 pairs at once, twelve tokens each, with a cache."""
    model.eval()
    pairs, new = task.pairs(task.held_out[:32]), 12
    began = time.perf_counter()
    if isinstance(model, GPT):
        state = model.start(32, pairs.source.size(1) + new + 1)
        token = model.step(pairs.source, state, pairs.source_lengths)[:, -1:].argmax(-1)
    else:
        from glassformer.nn.rows import as_rows

        state = model.start(as_rows(pairs.source, pairs.source_lengths), new + 1)
        token = torch.ones(32, 1, dtype=torch.long)
    for _ in range(new):
        token = model.step(token, state)[:, -1:].argmax(-1)
    return 32 * new / (time.perf_counter() - began)


def trial(effort: Effort, part: str, seed: int, task: str = "", arm: str = "") -> Measured:
    """One training, or the count."""
    if part == "base":
        with torch.device("meta"):
            base = Transformer.from_preset("transformer-base", vocab_size=37_000)
        cross = sum(p.numel() for n, p in base.named_parameters() if ".cross" in n)
        layers = sum(p.numel() for n, p in base.named_parameters() if n.startswith(("encoder.", "decoder.")))
        return {"share": 100 * cross / parameters(base), "share_of_layers": 100 * cross / layers}
    if part == "labels":
        return classify(effort, arm, seed)
    if part == "in-context":
        return look_up(effort, seed)
    count, held = effort.steps(20_000), min(1000, effort.steps(20_000))
    data = dates(count, held) if task == "dates" else phrases(count=count, test=held)
    model = make(arm, data.vocabulary)
    began = time.perf_counter()
    losses = train_on(model, data, Fit(effort.steps(800), rate=3e-3, batch=32, muon=0.02), seed)
    step = (time.perf_counter() - began) / len(losses)
    layers = 5 if arm == "equal parameters" else 2
    numbers = 2 * 4 * WIDTH * layers  # keys and values of a token, in bytes
    return {
        "accuracy": exact_match(model, data.test()),
        "loss": sum(losses[-20:]) / len(losses[-20:]),
        "step": step,
        "parameters": parameters(model),
        "written": written_a_second(model, data),
        "cache": numbers,
        **ranks(model, data),
    }


def conditions_of(results: Results) -> list[Condition]:
    """A decoder alone against the encoder-decoder on both tasks; GPT against BERT; the ranks; the prompt's own rule."""
    conditions = []
    for task in results.options("task", part="pairs"):
        own = {"part": "pairs", "task": task}
        for arm in list(ARMS)[1:]:
            conditions.append(
                within(
                    Words(
                        f"{task}: {ARMS[arm]}: within two points of the encoder-decoder",
                        f"{task}：{ARMS[arm]}：与编码器-解码器相差不到两个百分点",
                    ),
                    results.values("accuracy", arm=arm, **own),
                    results.values("accuracy", arm="encoder-decoder", **own),
                    slack=2.0,
                    unit="%",
                    learned=30.0,
                )
            )
        causal = min(results.values("rank", arm="equal parameters", **own))
        conditions.append(
            exactly(
                Words(
                    f"{task}: causal attention matrices have full numerical rank (no singular value below 1e-10 of the largest)",
                    f"{task}：因果注意力矩阵数值满秩（奇异值都不小于最大者的 1e-10）",
                ),
                causal > 0.999,
                f"{100 * causal:.1f}% of full rank",
            )
        )
    conditions.append(
        within(
            Words("labels: a GPT is within two points of a BERT", "分类：GPT 与 BERT 相差不到两个百分点"),
            results.values("accuracy", part="labels", arm="GPT"),
            results.values("accuracy", part="labels", arm="BERT"),
            slack=2.0,
            unit="%",
            learned=30.0,
        )
    )
    conditions.append(
        larger(
            Words("in-context: a rule that only the prompt has is looked up", "上下文学习：能查出只写在提示里的规则"),
            results.values("accuracy", part="in-context"),
            results.values("chance", part="in-context"),
            margin=20.0,
            unit="%",
        )
    )
    return conditions


def judge(results: Results) -> StudyResult:
    """Quality, size, speed, cache and rank of each; labels; few shots; what cross-attention costs the base model."""
    rows = tuple(
        (
            task,
            ARMS[arm],
            f"{results.mean('parameters', part='pairs', task=task, arm=arm):,.0f}",
            *(
                results.spoken(key, digits, part="pairs", task=task, arm=arm)
                for key, digits in (("accuracy", 1), ("loss", 3))
            ),
            f"{1000 * results.mean('step', part='pairs', task=task, arm=arm):.0f} ms",
            f"{results.mean('written', part='pairs', task=task, arm=arm):,.0f}",
            f"{results.mean('cache', part='pairs', task=task, arm=arm):,.0f}",
            *(results.spoken(key, 2, part="pairs", task=task, arm=arm) for key in ("rank", "effective_rank")),
        )
        for task in results.options("task", part="pairs")
        for arm in ARMS
    )
    columns = (
        "task",
        "model",
        "parameters",
        "exact match %",
        "loss",
        "a step",
        "tokens written/s",
        "cache, bytes a token",
        "rank / size",
        "effective rank / size",
    )
    labels = tuple((arm, results.spoken("accuracy", 1, part="labels", arm=arm)) for arm in ("GPT", "BERT"))
    few_shot = (results.spoken("accuracy", 1, part="in-context"), results.spoken("chance", 1, part="in-context"))
    share, of_layers = (results.mean(key, part="base") for key in ("share", "share_of_layers"))
    note = Words(
        f"Cross-attention is {of_layers:.1f}% of the layers of the paper's base model ({share:.1f}% of all its parameters with "
        "37,000 words). A causal attention matrix is lower triangular with a positive diagonal (softmax gives no zero), so its "
        "determinant, the product of that diagonal, is never exactly zero: in exact arithmetic full rank is a theorem, not a "
        "finding; numerically some of it is lost, and the effective rank says how much of it is used.",
        f"在论文的 base 模型中，交叉注意力占各层参数的 {of_layers:.1f}%（词表为 37,000 时占全部参数的 {share:.1f}%）。"
        "因果注意力矩阵是对角线为正的下三角矩阵（softmax 不会给出零），行列式等于对角线之积、不为零："
        "在精确算术中满秩是定理而非发现；数值上会丢失一些，有效秩才说明实际用了多少。",
    )
    tables = (
        Table("Dates by the character, phrases by the word (Chinese: by the character)", columns, rows),
        Table("The language of a line", ("model", "accuracy %"), labels),
        Table("A rule in the prompt alone", ("right, %", "by guessing"), (few_shot,)),
    )
    return StudyResult(tables, tuple(conditions_of(results)), (note,))


def draw(results: Results) -> Any:
    """Accuracy on pairs, accuracy on labels."""
    tasks = results.options("task", part="pairs")
    pairs = {
        name: [results.values("accuracy", part="pairs", task=t, arm=arm) for t in tasks] for arm, name in ARMS.items()
    }
    labels = {arm: [results.values("accuracy", part="labels", arm=arm)] for arm in ("GPT", "BERT")}
    ranks_found = {
        name: [results.values("effective_rank", part="pairs", task=t, arm=arm) for t in tasks]
        for arm, name in ARMS.items()
    }
    return panels(
        [
            BarPanel("pairs", "exact match %", tasks, pairs),
            BarPanel("labels", "accuracy %", ["languages"], labels),
            BarPanel("attention", "effective rank / size", tasks, ranks_found),
        ]
    )


STUDY = Study(
    name="decoder-only",
    claim=Words(
        "A decoder alone is enough: no encoder, no cross-attention.",
        "只用解码器就够了：不需要编码器，也不需要交叉注意力。",
    ),
    said_by="Liu et al. 2018; Radford et al. 2018; the field since GPT-3",
    minutes=11,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
    version=3,
)
