"""The decoder again, arranged for speed on a CPU: the same weights, the same answers.

An engine stands where a model stands: it has `start` and `step` (see steps.py), so every search runs on it unchanged. What
it does differently from the plain model, in the order of what it saves:

  Matrices lie as the product wants them: transposed once, query, key and value side by side, gate beside up. A product of
  few rows with a matrix in rows of the input (in, out) takes about half the time of one in rows of the output.

  No cache row ever moves. The beams of a sentence share one list of columns; each step appends one column a beam, and a
  table of shade, 0 or -inf for every beam and column, says which columns are a beam's own ancestors. When hypotheses are
  reordered only the shade is. Attention then reads the columns of all beams at once: a few more multiplications, and the
  same memory, since queries of all beams go through the keys together. Columns that are no living hypothesis's past are
  cleared away now and then (a beam soon agrees on all but its last few words).

  Padding is left out of everything in the encoder but attention; finished sentences leave.

What makes a product is handed in as `make_linear`, so the same engine runs on 8-bit weights (engine_int8.py). The engine
reads the model's weights when it is made and knows nothing of later changes (engines.py notices them). It has no taps.
Searching stays where it is, in search.py and beam.py.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.block import Block
from glassformer.nn.feedforward import GatedMLP
from glassformer.nn.norms import LayerNorm, NoNorm, RMSNorm
from glassformer.nn.positions import Rotation
from glassformer.nn.rows import Rows

CLEAR_EVERY = 4  # steps

Linear = Callable[[Tensor], Tensor]
"""(rows, in) to (rows, out)."""
MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""From a weight (out, in) and a bias (out)."""


def transposed_linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None) -> Linear:
    packed = weight.detach().t().contiguous()
    if bias is None:
        return lambda x: torch.mm(x, packed)
    added = bias.detach()
    return lambda x: torch.addmm(added, x, packed)


def together(make: MakeLinear, *parts: nn.Linear) -> Linear:
    """One product in place of several of the same input; the outputs stand side by side."""
    weight = torch.cat([part.weight.detach() for part in parts])
    biases = [part.bias.detach() for part in parts if part.bias is not None]
    if not weight.numel():
        make = transposed_linear  # of an attention that has lost all its heads
    return make(weight, torch.cat(biases) if biases else None)


def make_norm(norm: nn.Module | None) -> Callable[[Tensor], Tensor]:
    if isinstance(norm, LayerNorm):
        shape, weight, bias, eps = norm.weight.shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if norm is None or isinstance(norm, NoNorm):
        return lambda x: x
    if isinstance(norm, RMSNorm):
        return norm.forward
    return lambda x: norm(x[None])[0]  # BatchNorm reads sentences


def make_mlp(mlp: Any, make: MakeLinear) -> Callable[[Tensor], Tensor]:
    activate: Callable[[Tensor], Tensor] = mlp.activate
    if isinstance(mlp, GatedMLP):
        widen, narrow = together(make, mlp.gate, mlp.up), together(make, mlp.down)

        def gated(x: Tensor) -> Tensor:
            gate, up = widen(x).chunk(2, dim=-1)
            return narrow(activate(gate).mul_(up))

        return gated
    widen, narrow = together(make, mlp.up), together(make, mlp.down)
    if activate is F.relu:
        return lambda x: narrow(widen(x).relu_())
    return lambda x: narrow(activate(widen(x)))


@dataclass(frozen=True)
class Look:
    """What one pass tells every layer: who is hidden (-inf) or far (ALiBi), and the angles of the new tokens. `shade` is for
    heads that share keys one after the other: (N, H, M, S), or (N, 1, M, S) where all heads look alike."""

    shade: Float[Tensor, "N H M S"] | None = None
    causal: bool = False
    rotation: Rotation | None = None

    def for_groups(self, groups: int, tokens: int, dtype: torch.dtype) -> Look:
        """The same, for queries in which the `groups` heads of one key head stand side by side."""
        if groups == 1:
            return self
        shade = self.shade
        if self.causal:
            later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
            shade = torch.zeros(1, 1, tokens, tokens, dtype=dtype).masked_fill(later, -math.inf)
        if shade is not None:
            rows, heads, *square = shade.shape
            shared = shade.expand(rows, groups, *square) if heads == 1 else shade
            shade = shared.unflatten(1, (-1, groups)).flatten(2, 3)
        return Look(shade, False, self.rotation)


class FastAttention:
    """The projections of a MultiHeadAttention, and its attention on tokens that stand (sentence, token): N x M."""

    def __init__(self, attention: MultiHeadAttention, make: MakeLinear, *, cross: bool) -> None:
        self.heads, self.kv_heads = attention.n_head, attention.n_kv_head
        self.groups = max(1, self.heads // max(1, self.kv_heads))
        self.numbers = list(attention.head_ids) if attention.pruned else None
        self.size, self.value_size = attention.head_size, attention.value_size
        self.scale = None if attention.scaled else 1.0
        self.query_norm = None if attention.query_norm is None else attention.query_norm.forward
        self.key_norm = None if attention.key_norm is None else attention.key_norm.forward
        self.widths = [
            self.heads * self.size,
            self.kv_heads * self.size,
            self.kv_heads * self.value_size,
        ]
        if cross:
            self.query = together(make, attention.query)
            self.key_value = together(make, attention.key, attention.value)
        else:
            self.query_key_value = together(make, attention.query, attention.key, attention.value)
        self.out = together(make, attention.out)

    def queries(self, q: Tensor, sentences: int, rotation: Rotation | None) -> Float[Tensor, "N Hk GM D"]:
        q = q.view(sentences, q.size(0) // sentences, self.heads, self.size)
        if self.query_norm is not None:
            q = self.query_norm(q)
        q = q.transpose(1, 2)
        if rotation is not None:
            q = rotation.turn(q)
        return q if self.groups == 1 else q.reshape(sentences, self.kv_heads, -1, self.size)

    def keys(self, k: Tensor, sentences: int, rotation: Rotation | None) -> Float[Tensor, "N Hk M D"]:
        k = k.view(sentences, k.size(0) // sentences, self.kv_heads, self.size)
        if self.key_norm is not None:
            k = self.key_norm(k)
        k = k.transpose(1, 2)
        return k if rotation is None else rotation.turn(k)

    def values(self, v: Tensor, sentences: int) -> Float[Tensor, "N Hk M Dv"]:
        return v.view(sentences, v.size(0) // sentences, self.kv_heads, self.value_size).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, look: Look) -> Float[Tensor, "NM HDv"]:
        if not self.heads:
            return q.new_zeros(q.size(0) * q.size(2), 0)
        shade = look.shade
        if self.numbers is not None and shade is not None and shade.size(1) > 1:
            shade = shade[:, self.numbers]  # ALiBi's slopes of the heads that are left
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=shade, is_causal=look.causal, scale=self.scale)
        if self.groups > 1:
            found = found.unflatten(2, (self.groups, -1)).flatten(1, 2)
        return found.transpose(1, 2).reshape(-1, self.heads * self.value_size)


Attend = Callable[[int, FastAttention, Tensor], Tensor]
"""From the number of the layer, its attention, and what it projects (queries, keys and values side by side; for
cross-attention queries alone) to what the heads find, side by side."""


class FastLayer:
    """A Block on single tokens (rows, C)."""

    def __init__(self, block: Block, make: MakeLinear) -> None:
        self.pre_norm, self.residual = block.pre_norm, block.residual
        self.attention = FastAttention(block.attention, make, cross=False)
        self.attention_norm = make_norm(block.attention_norm)
        self.cross: FastAttention | None = None
        if block.has_cross:
            self.cross = FastAttention(block.cross, make, cross=True)
            self.cross_norm = make_norm(block.cross_norm)
        self.mlp, self.mlp_norm = make_mlp(block.mlp, make), make_norm(block.mlp_norm)

    def add(self, x: Tensor, norm: Callable[[Tensor], Tensor], part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            change = part(norm(x))
            return change.add_(x) if self.residual else change
        change = part(x)
        return norm(change.add_(x) if self.residual else change)

    def __call__(
        self, x: Float[Tensor, "R C"], number: int, attend: Attend, recall: Attend | None = None
    ) -> Float[Tensor, "R C"]:
        here, cross = self.attention, self.cross
        x = self.add(x, self.attention_norm, lambda y: here.out(attend(number, here, here.query_key_value(y))))
        if cross is not None and recall is not None:
            x = self.add(x, self.cross_norm, lambda y: cross.out(recall(number, cross, cross.query(y))))
        return self.add(x, self.mlp_norm, self.mlp)


@dataclass
class Columns:
    """What has been read and written: keys and values of every layer in columns, `beams` of them a step, and for each row
    (sentence, beam) which columns are its past. Until there are beams or prompts of different lengths, all are."""

    keys: list[Float[Tensor, "N _ S D"]]  # a layer has as many heads as it has been left
    values: list[Float[Tensor, "N _ S Dv"]]
    lengths: Int[Tensor, "N"]  # tokens of each sentence so far
    places: Int[Tensor, "N S"] | None = None  # the position of each column, where attention asks for it
    beams: int = 1
    filled: int = 0  # columns
    cleared: int = 0  # as many were left when it was last looked which are needed
    longest: int = 0  # no sentence has more tokens than this ...
    even: bool = True  # ... and here all have exactly as many
    shade: Float[Tensor, "N K S"] | None = None
    memories: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    source_look: Look = field(default_factory=Look)

    @property
    def sentences(self) -> int:
        return self.lengths.size(0)

    @property
    def capacity(self) -> int:
        return self.keys[0].size(2)

    def shaded(self) -> Float[Tensor, "N K S"]:
        if self.shade is None:
            self.shade = self.keys[0].new_full((self.sentences, self.beams, self.capacity), -math.inf)
            self.shade[:, :, : self.filled] = 0.0
        return self.shade

    def spread(self, beams: int) -> None:
        """One row a sentence becomes `beams` rows, which share what has been read so far."""
        more = (self.capacity - self.filled) * (beams - 1)
        self.keys = [F.pad(k, (0, 0, 0, more)) for k in self.keys]
        self.values = [F.pad(v, (0, 0, 0, more)) for v in self.values]
        self.places = None if self.places is None else F.pad(self.places, (0, more))
        shade = self.shaded()
        self.shade = F.pad(shade[:, :, : self.filled], (0, self.capacity - self.filled), value=-math.inf)
        self.shade = self.shade.expand(-1, beams, -1).contiguous()
        self.beams = beams

    def keep(self, which: Int[Tensor, "N2"]) -> None:
        """Only these sentences go on."""

        def kept(old: Tensor) -> Tensor:
            new = old.new_empty(which.size(0), *old.shape[1:])
            torch.index_select(old[:, :, : self.filled], 0, which, out=new[:, :, : self.filled])
            return new

        self.keys, self.values = [kept(k) for k in self.keys], [kept(v) for v in self.values]
        self.lengths = self.lengths.index_select(0, which)
        self.places = None if self.places is None else self.places.index_select(0, which)
        self.shade = None if self.shade is None else self.shade.index_select(0, which)
        self.memories = [(k.index_select(0, which), v.index_select(0, which)) for k, v in self.memories]
        if self.source_look.shade is not None:
            self.source_look = Look(self.source_look.shade.index_select(0, which))

    def clear_away(self) -> None:
        """Drop the columns that no beam will see again; sentences that have fewer left than others keep some of them."""
        assert self.shade is not None
        alive = (self.shade[:, :, : self.filled] == 0).any(dim=1)
        left = int(alive.sum(dim=1).max())
        if 3 * left <= 2 * self.filled:
            order = alive.logical_not().to(torch.uint8).sort(dim=1, stable=True).indices[:, :left]
            sentence = torch.arange(self.sentences)[:, None]
            for tensor in (*self.keys, *self.values):
                tensor[:, :, :left] = tensor[sentence, :, order].transpose(1, 2)
            past = order[:, None].expand(-1, self.beams, -1)
            self.shade[:, :, :left] = self.shade.gather(2, past)
            if self.places is not None:
                self.places[:, :left] = self.places.gather(1, order)
            self.filled = left
        self.cleared = self.filled

    def reorder(self, rows: Int[Tensor, "R"]) -> None:
        """Row i becomes what row rows[i] was: sentences leave or move whole, and beams change places within their own."""
        numbers = rows.tolist()
        if self.beams == 1 and len(numbers) > self.sentences:
            self.spread(len(numbers) // self.sentences)
            numbers = [number * self.beams for number in numbers]
        sentences = [number // self.beams for number in numbers]
        if len(numbers) % self.beams or any(s != sentences[i - i % self.beams] for i, s in enumerate(sentences)):
            raise ValueError("the rows of a sentence must stay together; these would mix sentences")
        staying = sentences[:: self.beams]
        if staying != list(range(self.sentences)):
            self.keep(torch.tensor(staying))
        if self.beams > 1:
            own = [i - i % self.beams + number % self.beams for i, number in enumerate(numbers)]
            if own != list(range(len(own))):
                shade = self.shaded()
                past = shade.flatten(0, 1)[:, : self.filled].index_select(0, torch.tensor(own))
                shade[:, :, : self.filled] = past.view(*shade.shape[:2], -1)
            if self.filled - self.cleared >= CLEAR_EVERY * self.beams:
                self.clear_away()


class Engine:
    """What the engines of both families share. `model` is a Transformer or a GPT (see `prepared`)."""

    def __init__(self, model: Any, make: MakeLinear = transposed_linear) -> None:
        self.model = weakref.proxy(model)  # so that an engine kept beside its model does not keep it alive
        self.config: ModelConfig = model.config
        self.groups = self.config.n_head // self.config.kv_heads
        self.zero = model.output_weight.detach().new_zeros(1)
        self.layers = [FastLayer(layer, make) for layer in model.decoder.layers]
        self.norm = make_norm(model.decoder.norm)
        self.output = make(model.output_weight.detach(), None)

    def parameters(self) -> Any:
        return self.model.parameters()

    def room(self, sentences: int, columns: int, *, beams: int = 1) -> Columns:
        c = self.config
        like = next(self.model.parameters())
        places = torch.zeros(sentences, columns, dtype=torch.long)
        return Columns(
            [like.new_empty(sentences, layer.attention.kv_heads, columns, c.key_size) for layer in self.layers],
            [like.new_empty(sentences, layer.attention.kv_heads, columns, c.val_size) for layer in self.layers],
            torch.zeros(sentences, dtype=torch.long),
            places if c.window is not None or c.positions == "alibi" else None,
            beams,
        )

    def queries(self, state: Columns, new: int) -> Int[Tensor, "P new"]:
        """The positions of the next tokens: one row of them where all sentences are equally long."""
        if state.even:
            return torch.arange(state.longest, state.longest + new)[None]
        return state.lengths[:, None] + torch.arange(new)

    def look(self, state: Columns, new: int) -> Look:
        """What `new` tokens a row may see, themselves included. The columns they will fill are entered as theirs."""
        tokens, before = state.beams * new, state.filled
        end = before + tokens
        if end > state.capacity:
            raise ValueError(f"there is room for {state.capacity} columns, and {end} were asked for")
        rotation = None
        if self.config.positions == "rotary":
            self.model.rotary.grow(state.longest + new)
            rotation = self.model.rotary.rotation(self.queries(state, new))
        if state.beams > 1 or state.shade is not None:
            own = torch.eye(state.beams, dtype=torch.bool) if new == 1 else torch.ones(1, new, dtype=torch.bool)
            state.shaded()[:, :, before:end] = torch.where(own, 0.0, -math.inf)
        elif state.places is None and (new == 1 or before == 0):
            return Look(None, new > 1, rotation)
        shade = self.zero.expand(1, 1, end) if state.shade is None else state.shade[:, :, :end]
        if new > 1:
            later = torch.arange(end) > torch.arange(before, end)[:, None]
            shade = shade.masked_fill(later, -math.inf)
        shade = shade[:, None]
        if state.places is not None:
            queries = self.queries(state, new).expand(-1, tokens)
            state.places[:, before:end] = queries
            distance = (queries[:, :, None] - state.places[:, None, :end])[:, None]
            if self.config.window is not None:
                shade = shade.masked_fill(distance >= self.config.window, -math.inf)
            if self.config.positions == "alibi":
                shade = shade - self.model.slopes.table[:, None, None] * distance
        return Look(shade, False, rotation)

    def run(self, x: Float[Tensor, "R C"], state: Columns, new: int) -> Float[Tensor, "R C"]:
        """Through the layers. Rows stand (sentence, beam, token); several tokens at once only where there are no beams."""
        if new > 1 and state.beams > 1:
            raise ValueError("beams write one token at a time")
        sentences, start, end = state.sentences, state.filled, state.filled + state.beams * new
        look = self.look(state, new).for_groups(self.groups, state.beams * new, x.dtype)
        rotation, source = look.rotation, state.source_look

        def attend(i: int, attention: FastAttention, qkv: Tensor) -> Tensor:
            q, k, v = torch.split_with_sizes(qkv, attention.widths, -1)
            keys, values = state.keys[i], state.values[i]
            keys.narrow(2, start, end - start).copy_(attention.keys(k, sentences, rotation))
            values.narrow(2, start, end - start).copy_(attention.values(v, sentences))
            q = attention.queries(q, sentences, rotation)
            return attention.attend(q, keys.narrow(2, 0, end), values.narrow(2, 0, end), look)

        def recall(i: int, attention: FastAttention, q: Tensor) -> Tensor:
            return attention.attend(attention.queries(q, sentences, None), *state.memories[i], source)

        for i, layer in enumerate(self.layers):
            x = layer(x, i, attend, recall)
        return self.norm(x)

    def embed(self, tokens: Int[Tensor, "R new"], state: Columns, table: Any, positions: Any, norm: Any) -> Tensor:
        new = tokens.size(1)
        table.check(tokens)
        x = F.embedding(tokens.flatten(), table.weight)
        if table.factor != 1.0:
            x.mul_(table.factor)
        if positions is not None:
            positions.grow(state.longest + new)
            x.view(state.sentences, -1, x.size(1)).add_(positions(self.queries(state, new)))
        return make_norm(norm)(x)

    def advance(self, state: Columns, new: int, lengths: Sequence[int] | None) -> None:
        start = state.filled
        state.filled += state.beams * new
        state.longest += new
        if lengths is None or all(length == new for length in lengths):
            state.lengths += new
            return
        real = torch.tensor(list(lengths))
        state.even = False
        state.lengths += real
        padding = torch.arange(new) >= real[:, None]
        state.shaded()[:, :, start : state.filled].masked_fill_(padding[:, None], -math.inf)


class TransformerEngine(Engine):
    def __init__(self, model: Any, make: MakeLinear = transposed_linear) -> None:
        super().__init__(model, make)
        self.encoder = [FastLayer(layer, make) for layer in model.encoder.layers]
        self.encoder_norm = make_norm(model.encoder.norm)

    def start(self, source: Rows, capacity: int, *, beams: int = 1) -> Columns:
        state = self.room(source.shape[0], capacity * beams, beams=beams)
        real = None if source.layout == "whole" else source.real.flatten().nonzero().flatten()
        x = self.encode(source, real)
        for layer in self.layers:
            assert layer.cross is not None
            k, v = spread_out(layer.cross.key_value(x), source, real).split(layer.cross.widths[1:], dim=-1)
            keys = layer.cross.keys(k, state.sentences, None).contiguous()
            state.memories.append((keys, layer.cross.values(v, state.sentences).contiguous()))
        if real is not None:
            state.source_look = Look(torch.where(source.real, 0.0, -math.inf).to(x.dtype)[:, None, None])
        return state

    def encode(self, source: Rows, real: Int[Tensor, "n"] | None) -> Float[Tensor, "n C"]:
        """The encoder's output for the tokens that are no padding, one after the other."""
        model = self.model
        sentences, tokens = source.shape
        view = model.view(source, causal=False)
        x = model.embed(model.source_table, model.source_positions, source.tokens, source.places, tokens).flatten(0, 1)
        x = x if real is None else x.index_select(0, real)
        x = make_norm(model.source_norm)(x)
        shade: Tensor | None = None
        if view.mask.allowed is not None:
            shade = torch.where(view.mask.allowed, 0.0, -math.inf).to(x.dtype)
        if view.mask.bias is not None:
            shade = view.mask.bias if shade is None else view.mask.bias + shade
        look = Look(shade, False, view.rotation).for_groups(self.groups, tokens, x.dtype)
        rotation = look.rotation

        def attend(_: int, attention: FastAttention, qkv: Tensor) -> Tensor:
            q, k, v = spread_out(qkv, source, real).split(attention.widths, dim=-1)
            q, k = attention.queries(q, sentences, rotation), attention.keys(k, sentences, rotation)
            found = attention.attend(q, k, attention.values(v, sentences), look)
            return found if real is None else found.index_select(0, real)

        for i, layer in enumerate(self.encoder):
            x = layer(x, i, attend)
        return self.encoder_norm(x)

    def step(
        self, tokens: Int[Tensor, "R new"], state: Columns, lengths: Sequence[int] | None = None
    ) -> Float[Tensor, "R new V"]:
        model, new = self.model, tokens.size(1)
        x = self.embed(tokens, state, model.target_table, model.target_positions, model.target_norm)
        x = self.run(x, state, new)
        self.advance(state, new, lengths)
        return self.output(x).view(tokens.size(0), new, -1)


def spread_out(x: Float[Tensor, "n D"], rows: Rows, real: Int[Tensor, "n"] | None) -> Float[Tensor, "all D"]:
    """What was computed for the real tokens, back in rows; zeros in the padding."""
    if real is None:
        return x
    return x.new_zeros(rows.tokens.numel(), x.size(1)).index_copy_(0, real, x)


class GPTEngine(Engine):
    def start(self, rows: int, capacity: int) -> Columns:
        return self.room(rows, capacity)

    def step(
        self, tokens: Int[Tensor, "R new"], state: Columns, lengths: Sequence[int] | None = None
    ) -> Float[Tensor, "R new V"]:
        model, new = self.model, tokens.size(1)
        x = self.embed(tokens, state, model.embedding, model.positions, model.embedding_norm)
        x = self.run(x, state, new)
        self.advance(state, new, lengths)
        return self.output(x).view(tokens.size(0), new, -1)
