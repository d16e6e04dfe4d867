"""Is an RNN serial and forgetful, and what did attention add to it? A plain RNN and LSTMs without and with attention beside a
Transformer of as many parameters."""

from __future__ import annotations

import time
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.models import Transformer
from glassformer.models.costs import shapes_alone
from glassformer.nn.attention import attention
from glassformer.nn.loss import IGNORE
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.timing import in_turns
from glassformer_lab.claims.training import (
    Letters,
    Strings,
    TrainArgs,
    answer_scores,
    dates,
    held_out_scores,
    parameters,
    small,
    summed_loss,
    train_on,
)

NAMES = {"rnn": "RNN", "lstm": "LSTM", "lstm+attention": "LSTM with attention", "transformer": "Transformer"}
ENOUGH = 90.0  # percent of tokens: the score whose steps and seconds are counted


class RecurrentTranslator(nn.Module):
    """The machine that attention replaced, with the calls of our Transformer, so that the same trials train both.

    LSTM encoder (both ways) and LSTM decoder, or with `plain` Elman's RNN in their place. With `attends`, each step of the
    decoder looks over the encoder's outputs (Luong et al. 2015); without, all it knows of the source is the encoder's last
    state (Sutskever et al. 2014).

    >>> model = RecurrentTranslator(30, 32, attends=True)
    >>> model(torch.randint(30, (2, 7)), torch.randint(30, (2, 5)), [7, 4], [5, 5]).shape
    torch.Size([2, 5, 30])
    """

    def __init__(self, vocab_size: int, width: int, *, attends: bool, plain: bool = False) -> None:
        super().__init__()
        self.attends, self.plain = attends, plain
        kind = nn.RNN if plain else nn.LSTM
        self.embedding = nn.Embedding(vocab_size, width)
        self.encoder = kind(width, width // 2, batch_first=True, bidirectional=True)
        self.bridge_h, self.bridge_c = nn.Linear(width, width), nn.Identity() if plain else nn.Linear(width, width)
        self.decoder = kind(width, width, batch_first=True)
        self.query = nn.Linear(width, width, bias=False)
        self.join = nn.Linear(2 * width if attends else width, width)

    def encode(
        self, source: Int[Tensor, "B S"], lengths: list[int]
    ) -> tuple[Float[Tensor, "B S C"], Tensor | tuple[Tensor, Tensor]]:
        """Outputs at every source token, and the state the decoder begins with."""
        packed = pack_padded_sequence(
            self.embedding(source), torch.tensor(lengths, device="cpu"), batch_first=True, enforce_sorted=False
        )
        out, state = self.encoder(packed)
        memory = pad_packed_sequence(out, batch_first=True, total_length=source.size(1))[0]

        def joined(state: Tensor) -> Tensor:
            return state.unflatten(0, (1, 2)).transpose(1, 2).flatten(2)

        if self.plain:
            return memory, self.bridge_h(joined(state)).tanh().contiguous()
        h, c = state
        return memory, (self.bridge_h(joined(h)).tanh().contiguous(), self.bridge_c(joined(c)).contiguous())

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: list[int] | None = None,
        target_lengths: list[int] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """The scores of what may follow each target token."""
        lengths = source_lengths or [source.size(1)] * source.size(0)
        memory, state = self.encode(source, lengths)
        out = self.decoder(self.embedding(target), state)[0]
        if self.attends:
            real = torch.arange(source.size(1))[None] < torch.tensor(lengths)[:, None]
            out = torch.cat([out, attention(self.query(out), memory, memory, real[:, None])], -1)
        return F.linear(self.join(out).tanh(), self.embedding.weight)

    def loss(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        *,
        source_lengths: list[int] | None = None,
        target_lengths: list[int] | None = None,
    ) -> Float[Tensor, ""]:
        """Summed over the positions that have a label."""
        logits = self(source, target, source_lengths, target_lengths)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")


def recurrent(arm: str, vocabulary: int, width: int) -> RecurrentTranslator:
    """The recurrent model of an arm."""
    return RecurrentTranslator(vocabulary, width, attends=arm == "lstm+attention", plain=arm == "rnn")


@cache
def width_of(arm: str, vocabulary: int, wanted: int) -> int:
    """The even width at which a recurrent model comes nearest to so many parameters."""
    with shapes_alone():
        return min(range(32, 512, 2), key=lambda width: abs(parameters(recurrent(arm, vocabulary, width)) - wanted))


def make(arm: str, vocabulary: int) -> nn.Module:
    """The model of an arm, all with as many parameters as the Transformer, within a hundredth or so."""
    model = small(Transformer, n_layer=2, n_hidden=256, vocab_size=vocabulary, block_size=272)
    return model if arm == "transformer" else recurrent(arm, vocabulary, width_of(arm, vocabulary, parameters(model)))


def gradient_over_time(model: nn.Module, length: int, seed: int) -> list[float]:
    """How much the score of the first target token depends on each source token: the size of that gradient."""
    task = Letters("copy", length, length)
    pairs = task.batch(16, torch.Generator().manual_seed(seed))
    kept: list[torch.Tensor] = []
    table = model.embedding if isinstance(model, RecurrentTranslator) else model.source_table  # type: ignore[union-attr]

    def keep(_: nn.Module, __: object, out: torch.Tensor) -> torch.Tensor:
        if not kept:
            out.retain_grad()
            kept.append(out)
        return out

    handle = table.register_forward_hook(keep)  # type: ignore[union-attr, arg-type]
    try:
        scores = model(pairs.source, pairs.target, pairs.source_lengths, pairs.target_lengths)[:, 0]
        scores.logsumexp(-1).sum().backward()
    finally:
        handle.remove()
    assert kept[0].grad is not None
    return kept[0].grad.norm(dim=-1).mean(0).tolist()  # type: ignore[no-any-return]


def serial(length: int) -> Measured:
    """The time of a step of the Transformer and of the LSTM with attention on rows of so many letters, in turns."""
    task = Letters("copy", length, length)
    pairs = task.batch(32, torch.Generator().manual_seed(7))

    def step(model: nn.Module) -> None:
        summed_loss(model, pairs).backward()

    one, other = (partial(step, make(arm, task.vocabulary)) for arm in ("transformer", "lstm+attention"))
    ours, theirs = in_turns(one, other)
    return {"ours": ours, "theirs": theirs}


def trial(budget: Budget, task: str, length: int, seed: int, arm: str = "", rate: float = 2e-3) -> Measured:
    """Train and count right tokens, with the steps and seconds until nine in ten are; before that, see how far back the gradient
    reaches."""
    if task == "serial":
        return serial(length)
    data: Letters | Strings = (
        Letters("copy", max(2, length // 2), length) if task == "copy" else dates(budget.steps(20_000))
    )
    model = make(arm, data.vocabulary)
    found: Measured = {"parameters": parameters(model)}
    if task == "copy":
        found["reach"] = gradient_over_time(model, length, seed)
        model.zero_grad()
    args = TrainArgs(budget.steps(1000), rate=rate)
    looked, spent, began = data.val(100, seed), 0.0, time.perf_counter()

    def watch(step: int) -> None:
        nonlocal spent, began
        if "steps_needed" not in found and step % max(1, args.steps // 20) == 0:
            spent += time.perf_counter() - began
            if answer_scores(model, looked)["tokens"] >= ENOUGH:
                found.update(steps_needed=step, seconds_needed=spent)
            began = time.perf_counter()

    train_on(model, data, args, seed, watch=watch)
    return found | held_out_scores(model, data, seed, 300)


def reach_lines(results: Results, **case: Any) -> dict[str, Any]:
    """The gradient of the first answer to each source token, as a share of the largest."""
    rate = results.options("rate", **case)[0]  # before training, so any
    lines = {name: results.curves("reach", arm=arm, rate=rate, **case) for arm, name in NAMES.items()}
    return {name: (xs, [[v / max(own) for v in own] for own in seeds]) for name, (xs, seeds) in lines.items()}


def rows(results: Results) -> list[tuple[str, ...]]:
    """Every arm at the rate that was best for it."""
    found: list[tuple[str, ...]] = []
    for case in [one for task in ("copy", "dates") for one in results.cases(["length", "arm"], task=task)]:
        own = {**case, "task": "dates" if case["length"] == 0 else "copy"}
        own["rate"] = results.best("rate", **own)
        needed = results.values("steps_needed", **own)
        seeds = len(results.where(**own))
        steps, seconds = (
            f"{results.mean(key, **own):.{digits}f}" if needed else "–"
            for key, digits in (("steps_needed", 0), ("seconds_needed", 1))
        )
        what = f"{own['task']} {case['length'] or ''}".strip(), NAMES[case["arm"]]
        sizes = f"{results.mean('parameters', **own):,.0f}", f"{own['rate']:g}"
        scores = results.mean_std("tokens", **own), results.mean_std("accuracy", **own)
        found.append((*what, *sizes, *scores, f"{len(needed)} of {seeds}", steps, seconds))
    return found
