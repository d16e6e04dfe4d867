"""The decoder on memory that never moves, so that a step of it can be recorded as a CUDA graph and replayed (engine_cuda.py).

A step is ordinary tensor code without a look at a value or a shape that depends on one.

  Room            keys and values in columns, one for each beam of a sentence at each step, and a table of shade that says
                  which columns are a hypothesis's own past (as in engine.py: nothing but the shade is reordered). The
                  source's keys and values are there once a sentence. Attention reads the first so many columns.
  StaticDecoder   the layers on a room, by torch's own operations: the reference, for every model.
  KernelDecoder   the same by the kernels of layer_kernels.py, for the models they were made for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.decode.engine import FastAttention, FastLayer, Linear, Look, make_norm
from glassformer.nn.feedforward import ACTIVATIONS
from glassformer.nn.positions import Rotation
from glassformer.nn.rows import Rows

Change = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""What one residual line adds: (rows, C) to (rows, C), or to parts of it (P, rows, C), and a bias that is still missing."""

DEEP = 2048  # so long a sum over few rows is made in parts: there are too few results to keep a device busy
FEW_RESULTS = 128
KERNEL_BYTES = 2  # of a number: our own product is for these
PARTS = 4


def plain_linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None) -> Linear:
    kept, added = weight.detach().contiguous(), None if bias is None else bias.detach()
    return lambda x: F.linear(x, kept, added)


@dataclass
class Room:
    """Memory for so many sentences of `beams` rows each. Every tensor but `column` and `own` begins with the sentence."""

    past: tuple[Float[Tensor, "N L Hk S D"], Float[Tensor, "N L Hk S Dv"]]  # keys and values of all layers
    source: Float[Tensor, "N W L M"]  # those of the source, a word's side by side
    memories: list[tuple[Tensor, Tensor]]  # the same as every layer asks for them: (N, Hk, W, D) and (N, Hk, W, Dv)
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

    def columns(self, layer: int, sentences: int) -> tuple[Float[Tensor, "n Hk S D"], Float[Tensor, "n Hk S Dv"]]:
        keys, values = self.past
        return keys[:sentences, layer], values[:sentences, layer]

    def begin(self, sentences: int, first_token: int) -> None:
        self.shade[:sentences].fill_(-math.inf)
        self.lengths[:sentences].zero_()
        self.tokens[:sentences].fill_(first_token)
        self.column.zero_()

    def move(self, rows: Int[Tensor, "M"], places: Int[Tensor, "M"], filled: int, width: int) -> None:
        """These sentences take the places of others."""
        move_rows([part[:, :, :, :filled] for part in self.past], rows, places)
        move_rows([self.source[:, :width]], rows, places)
        move_rows([self.source_shade, self.shade, self.places, self.lengths, self.tokens], rows, places)


def move_rows(tensors: Sequence[Tensor], rows: Int[Tensor, "M"], places: Int[Tensor, "M"]) -> None:
    for tensor in tensors:
        if tensor.numel():
            tensor.index_copy_(0, places, tensor.index_select(0, rows))


class StaticDecoder:
    """The layers of a Transformer's decoder or a GPT, on a room."""

    def __init__(self, model: Any) -> None:
        self.model = model
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

        layers, both = len(self.layers), c.kv_heads * (c.key_size + c.val_size)
        memory = like.new_zeros(sentences, source, layers, both)
        split = memory.split([c.kv_heads * c.key_size, c.kv_heads * c.val_size], dim=3)
        k, v = (part.unflatten(3, (c.kv_heads, -1)).transpose(1, 3).transpose(1, 2).unbind(1) for part in split)
        own = like.new_full((beams, beams), -math.inf).fill_diagonal_(0.0)
        room = Room(
            tuple(like.new_zeros(sentences, layers, c.kv_heads, columns, n) for n in (c.key_size, c.val_size)),  # type: ignore[arg-type]
            memory,
            list(zip(k, v, strict=True)) if source else [],
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

    def remember(self, source: Rows, room: Room, copies: int) -> None:
        """Every layer's keys and values of the source, each for `copies` sentences of the room."""
        used, width = source.shape[0] * copies, source.shape[1]
        found = self.model.decoder.remember(self.model.encode(source))
        for (keys, values), (k, v) in zip(room.memories, found, strict=True):
            keys[:used, :, :width] = k if copies == 1 else k.repeat_interleave(copies, 0)
            values[:used, :, :width] = v if copies == 1 else v.repeat_interleave(copies, 0)

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
            keys, values = room.columns(i, sentences)
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
    """The same on the kernels of layer_kernels.py, where the model is one they were made for; and the encoder on them too."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        from glassformer.decode import choice_kernels, layer_kernels

        self.kernels = layer_kernels
        self.choice_kernels = choice_kernels
        self.layers = model.decoder.layers  # what was packed for torch's way is not needed
        self.parts = [self.parts_of(layer) for layer in model.decoder.layers]
        self.last_norm = self.norm_of(model.decoder.norm)
        self.words = model.output_weight.detach().contiguous()
        # Rows of scores that begin at round places: an odd number of words costs the library its fast kernels.
        self.padded = F.pad(self.words, (0, 0, 0, -self.words.size(0) % 64))
        if hasattr(model, "encoder"):
            self.source_parts = [self.parts_of(layer) for layer in model.encoder.layers]
            self.source_norm = self.norm_of(model.encoder.norm)
            crosses = [layer.cross for layer in model.decoder.layers]
            self.cross_memory = joined(*(part for cross in crosses for part in (cross.key, cross.value)))

    @staticmethod
    def suits(config: ModelConfig) -> bool:
        """Triton comes with torch for CUDA, but not on every system."""
        return (
            find_spec("triton") is not None
            and config.residual
            and config.norm in ("layer", "rms")
            and config.positions in ("sinusoidal", "learned", "none")
            and config.window is None
            and config.activation in ("relu", "gelu", "gelu_tanh", "relu2")
            and config.kv_heads == config.n_head
            and not (config.qk_norm or config.embedding_norm)
            and max(config.n_embd, config.hidden) <= 8192
            and max(config.key_size, config.val_size) <= 128
        )

    def parts_of(self, layer: Any) -> dict[str, Any]:
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
        return part

    def norm_of(self, norm: Any) -> tuple[str, Tensor, Tensor | None, float] | None:
        if norm is None:
            return None
        bias = getattr(norm, "bias", None)
        return self.config.norm, norm.weight.detach(), None if bias is None else bias.detach(), norm.eps

    def __call__(self, room: Room, sentences: int, reach: int, width: int) -> Float[Tensor, "R V"]:
        few = room.beams == 1 and sentences <= self.kernels.FEW_ROWS and self.config.pre_norm
        x = self.kernels.embed(
            room.tokens,
            room.lengths,
            room.column,
            self.table,
            room.tables.get("positions"),
            room.shade,
            self.factor,
            sentences,
        )
        if few and self.config.family == "gpt":
            scores = self.of_few_rows(x, room, sentences, reach)
        else:
            scores = self.of_many_rows(x, room, sentences, reach, width)
        room.lengths[:sentences] += 1
        room.column += room.beams
        return scores

    def columns_attention(self, i: int, qkv: Tensor, room: Room, sentences: int, reach: int) -> Tensor:
        keys, values = room.columns(i, sentences)
        heads, scale = self.config.n_head, self.parts[i]["scale"]
        if room.beams == 1:
            shade = room.shade[:sentences, :, None]
            return self.kernels.attend_columns(qkv, keys, values, shade, room.column, reach, heads=heads, scale=scale)
        return self.kernels.attend_beams(
            qkv, keys, values, room.shade[:sentences], reach, beams=room.beams, scale=scale, column=room.column
        )

    def of_few_rows(self, x: Tensor, room: Room, sentences: int, reach: int) -> Float[Tensor, "R V"]:
        """The weights are what is read, so whatever is done to a row on the way is done inside the products."""
        product = self.kernels.product
        for i, part in enumerate(self.parts):
            qkv = product(x, *part["qkv"], norm=part["attention_norm"])
            x = product(self.columns_attention(i, qkv, room, sentences, reach), *part["out"], residual=x)
            hidden = product(x, *part["up"], norm=part["mlp_norm"], activation=self.config.activation)
            x = product(hidden, *part["down"], residual=x)
        return product(x, self.words, norm=self.last_norm, dtype=torch.float32)

    def of_many_rows(self, x: Tensor, room: Room, sentences: int, reach: int, width: int) -> Float[Tensor, "R V"]:
        """Products by a kernel or the device's library; between them, sums with their norms, and attention for all beams."""

        def self_attention(i: int, part: dict[str, Any]) -> Change:
            def work(y: Tensor) -> tuple[Tensor, Tensor | None]:
                found = self.columns_attention(i, self.product(y, *part["qkv"]), room, sentences, reach)
                return self.summand(found, *part["out"])

            return work

        def cross_attention(i: int, part: dict[str, Any]) -> Change:
            keys, values = (t[:sentences] for t in room.memories[i])
            shade, scale = room.source_shade[:sentences, 0], part["cross_scale"]

            def work(y: Tensor) -> tuple[Tensor, Tensor | None]:
                q = self.product(y, *part["cross_query"])
                found = self.kernels.attend_beams(q, keys, values, shade, width, beams=room.beams, scale=scale)
                return self.summand(found, *part["cross_out"])

            return work

        changes: list[tuple[Any, Change]] = []
        for i, part in enumerate(self.parts):
            changes.append((part["attention_norm"], self_attention(i, part)))
            if "cross_query" in part:
                changes.append((part["cross_norm"], cross_attention(i, part)))
            changes.append((part["mlp_norm"], self.mlp(part)))
        return F.linear(self.changed(x, changes, self.last_norm), self.padded)[:, : self.words.size(0)]

    def mlp(self, part: dict[str, Any]) -> Change:
        def work(y: Tensor) -> tuple[Tensor, Tensor | None]:
            weight, bias = part["up"]
            return self.summand(self.product(y, weight, bias, self.config.activation), *part["down"])

        return work

    def parts_by_kernel(self, x: Tensor, weight: Tensor, most: int) -> int | None:
        """With some dozens of rows a product is over before the library's kernel has come to its full speed."""
        if x.element_size() > KERNEL_BYTES:
            return None
        return self.kernels.product_parts(x.size(0), *reversed(weight.shape), most=most)  # type: ignore[no-any-return]

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
        if self.parts_by_kernel(x, weight, 1):
            return self.kernels.batch_product(x, weight, bias, activation=activation)  # type: ignore[no-any-return]
        if bias is not None and activation in ("relu", "gelu_tanh") and weight.is_cuda:
            # The library's products end with a bias and one of these two, so no kernel is needed for it.
            return torch._addmm_activation(bias, x, weight.t(), use_gelu=activation == "gelu_tanh")
        y = F.linear(x, weight, bias)
        return y if activation == "none" else ACTIVATIONS[activation](y)

    def summand(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """A product that goes into the residual line: perhaps in parts, which are added up there, and the bias with them."""
        rows, inner = x.shape
        parts = self.parts_by_kernel(x, weight, 8)
        if parts is not None:
            return self.kernels.batch_product(x, weight, parts=parts), bias
        if rows > FEW_RESULTS or inner < DEEP or inner % (16 * PARTS):
            return F.linear(x, weight, bias), None
        stretches = x.view(rows, PARTS, -1).transpose(0, 1)
        return torch.bmm(stretches, weight.view(weight.size(0), PARTS, -1).permute(1, 2, 0)), bias

    def changed(self, x: Tensor, changes: Sequence[tuple[Any, Change]], last_norm: Any) -> Tensor:
        """The residual lines of a stack: each change with its norm, before it or behind it, and the stack's own norm."""
        add_norm = self.kernels.add_norm
        if self.config.pre_norm:
            norms = [*(norm for norm, _ in changes[1:]), last_norm]
            y = add_norm(x, None, changes[0][0], keep=False)[1]
            for (_, work), norm in zip(changes, norms, strict=True):
                change, bias = work(y)
                x, y = add_norm(x, change, norm, keep=True, bias=bias)
            return y
        for norm, work in changes:
            change, bias = work(x)
            x = add_norm(x, change, norm, keep=False, bias=bias)[1]
        return x if last_norm is None else add_norm(x, None, last_norm, keep=False)[1]

    def remember(self, source: Rows, room: Room, copies: int) -> None:
        model, c = self.model, self.config
        sentences, width = source.shape
        if width * self.table.element_size() > self.kernels.MOST_BYTES:
            return super().remember(source, room, copies)
        x = model.embed(model.source_table, model.source_positions, source.tokens, source.places, source.longest)
        real = source.real.contiguous()

        def attention(part: dict[str, Any]) -> Change:
            def work(y: Tensor) -> tuple[Tensor, Tensor | None]:
                qkv = F.linear(y, *part["qkv"])
                found = self.kernels.attend_rows(qkv, real, heads=c.n_head, value_size=c.val_size, scale=part["scale"])
                return F.linear(found, *part["out"]), None

            return work

        changes: list[tuple[Any, Change]] = []
        for part in self.source_parts:
            changes += [(part["attention_norm"], attention(part)), (part["mlp_norm"], self.mlp(part))]
        x = self.changed(x.flatten(0, 1).contiguous(), changes, self.source_norm)
        found = F.linear(x, *self.cross_memory).view(sentences, width, *room.source.shape[2:])
        room.source[: sentences * copies, :width] = found if copies == 1 else found.repeat_interleave(copies, 0)


def joined(*parts: Any) -> tuple[Tensor, Tensor | None]:
    if len(parts) == 1:
        bias = parts[0].bias
        return parts[0].weight.detach().contiguous(), None if bias is None else bias.detach()
    weight = torch.cat([part.weight.detach() for part in parts]).contiguous()
    return weight, None if parts[0].bias is None else torch.cat([part.bias.detach() for part in parts])
