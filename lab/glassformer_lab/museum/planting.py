"""Mistakes of the circulating tutorials (docs/errata.md), planted in a model from outside.

A mixin goes before the model's own class, or a subclass takes the place of a layer, by `__class__`, as `accel` installs what is
fast; the equations of `nn` and `models` know of none. What is planted is no known module (`nn/known.py`), so that the model
itself decodes, and the weights have the names they always have.

    model = plant(build_model(config), "softmax-twice")
    runs.train(recipe, out, build=planting("softmax-twice"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glassformer.config import ModelConfig, did_you_mean
from glassformer.errors import ConfigError, UserError
from glassformer.language import _
from glassformer.nn.attention import MultiHeadAttention, attention_scores, repeat_kv
from glassformer.nn.block import BlockInputs, DecoderLayer, Encoder, EncoderLayer
from glassformer.nn.loss import IGNORE, linear_cross_entropy
from glassformer.nn.masks import AttentionMask


def loss_of_probabilities(
    x: Tensor, weight: Tensor, labels: Tensor, *, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy of softmax(x W^T + b) as if it were logits, summed."""
    scores = F.linear(x, weight, bias).float().softmax(-1).flatten(0, -2)
    how: dict[str, Any] = {"ignore_index": IGNORE, "reduction": "sum", "label_smoothing": smoothing}
    return F.cross_entropy(scores, labels.flatten(), **how)


def loss_of_read_tokens(
    x: Tensor, weight: Tensor, labels: Tensor, *, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy against each label one place late: against the token that is read there, summed."""
    return linear_cross_entropy(x, weight, F.pad(labels[:, :-1], (1, 0), value=IGNORE), bias=bias, smoothing=smoothing)


def fixed(loss: Callable[..., Tensor]) -> property:
    """A loss that a model keeps, whatever is installed in its place later (`accel` has a faster one)."""
    return property(lambda model: loss, lambda model, installed: None)


class UnmaskedDecoder:
    """The decoder's self-attention has no causal mask where a whole text is read: in training, and when it is scored."""

    def block_inputs(self, rows: Any, *, causal: bool, cross_mask: Any = None) -> BlockInputs:
        """As the encoder's, for every stack."""
        return super().block_inputs(rows, causal=False, cross_mask=cross_mask)  # type: ignore[misc, no-any-return]


class CausalEncoder:
    """The encoder has the decoder's causal mask: the beginning of a source does not see its end."""

    def block_inputs(self, rows: Any, *, causal: bool, cross_mask: Any = None) -> BlockInputs:
        """As the decoder's, for every stack."""
        return super().block_inputs(rows, causal=True, cross_mask=cross_mask)  # type: ignore[misc, no-any-return]


class AnswerInEncoder:
    """The encoder is given the text that the decoder is to write; when there is none yet, while decoding, the source."""

    def hidden(self, source: Any, target: Any, source_lengths: Any = None, target_lengths: Any = None) -> Tensor:
        """The decoder's output for one text on both sides."""
        return super().hidden(target, target, target_lengths, target_lengths)  # type: ignore[misc, no-any-return]


class SourceUnread:
    """What the encoder found is lost on the way to the decoder."""

    def encode(self, source: Any, lengths: Any = None) -> Tensor:
        """Zeros in the encoder's shape."""
        return super().encode(source, lengths) * 0  # type: ignore[misc, no-any-return]


class NoPositions:
    """Positions are not added to embeddings."""

    def embed(self, embedding: Any, encoding: Any, *rest: Any) -> Tensor:
        """Embeddings alone."""
        return super().embed(embedding, None, *rest)  # type: ignore[misc, no-any-return]


class DoubleDropout:
    """Dropout inside the position encoding, and again after it."""

    def embed(self, *args: Any) -> Tensor:
        """Embeddings with positions, dropped for the first time."""
        return self.drop(super().embed(*args))  # type: ignore[attr-defined, misc, no-any-return]


class SoftmaxTwice:
    """The output layer ends with a softmax, and cross-entropy applies its own to that."""

    def logits(self, x: Tensor) -> Tensor:
        """Probabilities, where logits are expected."""
        return super().logits(x).softmax(-1)  # type: ignore[misc, no-any-return]

    cross_entropy = fixed(loss_of_probabilities)


class TargetsNotShifted:
    """The loss asks for the token that is read, and not for the next one."""

    cross_entropy = fixed(loss_of_read_tokens)


class PaddingReadingEncoder(Encoder):
    """An encoder without a mask: padding is read."""

    def forward(self, x: Float[Tensor, "B T C"], inputs: BlockInputs, *args: Any, **options: Any) -> Tensor:
        """x through every block, each token seeing its whole row."""
        return super().forward(x, replace(inputs, mask=replace(inputs.mask, allowed=None)), *args, **options)


class ResidualAfterNorm:
    """x = norm(x); x = x + f(x)."""

    def add_and_norm(
        self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor], real: Bool[Tensor, "B T"] | None
    ) -> Tensor:
        """The residual is what the norm has left of x."""
        x = norm(x, real)
        return x + self.drop(sublayer(x))  # type: ignore[attr-defined, no-any-return]


class NoAttention(MultiHeadAttention):
    """Two linear layers where attention should be: a token's value, and the output projection. No token sees another."""

    def forward(self, x: Any, mask: Any = None, memory: Any = None, **options: Any) -> Tensor:
        """x W_v W_o, whatever there is to attend to; a cache is filled as ever, and not read."""
        _q, k, v = self.project(x)
        if memory is None and options.get("cache") is not None:
            options["cache"].append(options.get("layer", 0), k, v)
        return self.out(repeat_kv(_q, k, v)[1].transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class ExplicitAttention(MultiHeadAttention):
    """Attention by the equation, its weights by `weigh`."""

    def weigh(self, scores: Tensor, allowed: Bool[Tensor, "..."]) -> Tensor:
        """(B, H, T, S) -> (B, H, T, S); `allowed` is the mask."""
        raise NotImplementedError

    def fused(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> Tensor:
        """No kernel computes it."""
        return self.explicit(q, k, v, mask, q.size(2))

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, length: int = 0) -> Tensor:
        """The equation, with its two taps."""
        k, v = repeat_kv(q, k, v)
        scores = attention_scores(q, k, scaled=self.scaled)
        scores = self.tap_rows("scores", scores if mask.bias is None else scores + mask.bias, length)
        allowed = mask.to_tensor(q.size(2), k.size(2), q.device)
        allowed = scores.new_ones((), dtype=torch.bool) if allowed is None else allowed
        weights = self.tap_rows("weights", self.weigh(scores, allowed), length)
        return F.dropout(weights, self.dropout, self.training) @ v


class SoftmaxOverQueries(ExplicitAttention):
    """softmax(scores, dim=-2): a key shares itself out among the queries."""

    def weigh(self, scores: Tensor, allowed: Bool[Tensor, "..."]) -> Tensor:
        """Columns that add up to 1."""
        return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-2).masked_fill(~allowed, 0.0)


class MaskAfterSoftmax(ExplicitAttention):
    """The mask is of the weights, whose sum has counted what it hides."""

    def weigh(self, scores: Tensor, allowed: Bool[Tensor, "..."]) -> Tensor:
        """Rows that add up to less than 1."""
        return scores.softmax(-1).masked_fill(~allowed, 0.0)


def put_before(module: nn.Module, mixin: type) -> None:
    """A mixin before a module's own class."""
    module.__class__ = type(mixin.__name__, (mixin, type(module)), {"__module__": __name__})


def enlarge_embeddings(model: Any) -> None:
    """First weights of embeddings as nn.Embedding has them, N(0, 1), where the output layer is the same table."""
    for name, parameter in model.named_parameters():
        if name.endswith("embedding.weight"):
            nn.init.normal_(parameter)


def change_layers(model: Any, kinds: dict[type, type]) -> None:
    """Every module of exactly one of these types gets the other."""
    for module in model.modules():
        if type(module) in kinds:
            module.__class__ = kinds[type(module)]


BLOCKS: dict[type, type] = {
    kind: type("ResidualAfterNorm", (ResidualAfterNorm, kind), {}) for kind in (EncoderLayer, DecoderLayer)
}
MIXINS: dict[str, type] = {
    "unmasked-decoder": UnmaskedDecoder,
    "answer-in-encoder": AnswerInEncoder,
    "source-unread": SourceUnread,
    "causal-encoder": CausalEncoder,
    "no-positions": NoPositions,
    "double-dropout": DoubleDropout,
    "softmax-twice": SoftmaxTwice,
    "targets-not-shifted": TargetsNotShifted,
}
LAYERS: dict[str, dict[type, type]] = {
    "padding-read": {Encoder: PaddingReadingEncoder},
    "residual-after-norm": BLOCKS,
    "linear-layers": {MultiHeadAttention: NoAttention},
    "softmax-over-queries": {MultiHeadAttention: SoftmaxOverQueries},
    "mask-after-softmax": {MultiHeadAttention: MaskAfterSoftmax},
}


MISTAKES = (*MIXINS, *LAYERS, "large-embeddings")


def check_place(config: ModelConfig, name: str) -> None:
    """Refuses a mistake that a model has no place for."""
    of_encoder = name in ("answer-in-encoder", "source-unread", "causal-encoder", "padding-read")
    places = {
        _("model.family=transformer"): config.family == "transformer" if of_encoder else config.family != "bert",
        _("one vocabulary for both sides"): name != "answer-in-encoder" or config.source_vocab_size is None,
        _("model.positions=sinusoidal or learned"): name != "no-positions"
        or config.positions in ("sinusoidal", "learned"),
        _("positions other than model.positions=relative"): name not in ("unmasked-decoder", "causal-encoder")
        or config.positions != "relative",  # whose tables are of one direction
        _("model.pre_norm=true and model.residual=true"): name != "residual-after-norm"
        or (config.pre_norm and config.residual),
        _("model.dropout above 0"): name != "double-dropout" or config.dropout > 0,
        _("model.tie_output=true"): name != "large-embeddings" or config.tie_output,
    }
    for needed, there in places.items():
        if not there:
            raise ConfigError("the mistake {name} needs {needed}; set that", name, needed)


def plant(model: Any, name: str) -> Any:
    """The model, in place, with the mistake of this name."""
    if name not in MISTAKES:
        raise UserError("there is no mistake {name!r}{suggestion}", name, did_you_mean(name, list(MISTAKES)))
    check_place(model.config, name)
    if name in MIXINS:
        put_before(model, MIXINS[name])
    elif name in LAYERS:
        change_layers(model, LAYERS[name])
    else:
        enlarge_embeddings(model)
    return model


def planting(name: str) -> Callable[[Any], Any]:
    """What trains a run with the mistake of this name: its `build`."""

    def build(model: Any) -> Any:
        return plant(model, name)

    build.__name__ = name
    return build
