"""Is order lost without positions, and which scheme reads texts longer than those it was trained on?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from glassformer.lab.claims.lab import Fit, Letters, exact_match, train_on
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import Condition, exactly, larger
from glassformer.lab.claims.words import Words
from glassformer.models import GPT, Transformer
from glassformer.plots.panels import LinePanel, panels

LENGTHS = [(2, 16), (17, 20), (21, 24), (25, 32)]
SCHEMES = ["none", "sinusoidal", "learned", "rotary", "alibi"]
TASKS = ["copy", "reverse", "sort"]
BLOCK = 72  # room for the longest pair in one row
STRETCHED = {"rotary, interpolated": "linear", "rotary, NTK": "ntk"}


def plan(effort: Effort) -> list[Settings]:
    """Each scheme on each task; each in a decoder alone, copying; whether order can be told at all."""
    order = grid(effort, part=["order"], family=["encoder", "decoder"])
    tasks = effort.pick(["reverse"], TASKS)
    schemes = effort.pick(["none", "sinusoidal", "rotary"], SCHEMES)
    found = grid(effort, part=["length"], task=tasks, scheme=schemes)
    return order + found + grid(effort, part=["decoder alone"], task=["copy"], scheme=schemes)


def settings_of(scheme: str, words: int) -> dict[str, Any]:
    """The model all trials share."""
    return {
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 64,
        "vocab_size": words,
        "block_size": BLOCK,
        "dropout": 0.0,
        "positions": scheme,
    }


def order_seen(family: str) -> float:
    """How far apart the outputs of the last token are when the tokens before it change places; untrained, no positions."""
    model: Any
    ids = torch.randint(3, 27, (8, 10))
    shuffled = torch.cat([ids[:, torch.randperm(9)], ids[:, -1:]], 1)
    with torch.no_grad():
        if family == "encoder":
            model = Transformer(**settings_of("none", 27)).eval()
            return float((model.encode(ids)[:, -1] - model.encode(shuffled)[:, -1]).abs().max())
        model = GPT(**settings_of("none", 27)).eval()
        return float((model.hidden(ids)[:, -1] - model.hidden(shuffled)[:, -1]).abs().max())


def by_length(model: Any, task: str) -> dict[str, float]:
    """Exact match at the trained lengths and beyond."""
    return {f"{low}-{high}": exact_match(model, Letters(task, low, high).test(300)) for low, high in LENGTHS}


def trial(effort: Effort, part: str, seed: int, task: str = "", scheme: str = "", family: str = "") -> Measured:
    """One look at order, or one training with a test at several lengths."""
    if part == "order":
        return {"difference": order_seen(family)}
    letters = Letters(task, *LENGTHS[0])
    settings = settings_of(scheme, letters.vocabulary)
    model: Any = GPT(**settings) if part == "decoder alone" else Transformer(**settings)
    train_on(model, letters, Fit(effort.steps(600), batch=32, muon=0.02), seed)
    found = by_length(model, task)
    if scheme == "rotary":
        for name, scaling in STRETCHED.items():
            other = type(model)(replace(model.config, rotary_scaling=scaling, rotary_factor=2.0))
            other.load_state_dict(model.state_dict())
            found |= {f"{name} {length}": value for length, value in by_length(other, task).items()}
    return found


def jobs_of(results: Results) -> list[tuple[str, str]]:
    """What was trained, as (part, task): each task by an encoder-decoder, then by a decoder alone."""
    return [(part, task) for part in ("length", "decoder alone") for task in results.options("task", part=part)]


def conditions_of(results: Results) -> list[Condition]:
    """What the texts say of positions, one by one."""
    encoder = max(results.values("difference", part="order", family="encoder"))
    decoder = min(results.values("difference", part="order", family="decoder"))
    trained = "-".join(map(str, LENGTHS[0]))
    beyond = "-".join(map(str, LENGTHS[1]))
    found = [
        exactly(
            Words("an encoder without positions cannot tell order", "没有位置信息的编码器分不清顺序"),
            encoder < 1e-4,
            f"largest difference {encoder:.1e}",
        ),
        exactly(
            Words("a causal decoder without positions still can", "没有位置信息的因果解码器仍能分辨一些顺序"),
            decoder > 1e-3,
            f"smallest difference {decoder:.1e}",
        ),
    ]
    for part, task in jobs_of(results):
        own = {"part": part, "task": task}
        name, named = (f"{task}, decoder alone", f"{task}，仅解码器") if part == "decoder alone" else (task, task)
        if part == "length" and task != "sort":  # sorting needs no order of its source
            needed = Words(f"{task}: positions are needed", f"{task}：需要位置信息")
            with_them, without = (results.values(trained, scheme=one, **own) for one in ("sinusoidal", "none"))
            found.append(larger(needed, with_them, without, margin=10.0, unit="%", learned=30.0))
        if "alibi" in results.options("scheme", **own):
            text = Words(
                f"{name}, a little longer than trained: ALiBi is better than sinusoids",
                f"{named}，略长于训练：ALiBi 优于正弦",
            )
            alibi, sinusoids = (results.values(beyond, scheme=one, **own) for one in ("alibi", "sinusoidal"))
            found.append(larger(text, alibi, sinusoids, margin=5.0, unit="%", learned=10.0))
        for stretched, zh in (("rotary, interpolated", "插值旋转"), ("rotary, NTK", "NTK 缩放的旋转")):
            text = Words(
                f"{name}, a little longer: {stretched}, is better than rotary as trained",
                f"{named}，略长于训练：{zh}优于原旋转",
            )
            after = results.values(f"{stretched} {beyond}", scheme="rotary", **own)
            before = results.values(beyond, scheme="rotary", **own)
            found.append(larger(text, after, before, margin=5.0, unit="%", learned=10.0))
    return found


def judge(results: Results) -> StudyResult:
    """Accuracy by length for every scheme."""
    lengths = [f"{low}-{high}" for low, high in LENGTHS]
    rows = []
    for part, task in jobs_of(results):
        name = f"{task}, decoder alone" if part == "decoder alone" else task
        for scheme in results.options("scheme", part=part):
            own = {"part": part, "task": task, "scheme": scheme}
            rows.append((name, scheme, *(results.spoken(length, 1, **own) for length in lengths)))
            if scheme == "rotary":
                rows += [
                    (name, stretched, *(results.spoken(f"{stretched} {length}", 1, **own) for length in lengths))
                    for stretched in STRETCHED
                ]
    table = Table(
        "Exact match % by length; trained on the first",
        ("task", "positions", *(f"{length} letters" for length in lengths)),
        tuple(rows),
    )
    note = Words(
        "Interpolation and NTK scaling are put on after training, without a step of fine-tuning.",
        "插值与 NTK 缩放在训练后直接加上，未做微调。",
    )
    return StudyResult((table,), tuple(conditions_of(results)), (note,))


def draw(results: Results) -> Any:
    """Accuracy over length, a panel a task and family."""
    lengths, places = [f"{low}-{high}" for low, high in LENGTHS], [high for _, high in LENGTHS]
    parts = []
    for part, task in jobs_of(results):
        lines = {}
        for scheme in results.options("scheme", part=part):
            found = [m for _, m in results.where(part=part, task=task, scheme=scheme)]
            lines[scheme] = (places, [[m[length] for length in lengths] for m in found])
            if scheme == "rotary":
                lines |= {
                    name: (places, [[m[f"{name} {length}"] for length in lengths] for m in found]) for name in STRETCHED
                }
        name = f"{task}, decoder alone" if part == "decoder alone" else task
        parts.append(LinePanel(name, "letters, at most", "exact match %", lines, bottom=0))
    return panels(parts, across=2)


STUDY = Study(
    name="positions",
    claim=Words(
        "Without positions order is lost; relative schemes (rotary, ALiBi) and interpolation read longer texts than they "
        "were trained on.",
        "没有位置编码就丢失顺序；相对位置方案（旋转、ALiBi）与插值能读比训练更长的文本。",
    ),
    said_by="Vaswani et al. 2017, 3.5; Press et al. 2022; Su et al. 2021; Chen et al. 2023",
    minutes=13,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
    version=2,
)
