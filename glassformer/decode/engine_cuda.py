"""Decoding on the device alone: the whole step, captured once as a CUDA graph and replayed.

A small model's step is a few hundred kernels of a few microseconds, and to launch them one by one, look at the result and
decide in Python what to do takes longer than the kernels. Here the step is everything: embedding, layers, scores, the best
candidates, the beam's choice, what has ended and whether a sentence is over. It is ordinary tensor code on memory that never
moves, without a look at a value or a shape that depends on one; so it can be recorded once for every bucket of shapes, and
the host only asks every few steps who is done. Without a CUDA device the same code runs step by step: that is how it is
tested, not how anyone would use it.

  Room      keys and values in columns, one for each beam of a sentence at each step, and a table of shade that says which
            columns are a hypothesis's own past (as in engine.py: nothing but the shade is reordered). The source's keys and
            values are there once a sentence. Attention reads the first so many columns, a multiple of a bucket.
  Lines     every row for itself: greedy or drawn, with temperature, top-k, top-p and min-p (search.py is the reference).
  Beams     the beam of beam.py with all its length and stop rules: sums, the pool of what has ended, what was cut.
  Engine    weights, rooms, graphs; sentences that are over leave at a poll, when the others fit a smaller bucket.

What a graph cannot do (repetition penalties, banned sequences, forced tokens, glossary terms, stop strings, diverse beams,
traces, strict mode, a text that outgrows learned positions) is left to the plain model: `suits` says so.
"""

from __future__ import annotations

import copy
import gc
import math
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode import choose
from glassformer.decode.constraints import Controls, Demands
from glassformer.decode.engine import FastAttention, FastLayer, Linear, Look, make_norm
from glassformer.decode.lengths import length_rule
from glassformer.decode.results import Ending, Hypothesis
from glassformer.decode.search import Task, shape
from glassformer.nn.feedforward import ACTIVATIONS
from glassformer.nn.positions import Rotation
from glassformer.nn.rows import Rows

POLL = 4  # steps between two looks at who is done
BUSY = 0.5  # of the free memory, so much may be set aside for one room
ROOMS_KEPT = 4
SENTENCES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def at_least(number: int) -> int:
    """The bucket of so many sentences."""
    return next((size for size in SENTENCES if size >= number), -(-number // 1024) * 1024)


def rounded(number: int, *, least: int = 8) -> int:
    """The bucket of a width: steps of an eighth to a quarter of it, so that there are few and little is wasted."""
    step = least
    while number > 8 * step:
        step *= 2
    return -(-number // step) * step


def suits(model: ModelConfig, tasks: Sequence[Task], config: DecodeConfig, *, trace: bool, cached: bool) -> bool:
    """Can a graph answer this exactly as the plain search would?"""
    if trace or not cached or config.strict or config.groups > 1:
        return False
    if config.repetition_penalty != 1 or config.no_repeat_ngram:
        return False
    nothing, seen = Demands(), None
    for task in tasks:
        if task.demands is not seen and task.demands != nothing:
            return False
        seen = task.demands
    if model.family == "gpt" and model.positions == "learned":
        # What outgrows its positions is read in again from the middle.
        return all(len(task.prompt) + task.limit <= model.block_size + 1 for task in tasks)
    return True


def plain_linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None) -> Linear:
    kept, added = weight.detach().contiguous(), None if bias is None else bias.detach()
    return lambda x: F.linear(x, kept, added)


@dataclass
class Room:
    """Memory for so many sentences of `beams` rows each. Every tensor but `column` and `own` begins with the sentence."""

    keys: list[Float[Tensor, "N Hk S D"]]
    values: list[Float[Tensor, "N Hk S Dv"]]
    memories: list[tuple[Tensor, Tensor]]
    source_shade: Float[Tensor, "N 1 1 W"]
    shade: Float[Tensor, "N K S"]
    places: Int[Tensor, "N S"]  # the position of each column
    lengths: Int[Tensor, "N"]  # the position of the next token
    tokens: Int[Tensor, "N K"]  # what the next step reads
    column: Int[Tensor, ""]  # the first that the next step fills
    own: Float[Tensor, "K K"]  # of the columns of one step, each beam sees its own
    tables: dict[str, Tensor] = field(default_factory=dict)  # of positions; here so that no graph outlives them

    @property
    def beams(self) -> int:
        return self.own.size(0)

    def begin(self, sentences: int, first_token: int) -> None:
        self.shade[:sentences].fill_(-math.inf)
        self.lengths[:sentences].zero_()
        self.tokens[:sentences].fill_(first_token)
        self.column.zero_()

    def keep(self, which: Int[Tensor, "N2"], filled: int, width: int) -> None:
        """Only these sentences go on, in the first rows."""
        left = which.size(0)
        wide = [(t, filled) for t in (*self.keys, *self.values)]
        wide += [(t, width) for pair in self.memories for t in pair]
        for tensor, columns in wide:
            tensor[:left, :, :columns] = tensor[:, :, :columns].index_select(0, which)
        for tensor in (self.source_shade, self.shade, self.places, self.lengths, self.tokens):
            tensor[:left] = tensor.index_select(0, which)


class StaticDecoder:
    """The layers of a Transformer's decoder or a GPT, on a room."""

    def __init__(self, model: Any) -> None:
        self.config: ModelConfig = model.config
        self.groups = self.config.n_head // self.config.kv_heads
        self.table: Tensor = (
            model.target_table if model.decoder.layers[0].has_cross else model.embedding
        ).weight.detach()
        self.factor = (model.target_table if model.decoder.layers[0].has_cross else model.embedding).factor
        self.positions = model.target_positions if hasattr(model, "target_positions") else model.positions
        self.rotary = model.rotary
        self.slopes = model.slopes.table if self.config.positions == "alibi" else None
        self.embedding_norm = make_norm(model.target_norm if hasattr(model, "target_norm") else model.embedding_norm)
        self.layers = [FastLayer(layer, plain_linear) for layer in model.decoder.layers]
        self.norm = make_norm(model.decoder.norm)
        self.output = plain_linear(model.output_weight, None)

    def room(self, sentences: int, beams: int, columns: int, longest: int, source: int) -> Room:
        """`longest`: no text will have more tokens. `source`: so wide is the source, 0 where there is none."""
        c, like = self.config, self.table
        device = like.device

        def heads(columns: int, size: int) -> Tensor:
            return like.new_zeros(sentences, c.kv_heads, columns, size)

        own = like.new_full((beams, beams), -math.inf).fill_diagonal_(0.0)
        room = Room(
            [heads(columns, c.key_size) for _ in self.layers],
            [heads(columns, c.val_size) for _ in self.layers],
            [(heads(source, c.key_size), heads(source, c.val_size)) for _ in self.layers if source],
            like.new_zeros(sentences, 1, 1, source),
            like.new_full((sentences, beams, columns), -math.inf),
            torch.zeros(sentences, columns, dtype=torch.long, device=device),
            torch.zeros(sentences, dtype=torch.long, device=device),
            torch.zeros(sentences, beams, dtype=torch.long, device=device),
            torch.zeros((), dtype=torch.long, device=device),
            own,
        )
        if self.positions is not None:
            if c.positions != "learned":
                self.positions.grow(longest)
            room.tables["positions"] = (
                self.positions.weight.detach() if c.positions == "learned" else self.positions.table
            )
        if self.rotary is not None:
            self.rotary.grow(longest)
            room.tables["angles"] = self.rotary.table
        return room

    def look(self, room: Room, sentences: int, reach: int, columns: Int[Tensor, "K"]) -> Look:
        """What the new tokens may see, themselves included; the columns they fill are entered as theirs."""
        position = room.lengths[:sentences]
        rotation = None
        if "angles" in room.tables:
            cos, sin = F.embedding(position, room.tables["angles"])[:, None, None].chunk(2, dim=-1)
            rotation = Rotation(cos, sin)
        room.shade[:sentences].index_copy_(2, columns, room.own.expand(sentences, -1, -1))
        shade = room.shade[:sentences, None, :, :reach]
        if self.config.window is not None or self.slopes is not None:
            room.places[:sentences].index_copy_(1, columns, position[:, None].expand(-1, columns.size(0)))
            distance = (position[:, None] - room.places[:sentences, :reach])[:, None, None]
            if self.config.window is not None:
                shade = shade.masked_fill(distance >= self.config.window, -math.inf)
            if self.slopes is not None:
                shade = shade - self.slopes[:, None, None] * distance.to(shade.dtype)
        return Look(shade, False, rotation).for_groups(self.groups, room.beams, shade.dtype)

    def embed(self, room: Room, sentences: int) -> Float[Tensor, "R C"]:
        x = F.embedding(room.tokens[:sentences], self.table)
        if self.factor != 1.0:
            x = x * self.factor
        if "positions" in room.tables:
            x = x + F.embedding(room.lengths[:sentences], room.tables["positions"])[:, None]
        return self.embedding_norm(x.flatten(0, 1))

    def __call__(self, room: Room, sentences: int, reach: int, width: int) -> Float[Tensor, "R V"]:
        """One token more in every row: what it is from `room.tokens`, the scores of what may follow returned."""
        columns = room.column + torch.arange(room.beams, device=room.column.device)
        look = self.look(room, sentences, reach, columns)
        source = Look(room.source_shade[:sentences, :, :, :width])

        def attend(i: int, attention: FastAttention, qkv: Tensor) -> Tensor:
            q, k, v = qkv.split(attention.widths, dim=-1)
            keys, values = room.keys[i][:sentences], room.values[i][:sentences]
            keys.index_copy_(2, columns, attention.keys(k, sentences, look.rotation))
            values.index_copy_(2, columns, attention.values(v, sentences))
            q = attention.queries(q, sentences, look.rotation)
            return attention.attend(q, keys[:, :, :reach], values[:, :, :reach], look)

        def recall(i: int, attention: FastAttention, q: Tensor) -> Tensor:
            k, v = (t[:sentences, :, :width] for t in room.memories[i])
            return attention.attend(attention.queries(q, sentences, None), k, v, source)

        x = self.embed(room, sentences)
        for i, layer in enumerate(self.layers):
            x = layer(x, i, attend, recall)
        room.lengths[:sentences] += 1
        room.column += room.beams
        return self.output(self.norm(x))


class KernelDecoder(StaticDecoder):
    """The same on the kernels of kernels.py, where the model is one they were made for."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        from glassformer.decode import kernels

        self.kernels = kernels
        self.activation = self.config.activation
        self.activate = ACTIVATIONS[self.activation]
        self.parts: list[dict[str, Any]] = []
        for layer in model.decoder.layers:
            a, mlp = layer.attention, layer.mlp
            part = {
                "qkv": joined(a.query, a.key, a.value),
                "out": joined(a.out),
                "up": joined(mlp.up),
                "down": joined(mlp.down),
                "attention_norm": self.norm_of(layer.attention_norm),
                "mlp_norm": self.norm_of(layer.mlp_norm),
                "scale": None if a.scaled else 1.0,
            }
            if layer.has_cross:
                part |= {
                    "cross_query": joined(layer.cross.query),
                    "cross_out": joined(layer.cross.out),
                    "cross_norm": self.norm_of(layer.cross_norm),
                    "cross_scale": None if layer.cross.scaled else 1.0,
                }
            self.parts.append(part)
        self.last_norm = self.norm_of(model.decoder.norm)
        self.words = model.output_weight.detach().contiguous()
        # Rows of scores that begin at round places: an odd number of words costs the library its fast kernels.
        self.padded = F.pad(self.words, (0, 0, 0, -self.words.size(0) % 64))

    @staticmethod
    def suits(config: ModelConfig) -> bool:
        return (
            config.residual
            and config.norm in ("layer", "rms")
            and config.positions in ("sinusoidal", "learned", "none")
            and config.window is None
            and config.activation in ("relu", "gelu", "gelu_tanh", "relu2")
            and config.kv_heads == config.n_head
            and not (config.qk_norm or config.embedding_norm)
            and max(config.n_embd, config.hidden) <= 8192
        )

    def norm_of(self, norm: Any) -> tuple[str, Tensor, Tensor | None, float] | None:
        if norm is None:
            return None
        bias = getattr(norm, "bias", None)
        return self.config.norm, norm.weight.detach(), None if bias is None else bias.detach(), norm.eps

    def __call__(self, room: Room, sentences: int, reach: int, width: int) -> Float[Tensor, "R V"]:
        few = room.beams == 1 and sentences <= self.kernels.FEW_ROWS and self.config.pre_norm
        if few and self.config.family == "gpt":
            return self.of_few_rows(room, sentences, reach)
        return self.of_many_rows(room, sentences, reach, width)

    def of_few_rows(self, room: Room, sentences: int, reach: int) -> Float[Tensor, "R V"]:
        """The weights are what is read, so whatever is done to a row on the way is done inside the products."""
        kernels = self.kernels
        shade = room.shade[:sentences, :, None]
        positions = room.tables.get("positions")
        x = kernels.embed(
            room.tokens, room.lengths, room.column, self.table, positions, room.shade, self.factor, sentences
        )
        for i, part in enumerate(self.parts):
            qkv = kernels.product(x, *part["qkv"], norm=part["attention_norm"])
            found = kernels.attend_columns(
                qkv,
                room.keys[i][:sentences],
                room.values[i][:sentences],
                shade,
                room.column,
                reach,
                heads=self.config.n_head,
                scale=part["scale"],
            )
            x = kernels.product(found, *part["out"], residual=x)
            hidden = kernels.product(x, *part["up"], norm=part["mlp_norm"], activation=self.activation)
            x = kernels.product(hidden, *part["down"], residual=x)
        room.column += 1
        return kernels.product(x, self.words, norm=self.last_norm, dtype=torch.float32)

    def of_many_rows(self, room: Room, sentences: int, reach: int, width: int) -> Float[Tensor, "R V"]:
        """Products by the device's library; between them, sums with their norms, and attention for all beams at once."""
        kernels, beams, pre_norm = self.kernels, room.beams, self.config.pre_norm
        columns = room.column + torch.arange(beams, device=room.column.device)
        room.shade[:sentences].index_copy_(2, columns, room.own.expand(sentences, -1, -1))

        def self_attention(i: int, part: dict[str, Any]) -> Callable[[Tensor], Tensor]:
            keys, values = room.keys[i][:sentences], room.values[i][:sentences]

            def work(y: Tensor) -> Tensor:
                qkv = F.linear(y, *part["qkv"])
                if beams == 1:
                    shade = room.shade[:sentences, :, None]
                    found = kernels.attend_columns(
                        qkv, keys, values, shade, room.column, reach, heads=self.config.n_head, scale=part["scale"]
                    )
                else:
                    found = kernels.attend_beams(
                        qkv,
                        keys,
                        values,
                        room.shade[:sentences],
                        reach,
                        beams=beams,
                        scale=part["scale"],
                        column=room.column,
                    )
                return F.linear(found, *part["out"])

            return work

        def cross_attention(i: int, part: dict[str, Any]) -> Callable[[Tensor], Tensor]:
            keys, values = (t[:sentences] for t in room.memories[i])
            shade = room.source_shade[:sentences, 0]

            def work(y: Tensor) -> Tensor:
                q = F.linear(y, *part["cross_query"])
                scale = part["cross_scale"]
                found = kernels.attend_beams(q, keys, values, shade, width, beams=beams, scale=scale)
                return F.linear(found, *part["cross_out"])

            return work

        def mlp(part: dict[str, Any]) -> Callable[[Tensor], Tensor]:
            return lambda y: F.linear(self.activate(F.linear(y, *part["up"])), *part["down"])

        steps: list[tuple[Any, Callable[[Tensor], Tensor]]] = []
        for i, part in enumerate(self.parts):
            steps.append((part["attention_norm"], self_attention(i, part)))
            if "cross_query" in part:
                steps.append((part["cross_norm"], cross_attention(i, part)))
            steps.append((part["mlp_norm"], mlp(part)))

        x = self.embed(room, sentences)
        if pre_norm:
            norms = [*(norm for norm, _ in steps[1:]), self.last_norm]
            y = kernels.add_norm(x, None, steps[0][0], keep=False)[1]
            for (_, work), norm in zip(steps, norms, strict=True):
                x, y = kernels.add_norm(x, work(y), norm, keep=True)
        else:
            for norm, work in steps:
                x = kernels.add_norm(x, work(x), norm, keep=False)[1]
            y = x if self.last_norm is None else kernels.add_norm(x, None, self.last_norm, keep=False)[1]
        room.lengths[:sentences] += 1
        room.column += beams
        return F.linear(y, self.padded)[:, : self.words.size(0)]


def joined(*parts: Any) -> tuple[Tensor, Tensor | None]:
    weight = torch.cat([part.weight.detach() for part in parts]).contiguous()
    return weight, None if parts[0].bias is None else torch.cat([part.bias.detach() for part in parts])


# The boards: what a search knows, one row a sentence, and its step.


class Board(ABC):
    """What both searches share. `minimum` and `limit` are each sentence's own; `written` counts steps, for all alike."""

    def __init__(
        self, sentences: int, longest: int, config: DecodeConfig, controls: Controls, like: Tensor, *, rows: int
    ) -> None:
        device = like.device
        self.config = config
        self.eos = -1 if controls.eos is None else controls.eos
        unknown = () if config.allow_unknown or controls.unknown is None else (controls.unknown,)
        never = sorted({*controls.never, *unknown})
        self.never = torch.tensor(never, dtype=torch.long, device=device)
        self.is_never = torch.zeros(like.size(0), dtype=torch.int8, device=device).index_fill_(0, self.never, 1)
        self.longest = longest
        self.dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.written = torch.zeros((), dtype=torch.long, device=device)
        self.minimum = torch.zeros(sentences, dtype=torch.long, device=device)
        self.limit = torch.ones(sentences, dtype=torch.long, device=device)
        self.kernels: Any = None  # kernels.py, where it can be used
        self.over = torch.ones(sentences, dtype=torch.bool, device=device)
        self.ids = torch.zeros(sentences, rows, longest, dtype=torch.int32, device=device)
        self.logprobs = torch.zeros(sentences, rows, longest, dtype=self.dtype, device=device)

    def sentence_tensors(self) -> list[Tensor]:
        return [self.minimum, self.limit, self.over, self.ids, self.logprobs]

    def begin(self, sentences: int, tasks: Sequence[Task]) -> None:
        """Rows behind the tasks are over before they begin."""
        filler = sentences - len(tasks)

        def column(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long).to(self.limit.device, non_blocking=True)

        self.written.zero_()
        self.minimum[:sentences] = column([task.minimum for task in tasks] + [0] * filler)
        self.limit[:sentences] = column([task.limit for task in tasks] + [1] * filler)
        self.over[: len(tasks)] = False
        self.over[len(tasks) : sentences] = True

    def keep(self, which: Int[Tensor, "N2"]) -> None:
        left = which.size(0)
        for tensor in self.sentence_tensors():
            tensor[:left] = tensor.index_select(0, which)

    def scores(self, logits: Float[Tensor, "R V"], sentences: int) -> Float[Tensor, "R V"]:
        """Log-probabilities; -inf where a token may not be written now."""
        scores = logits.log_softmax(-1, dtype=self.dtype)
        if self.never.numel():
            scores.index_fill_(1, self.never, -math.inf)
        if self.eos >= 0:
            early = (self.written < self.minimum[:sentences])[:, None].expand(-1, scores.size(0) // sentences)
            column = scores[:, self.eos]
            column.copy_(column.masked_fill(early.reshape(-1), -math.inf))
        return scores

    @abstractmethod
    def step(self, logits: Float[Tensor, "R V"], room: Room, sentences: int) -> None:
        """Choose by the scores of what may follow: what is written, what has ended, what the next step reads."""

    @abstractmethod
    def harvest(self, sentences: int) -> Callable[[int], list[Hypothesis]]:
        """Copies the first rows to the host. The function that is returned makes the answers of one row."""


ENDED: tuple[Ending, ...] = ("length", "eos")


class Lines(Board):
    """One row a sentence."""

    def __init__(self, sentences: int, longest: int, config: DecodeConfig, controls: Controls, like: Tensor) -> None:
        super().__init__(sentences, longest, config, controls, like, rows=1)
        self.lengths = torch.zeros(sentences, dtype=torch.long, device=like.device)  # scores entered, EOS's included
        self.by_eos = torch.zeros(sentences, dtype=torch.bool, device=like.device)
        self.draws = torch.zeros(
            sentences, longest if config.temperature > 0 else 0, dtype=torch.float64, device=like.device
        )

    def sentence_tensors(self) -> list[Tensor]:
        return [*super().sentence_tensors(), self.lengths, self.by_eos, self.draws]

    def begin(self, sentences: int, tasks: Sequence[Task]) -> None:
        super().begin(sentences, tasks)
        self.lengths[:sentences].zero_()
        self.by_eos[:sentences].zero_()
        if self.config.temperature > 0:
            samples = self.config.num_samples
            texts, numbers = [task.fingerprint for task in tasks], [n % samples for n in range(len(tasks))]
            most = min(self.longest, max(task.limit for task in tasks))
            draws = choose.uniforms(self.config.seed, texts, numbers, most)
            self.draws[: len(tasks), :most] = draws.to(self.draws.device)

    def step(self, logits: Float[Tensor, "N V"], room: Room, sentences: int) -> None:
        if self.kernels is not None and self.config.temperature == 0 and self.dtype == torch.float32:
            self.kernels.best_words(self, logits, room.tokens, self.is_never)
            return
        scores = self.scores(logits, sentences)
        if self.config.temperature > 0:
            uniform = self.draws[:sentences].index_select(1, self.written[None]).squeeze(1)
            tokens = choose.sample(shape(scores, self.config), uniform)
        else:
            tokens = scores.argmax(-1)
        logprob = scores.gather(1, tokens[:, None]).squeeze(1)
        over, lengths = self.over[:sentences], self.lengths[:sentences]
        stuck = ~over & (logprob == -math.inf)  # no token is allowed
        goes_on = ~over & ~stuck
        ended = goes_on & (tokens == self.eos)
        self.ids[:sentences, 0].index_copy_(1, self.written[None], tokens[:, None].to(torch.int32))
        self.logprobs[:sentences, 0].index_copy_(1, self.written[None], logprob[:, None])
        lengths += goes_on
        self.by_eos[:sentences] |= ended
        self.written += 1
        over |= stuck | ended | (self.written >= self.limit[:sentences])
        room.tokens[:sentences, 0] = tokens

    def harvest(self, sentences: int) -> Callable[[int], list[Hypothesis]]:
        ids, logprobs = self.ids[:sentences, 0].tolist(), self.logprobs[:sentences, 0].tolist()
        lengths, by_eos = self.lengths[:sentences].tolist(), self.by_eos[:sentences].tolist()
        rule = length_rule(self.config)

        def answers(row: int) -> list[Hypothesis]:
            length, eos = lengths[row], by_eos[row]
            own, parts = ids[row][: length - eos], logprobs[row][:length]
            return [Hypothesis(own, rule.score(sum(parts), len(own), eos), math.fsum(parts), parts, ENDED[eos])]

        return answers


class Beams(Board):
    """The beam search of beam.py, without groups, terms, stop strings and traces."""

    def __init__(self, sentences: int, longest: int, config: DecodeConfig, controls: Controls, like: Tensor) -> None:
        super().__init__(sentences, longest, config, controls, like, rows=config.beams)
        device, self.beams, self.wanted = like.device, config.beams, config.n_best
        self.looked_at = 2 * self.beams if self.beams > 1 else 1
        rule = length_rule(config)
        # How a sum is divided that ends with EOS after so many tokens, and one that was cut.
        self.divisor = torch.tensor(
            [rule.divisor(n, True) for n in range(longest + 2)], dtype=torch.float64, device=device
        )

        def numbers(*shape: int, value: float = 0.0, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.full((sentences, *shape), value, dtype=dtype, device=device)

        self.totals = numbers(self.beams, value=-math.inf)
        # What has ended by EOS: how many, and the best of them, best first.
        self.count = numbers(dtype=torch.long)
        self.score = numbers(self.wanted, value=-math.inf)
        self.length = numbers(self.wanted, dtype=torch.long)
        self.last = numbers(self.wanted, dtype=self.dtype)
        self.pool_ids = numbers(self.wanted, longest, dtype=torch.int32)
        self.pool_logprobs = numbers(self.wanted, longest, dtype=self.dtype)
        # What was still being written when the search of a sentence was over: sums, and one length for all.
        self.cut_totals = numbers(self.beams, value=-math.inf)
        self.cut_length = numbers(dtype=torch.long)

    def sentence_tensors(self) -> list[Tensor]:
        pool = [self.count, self.score, self.length, self.last, self.pool_ids, self.pool_logprobs]
        return [*super().sentence_tensors(), self.totals, *pool, self.cut_totals, self.cut_length]

    def begin(self, sentences: int, tasks: Sequence[Task]) -> None:
        super().begin(sentences, tasks)
        for tensor in (self.totals, self.score, self.cut_totals):
            tensor[:sentences].fill_(-math.inf)
        self.totals[: len(tasks), 0] = 0.0
        self.count[:sentences].zero_()

    def step(self, logits: Float[Tensor, "R V"], room: Room, sentences: int) -> None:
        beams = self.beams
        value, token = self.best_words(logits, sentences)
        value, token = value.double().view(sentences, beams, -1), token.view(sentences, beams, -1)
        per_row = value.size(2)
        before = self.totals[:sentences]
        total, place = (before[:, :, None] + value).flatten(1).topk(min(self.looked_at, beams * per_row))
        parent = place // per_row
        token = token.flatten(1).gather(1, place)
        logprob = value.flatten(1).gather(1, place).to(self.dtype)

        impossible = total == -math.inf
        is_eos = (token == self.eos) & ~impossible
        self.enter(sentences, total, parent, logprob, is_eos)

        # The first `beams` candidates that are no EOS go on.
        out = is_eos | impossible
        order = out.to(torch.uint8).sort(dim=1, stable=True).indices[:, :beams]
        dead = out.gather(1, order)
        if order.size(1) < beams:
            missing = beams - order.size(1)
            order, dead = F.pad(order, (0, missing)), F.pad(dead, (0, missing), value=True)
        nothing_left = dead.all(dim=1, keepdim=True)
        # Where no token at all is allowed and nothing has ended, the hypotheses end where they are.
        stuck = nothing_left & ~self.over[:sentences, None] & (self.count[:sentences, None] == 0)
        self.cut_totals[:sentences] = torch.where(stuck, before, self.cut_totals[:sentences])
        self.cut_length[:sentences] = torch.where(stuck[:, 0], self.written, self.cut_length[:sentences])

        same = torch.arange(beams, device=order.device)
        parents = torch.where(nothing_left, same, parent.gather(1, order))
        tokens = token.gather(1, order).masked_fill(dead, 0)
        totals = total.gather(1, order).masked_fill(dead, -math.inf)
        self.move(sentences, parents, tokens, logprob.gather(1, order), room)
        self.written += 1
        self.settle(sentences, totals)

    def best_words(self, logits: Float[Tensor, "R V"], sentences: int) -> tuple[Tensor, Tensor]:
        """The best of each row, with their log-probabilities."""
        words, wanted = logits.size(1), min(self.looked_at, logits.size(1))
        stretches = -(-words // choose.STRETCH)
        if self.kernels is None or self.dtype != torch.float32 or stretches < 4 * wanted:
            return choose.best(self.scores(logits, sentences), wanted)
        peak, log_total = self.kernels.peaks(
            logits, self.is_never, self.minimum, self.written, self.eos, beams=self.beams, stretch=choose.STRETCH
        )
        # The best words stand in the stretches with the highest peaks. The last stretch may be short: its words that do not
        # exist are those of the last place, counted out below.
        highest = peak.topk(wanted).indices
        place = highest[:, :, None] * choose.STRETCH + torch.arange(choose.STRETCH, device=logits.device)
        found = logits.gather(1, place.flatten(1).clamp(max=words - 1)).float()
        found = found.masked_fill(place.flatten(1) >= words, -math.inf)
        value, which = found.topk(wanted)
        return value - log_total[:, None], place.flatten(1).gather(1, which)

    def enter(self, sentences: int, total: Tensor, parent: Tensor, logprob: Tensor, is_eos: Tensor) -> None:
        """What has just ended, into the pool of the best; of equals the one that was there before."""
        first = min(self.beams, total.size(1))
        is_eos, parent = is_eos[:, :first], parent[:, :first]
        self.count[:sentences] += is_eos.sum(dim=1)
        score = torch.where(is_eos, total[:, :first] / self.divisor.index_select(0, self.written[None]), -math.inf)
        all_scores = torch.cat([self.score[:sentences], score], dim=1)
        best = all_scores.sort(dim=1, descending=True, stable=True).indices[:, : self.wanted]
        deep = best[:, :, None].expand(-1, -1, self.longest)
        past = parent[:, :, None].expand(-1, -1, self.longest)

        def among(old: Tensor, new: Tensor) -> None:
            every = torch.cat([old[:sentences], new], dim=1)
            old[:sentences] = every.gather(1, deep if every.dim() == 3 else best)

        among(self.pool_ids, self.ids[:sentences].gather(1, past))
        among(self.pool_logprobs, self.logprobs[:sentences].gather(1, past))
        among(self.length, self.written.expand(sentences, first))
        among(self.last, logprob[:, :first])
        self.score[:sentences] = all_scores.gather(1, best)

    def move(self, sentences: int, parents: Tensor, tokens: Tensor, logprob: Tensor, room: Room) -> None:
        """Every hypothesis takes the place of the one it continues: its words, its past, its next token."""
        past = parents[:, :, None].expand(-1, -1, self.longest)
        ids, logprobs = self.ids[:sentences].gather(1, past), self.logprobs[:sentences].gather(1, past)
        ids.index_copy_(2, self.written[None], tokens[:, :, None].to(torch.int32))
        logprobs.index_copy_(2, self.written[None], logprob[:, :, None])
        self.ids[:sentences], self.logprobs[:sentences] = ids, logprobs
        seen = parents[:, :, None].expand(-1, -1, room.shade.size(2))
        room.shade[:sentences] = room.shade[:sentences].gather(1, seen)
        room.tokens[:sentences] = tokens

    def settle(self, sentences: int, totals: Float[Tensor, "N K"]) -> None:
        over, limit = self.over[:sentences], self.limit[:sentences]
        at_limit = self.written >= limit
        best_total = totals.amax(dim=1)
        alive = best_total > -math.inf
        cut = ~over & at_limit & alive
        self.cut_totals[:sentences] = torch.where(cut[:, None], totals, self.cut_totals[:sentences])
        self.cut_length[:sentences] = torch.where(cut, self.written, self.cut_length[:sentences])
        if self.config.stop_rule == "first-k":
            settled = self.count[:sentences] >= self.beams
        else:
            shortest, longest = torch.maximum(self.written, self.minimum[:sentences]), limit - 1
            last = self.divisor.numel() - 1
            reachable = torch.maximum(
                best_total / self.divisor[shortest.clamp(max=last)], best_total / self.divisor[longest.clamp(min=0)]
            ).masked_fill(shortest > longest, -math.inf)
            settled = (self.count[:sentences] >= self.wanted) & (reachable <= self.score[:sentences, -1])
        over |= at_limit | ~alive | settled
        self.totals[:sentences] = totals.masked_fill(over[:, None], -math.inf)

    def harvest(self, sentences: int) -> Callable[[int], list[Hypothesis]]:
        rule, wanted = length_rule(self.config), self.wanted
        few = bool((self.count[:sentences] < wanted).any())
        names = ["count", "score", "length", "last", "pool_ids", "pool_logprobs"]
        names += ["ids", "logprobs", "cut_totals", "cut_length"] if few else []
        host = {name: getattr(self, name)[:sentences].to("cpu", copy=True).numpy() for name in names}
        count, score, length = host["count"].tolist(), host["score"].tolist(), host["length"].tolist()
        last = host["last"].tolist()

        def ended(row: int, rank: int) -> Hypothesis:
            words = length[row][rank]
            ids, parts = host["pool_ids"][row, rank, :words].tolist(), host["pool_logprobs"][row, rank, :words].tolist()
            parts.append(last[row][rank])
            return Hypothesis(ids, score[row][rank], math.fsum(parts), parts, "eos")

        def cut(row: int, slot: int) -> Hypothesis:
            words = int(host["cut_length"][row])
            ids, parts = host["ids"][row, slot, :words].tolist(), host["logprobs"][row, slot, :words].tolist()
            score = rule.score(float(host["cut_totals"][row, slot]), words, False)
            return Hypothesis(ids, score, math.fsum(parts), parts, "length")

        def answers(row: int) -> list[Hypothesis]:
            found = [ended(row, rank) for rank in range(min(wanted, count[row]))]
            if len(found) < wanted:  # those that were cut are equally long: their sums rank them
                totals = host["cut_totals"][row].tolist()
                live = [slot for slot in range(len(totals)) if totals[slot] > -math.inf]
                best = sorted(live, key=lambda slot: -totals[slot])[: wanted - len(found)]
                found += [cut(row, slot) for slot in best]
            return found

        return answers


# The engine: who works where, and when to look.


class Work:
    """A room, a board and the graphs recorded on them. The first step of a bucket runs as it is, which also warms up what
    capture must not meet cold; the second is recorded."""

    def __init__(self, decoder: StaticDecoder, room: Room, board: Board) -> None:
        self.decoder, self.room, self.board = decoder, room, board
        self.on_device = room.column.is_cuda
        self.graphs: dict[tuple[int, int, int], torch.cuda.CUDAGraph | None] = {}
        self.refused: set[tuple[int, int, int]] = set()  # buckets that could not be recorded
        self.pool: Any = torch.cuda.graph_pool_handle() if self.on_device else None

    def once(self, sentences: int, reach: int, width: int) -> None:
        self.board.step(self.decoder(self.room, sentences, reach, width), self.room, sentences)

    def step(self, sentences: int, reach: int, width: int) -> None:
        bucket = (sentences, reach, width)
        if not self.on_device or bucket in self.refused or bucket not in self.graphs:
            self.graphs.setdefault(bucket)
            self.once(*bucket)
            return
        graph = self.graphs[bucket] or self.recorded(bucket)
        if graph is None:
            self.once(*bucket)
        else:
            graph.replay()

    def recorded(self, bucket: tuple[int, int, int]) -> torch.cuda.CUDAGraph | None:
        """Recording runs nothing, so where the device refuses it, the step can still be made as it is."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, pool=self.pool):
                self.once(*bucket)
        except RuntimeError as error:
            warnings.warn(f"this step could not be recorded as a graph, and runs slowly: {error}", stacklevel=2)
            torch.cuda.synchronize()
            self.refused.add(bucket)
            return None
        self.graphs[bucket] = graph
        return graph

    def keep(self, rows: Sequence[int], sentences: int, filled: int, width: int) -> None:
        """These go on, in a bucket of `sentences`; what fills it up is over."""
        which = torch.tensor(list(rows), device=self.room.column.device)
        self.room.keep(which, filled, width)
        self.board.keep(which)
        self.board.over[len(rows) : sentences] = True


class GraphEngine:
    """Decodes for one model, as its weights are when the engine is made. `precision` "bf16": on a copy of them."""

    def __init__(self, model: Any, precision: Literal["model", "bf16"] = "model") -> None:
        if precision == "bf16":
            self.model = copy.deepcopy(model).to(torch.bfloat16).eval()
        else:
            self.model = weakref.proxy(model)  # so that an engine kept beside its model does not keep it alive
        self.config: ModelConfig = model.config
        self.device = next(model.parameters()).device
        fused = self.device.type == "cuda" and KernelDecoder.suits(self.config)
        self.decoder = KernelDecoder(self.model) if fused else StaticDecoder(self.model)
        self.works: dict[Any, Work] = {}
        self.unwritten: list[Callable[[], None]] = []

    def work(
        self, sentences: int, prompt: int, longest: int, source: int, config: DecodeConfig, controls: Controls
    ) -> Work:
        beams = config.beams if config.temperature == 0 else 1
        longest = rounded(longest)
        columns = rounded(prompt + longest * beams)
        how = replace(config, seed=0, batch_size=1, engine="plain")
        key = (sentences, columns, longest, source, how, controls)
        found = self.works.pop(key, None)
        if found is None:
            while len(self.works) >= ROOMS_KEPT:
                self.works.pop(next(iter(self.works)))
            room = self.decoder.room(sentences, beams, columns, prompt + longest, source)
            kind = Beams if beams > 1 else Lines
            board = kind(sentences, longest, config, controls, self.decoder.table)
            board.kernels = getattr(self.decoder, "kernels", None)
            found = Work(self.decoder, room, board)
        self.works[key] = found  # the last used is the last to go
        found.board.config = config
        return found

    def batch_size(self, config: DecodeConfig, texts: int, columns: int, source: int) -> int:
        """As the config says, but no more than the device's memory can hold."""
        size = min(config.batch_size, texts)
        if self.device.type != "cuda":
            return size
        c, rows = self.config, rows_a_text(config)
        a_column = c.n_layer * c.kv_heads * (c.key_size + c.val_size) * self.decoder.table.element_size()
        free = torch.cuda.mem_get_info(self.device)[0] * BUSY
        while size > 1 and at_least(size * rows) * (columns + source) * a_column > free:
            size //= 2
        return size

    def run(
        self, work: Work, tasks: Sequence[Task], prompt: int, width: int, first: Float[Tensor, "R V"] | None
    ) -> list[list[Hypothesis]]:
        """Steps until all tasks are over. `first`: the scores of the first token, where the prompt has been read. The
        answers are filled in by `write_up`, while the device has something to do."""
        board, room = work.board, work.room
        numbers, written = list(range(len(tasks))), 0
        sentences = at_least(len(tasks))
        answers: list[list[Hypothesis]] = [[] for _ in tasks]

        def hand_in(rows: Sequence[int]) -> None:
            made, done = board.harvest(sentences), [(row, numbers[row]) for row in rows]

            def write() -> None:
                for row, number in done:
                    answers[number] = made(row)

            self.unwritten.append(write)

        def ends() -> tuple[int, int]:
            own = [tasks[number] for number in numbers]
            return min(task.minimum for task in own), max(task.limit for task in own)

        soonest, longest = ends()
        if first is not None:
            board.step(first, room, sentences)
            written = 1
        while True:
            if written and (written >= longest or (written % POLL == 0 and written > soonest)):
                self.write_up()
                over = board.over[:sentences].tolist()
                going_on = [row for row in range(len(numbers)) if not over[row]]
                if not going_on:
                    hand_in(range(len(numbers)))
                    return answers
                if at_least(len(going_on)) < sentences:
                    hand_in([row for row in range(len(numbers)) if over[row]])
                    sentences = at_least(len(going_on))
                    numbers = [numbers[row] for row in going_on]
                    soonest, longest = ends()
                    work.keep(going_on, sentences, prompt + written * room.beams, width)
            reach = rounded(prompt + (written + 1) * room.beams, least=max(16, 8 * min(room.beams, 4)))
            work.step(sentences, min(reach, room.shade.size(2)), width)
            written += 1

    def write_up(self) -> None:
        """Make answers of what has been copied from the device: the host's work while the device has its own."""
        while self.unwritten:
            self.unwritten.pop()()

    def all_batches(
        self,
        texts: Sequence[Sequence[int]],
        tasks: Sequence[Task],
        config: DecodeConfig,
        size: int,
        decode: Callable[[list[int], list[Task]], list[list[Hypothesis]]],
    ) -> list[list[Hypothesis]]:
        """Longest first, answers in the order of the texts."""
        rows = rows_a_text(config) if config.temperature > 0 else 1
        order = sorted((i for i in range(len(texts)) if texts[i]), key=lambda i: -len(texts[i]))
        results: list[list[Hypothesis]] = [[] if text else [Hypothesis([], 0.0, 0.0, [], "eos")] for text in texts]
        found = []
        with garbage_left_alone():
            for start in range(0, len(order), size):
                numbers = order[start : start + size]
                found.append((numbers, decode(numbers, [tasks[i] for i in numbers for _ in range(rows)])))
            self.write_up()
            for numbers, answers in found:
                for place, i in enumerate(numbers):
                    own = answers[place * rows : (place + 1) * rows]
                    results[i] = own[0] if rows == 1 else [h for several in own for h in several]
        return results

    def translate(
        self, sources: Sequence[Sequence[int]], tasks: Sequence[Task], config: DecodeConfig, controls: Controls
    ) -> list[list[Hypothesis]]:
        real = [i for i in range(len(sources)) if sources[i]]
        if not real:
            return self.all_batches(sources, tasks, config, 1, lambda numbers, own: [])
        rows = rows_a_text(config) if config.temperature > 0 else 1
        longest = max(tasks[i].limit for i in real)
        widest = rounded(max(len(sources[i]) for i in real))
        beams = config.beams if config.temperature == 0 else 1
        size = self.batch_size(config, len(real), rounded(longest) * beams, widest)
        work = self.work(at_least(size * rows), 0, longest, widest, config, controls)

        def decode(numbers: list[int], own: list[Task]) -> list[list[Hypothesis]]:
            texts = [sources[i] for i in numbers]
            width = min(widest, rounded(max(map(len, texts)), least=16))
            work.room.begin(at_least(len(own)), controls.bos)
            work.board.begin(at_least(len(own)), own)
            self.read_source(work.room, texts, width, rows)
            return self.run(work, own, 0, width, None)

        return self.all_batches(sources, tasks, config, size, decode)

    def read_source(self, room: Room, texts: Sequence[Sequence[int]], width: int, copies: int) -> None:
        """The sources' keys and values for every layer; each is there for `copies` sentences of the room."""
        lengths = [len(text) for text in texts]
        tokens = np.zeros((len(texts), width), dtype=np.int64)
        real = np.arange(width) < np.array(lengths)[:, None]
        tokens[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=sum(lengths))
        source = Rows.padded(torch.from_numpy(tokens), lengths).to(self.device)
        used = len(texts) * copies
        memories = self.model.decoder.remember(self.model.encode(source))
        for (keys, values), (k, v) in zip(room.memories, memories, strict=True):
            keys[:used, :, :width] = k if copies == 1 else k.repeat_interleave(copies, 0)
            values[:used, :, :width] = v if copies == 1 else v.repeat_interleave(copies, 0)
        room.source_shade[:used, 0, 0, :width] = torch.where(source.real, 0.0, -math.inf).repeat_interleave(copies, 0)
        room.source_shade[used:, :, :, :width] = 0.0

    def generate(
        self, prompts: Sequence[Sequence[int]], tasks: Sequence[Task], config: DecodeConfig, controls: Controls
    ) -> list[list[Hypothesis]]:
        rows = rows_a_text(config) if config.temperature > 0 else 1
        longest = max(task.limit for task in tasks)
        widest = rounded(max(len(prompt) for prompt in prompts))
        beams = config.beams if config.temperature == 0 else 1
        size = self.batch_size(config, len(prompts), widest + rounded(longest) * beams, 0)
        work = self.work(at_least(size * rows), widest, longest, 0, config, controls)

        def decode(numbers: list[int], own: list[Task]) -> list[list[Hypothesis]]:
            texts = [prompts[i] for i in numbers]
            width = max(map(len, texts))
            work.room.begin(at_least(len(own)), controls.bos)
            work.board.begin(at_least(len(own)), own)
            first = self.read_prompts(work.room, texts, width, rows)
            first = first.repeat_interleave(beams, 0)
            missing = at_least(len(own)) * beams - first.size(0)
            return self.run(work, own, width, 0, F.pad(first, (0, 0, 0, missing)))

        return self.all_batches(prompts, tasks, config, size, decode)

    def read_prompts(self, room: Room, texts: Sequence[Sequence[int]], width: int, copies: int) -> Float[Tensor, "R V"]:
        """Prompts into the first columns, padded on the right and the padding shaded; what may follow each is returned."""
        model, lengths = self.model, [len(text) for text in texts]
        tokens = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts]).to(self.device)
        state = model.start(len(texts), width)
        view = model.cached_view(state.cache, width)
        x = model.read(tokens, state.cache.positions(width), width)
        x = model.decoder(x, view, cache=state.cache)
        ends = torch.tensor(lengths, device=self.device)
        scores = model.logits(x[torch.arange(len(texts), device=self.device), ends - 1][:, None])[:, 0]
        used = len(texts) * copies

        def several(t: Tensor) -> Tensor:
            return t if copies == 1 else t.repeat_interleave(copies, 0)

        for i, (keys, values) in enumerate(zip(room.keys, room.values, strict=True)):
            keys[:used, :, :width] = several(state.cache.keys[i])
            values[:used, :, :width] = several(state.cache.values[i])
        columns = torch.arange(width, device=self.device)
        hidden = torch.where(columns < ends[:, None], 0.0, -math.inf)
        room.shade[:used, :, :width] = several(hidden)[:, None].to(room.shade.dtype)
        room.places[:used, :width] = columns
        room.lengths[:used] = several(ends)
        room.column.fill_(width)
        return several(scores)


@contextmanager
def garbage_left_alone() -> Iterator[None]:
    """Thousands of answers at once make Python look again and again through all it holds for cycles, while the device waits;
    there are none in what is made here."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def rows_a_text(config: DecodeConfig) -> int:
    return config.num_samples if config.temperature > 0 else config.beams
