"""Wrong answers that are known, by exercise: the mistake, and a function that makes it. Of a class it is a forward, called with
our own layer of the same weights. An answer that gives what one of them gives has its mistake.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.classic import transformer as classic
from glassformer.language import _

Wrong = list[tuple[str, Callable[..., Any]]]

AXIS = _("the softmax runs over the wrong axis; over the keys, the last one, it is dim=-1")
MASK_LEFT_OUT = _("the mask is left out")
NO_RESIDUAL = _("there is no residual: x + f(norm(x))")
AFTER_NORM = _("the residual is after the norm: it is the x that is not normalised")
POST_NORM = _("the norm is of the sum (post-norm), and is to be of what a part reads: x + f(norm(x))")
PADDING_READ = _("padding of the source is read: hand src_mask on")


def scores(q: Tensor, k: Tensor) -> Tensor:
    """q kᵀ / √D."""
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


def hidden(x: Tensor, mask: Tensor | None, value: float = -math.inf) -> Tensor:
    """Scores with a number where the mask is False."""
    return x if mask is None else x.masked_fill(~mask, value)


def heads(*, project: bool = True, split: bool = True, turn: bool = True, join: bool = True, mask: bool = True) -> Any:
    """A forward of several heads that leaves out what is False."""

    def forward(m: Any, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None = None) -> Tensor:
        q, k, v = (f(x) if project else x for f, x in zip(m.c_attns, (query, key, value), strict=True))
        if split:
            q, k, v = (x.unflatten(-1, (m.n_head, -1)).transpose(1, 2) for x in (q, k, v))
        y = classic.attention(q, k, v, allowed if mask else None)
        if split:
            y = y.transpose(1, 2).flatten(2) if turn else y.reshape(query.shape)
        return m.c_proj(y) if join else y

    return forward


def by_query(m: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Heads, with keys and values cut by the query's length."""
    length = query.size(1)
    texts = zip(m.c_attns, (query, key, value), strict=True)
    q, k, v = (f(x).view(query.size(0), length, m.n_head, -1).transpose(1, 2) for f, x in texts)
    return m.c_proj(classic.attention(q, k, v, mask).transpose(1, 2).flatten(2))


def layer(how: str, number_after: int = 9, masked: bool = True, sourced: bool = True) -> Any:
    """A forward of an encoder's or a decoder's layer: "pre", "post", without a residual ("none"), or with that of the first parts
    ("after", so many of them) taken after the norm."""

    def forward(m: Any, x: Tensor, *given: Tensor) -> Tensor:
        decodes = hasattr(m, "m_attn")
        mask = given[-1] if masked and len(given) > decodes else None
        memory = given[0] if decodes and sourced else None
        parts = [m.attn, m.mlp] if not decodes else [m.m_attn, m.attn, m.mlp]
        for number, part in enumerate(parts):
            norm = getattr(m, f"ln_{number + 1}")
            h = x if how == "post" else norm(x)
            if part is m.attn:
                y = part(h, h, h, mask) if memory is None else part(h, memory, memory, mask)
            else:
                y = part(h) if part is m.mlp else part(h, h, h)
            stream = h if how == "after" and number < number_after else x
            x = norm(x + y) if how == "post" else y if how == "none" else stream + y
        return x

    return forward


def of_layer() -> Wrong:
    """Those of an encoder's or a decoder's layer."""
    after = [(AFTER_NORM, layer("after", count)) for count in (1, 2, 3)]
    return [
        *after,
        (NO_RESIDUAL, layer("none")),
        (POST_NORM, layer("post")),
        (PADDING_READ, layer("pre", masked=False)),
    ]


def angles(length: int, width: int, n: float, step: int = 2) -> Tensor:
    """The angles of sinusoids."""
    return torch.arange(length)[:, None] / n ** (torch.arange(width // 2) * step / width)


def interleaved(a: Tensor, b: Tensor) -> Tensor:
    """The columns of one and the other in turn."""
    return torch.stack((a, b), -1).flatten(1)


def normed(
    x: Tensor, weight: Tensor, bias: Tensor, axis: int = -1, unbiased: bool = False, eps: float = 1e-5
) -> Tensor:
    """Layer norm, or another."""
    mean, variance = x.mean(axis, keepdim=True), x.var(axis, keepdim=True, unbiased=unbiased)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


WRONG: dict[str, Wrong] = {
    "softmax": [
        *((AXIS, lambda x, axis=axis: x.softmax(axis)) for axis in (0, 1, -2)),
        (
            _("exp of a large number is infinite: subtract the largest of each row first"),
            lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        ),
        (_("what is divided by is the sum of everything, and not of each row"), lambda x: x.exp() / x.exp().sum()),
        (_("nothing is divided by the sum of its row"), lambda x: x.exp()),
    ],
    "attention": [
        (
            _("no root of the head's size: divide the scores by √D"),
            lambda q, k, v, mask=None: hidden(q @ k.transpose(-2, -1), mask).softmax(-1) @ v,
        ),
        (
            _("the scores are divided by D and not by its root"),
            lambda q, k, v, mask=None: hidden(scores(q, k) / math.sqrt(q.size(-1)), mask).softmax(-1) @ v,
        ),
        (
            _("the root is of the values' size, and is to be of the keys'"),
            lambda q, k, v, mask=None: hidden(q @ k.transpose(-2, -1) / math.sqrt(v.size(-1)), mask).softmax(-1) @ v,
        ),
        (AXIS, lambda q, k, v, mask=None: hidden(scores(q, k), mask).softmax(-2) @ v),
        (_("there is no softmax"), lambda q, k, v, mask=None: hidden(scores(q, k), mask, 0.0) @ v),
        (MASK_LEFT_OUT, lambda q, k, v, mask=None: classic.attention(q, k, v)),
        (
            _("the mask is the wrong way round: True is allowed"),
            lambda q, k, v, mask: classic.attention(q, k, v, ~mask),
        ),
        (
            _("the mask comes after the softmax: put -inf into the scores before it"),
            lambda q, k, v, mask: hidden(scores(q, k).softmax(-1), mask, 0.0) @ v,
        ),
        (
            _("the mask is added as ones and zeros, which hides nothing"),
            lambda q, k, v, mask: (scores(q, k) + mask).softmax(-1) @ v,
        ),
        (
            _("hidden scores are 0, which is a score like any other: -inf"),
            lambda q, k, v, mask: hidden(scores(q, k), mask, 0.0).softmax(-1) @ v,
        ),
    ],
    "mask": [
        (_("this is the upper triangle: what comes later"), lambda n: torch.ones(n, n, dtype=torch.bool).triu()),
        (
            _("no position sees itself: the diagonal belongs to it"),
            lambda n: torch.ones(n, n, dtype=torch.bool).tril(-1),
        ),
        (_("each position sees the next one"), lambda n: torch.ones(n, n, dtype=torch.bool).tril(1)),
        (_("this is what is forbidden, and True is allowed"), lambda n: torch.ones(n, n, dtype=torch.bool).triu(1)),
    ],
    "padding": [
        (_("one place too many: < and not <="), lambda lengths, width: torch.arange(width) <= lengths[:, None]),
        (_("this is the padding, and True is real"), lambda lengths, width: torch.arange(width) >= lengths[:, None]),
    ],
    "positions": [
        (_("n is left out"), lambda t, c, n: interleaved(angles(t, c, 1e4).sin(), angles(t, c, 1e4).cos())),
        (
            _("sines and cosines stand side by side, and are to alternate"),
            lambda t, c, n: torch.cat((angles(t, c, n).sin(), angles(t, c, n).cos()), 1),
        ),
        (_("sine and cosine are exchanged"), lambda t, c, n: interleaved(angles(t, c, n).cos(), angles(t, c, n).sin())),
        (
            _("the exponent is 2i / width, and not i / width"),
            lambda t, c, n: interleaved(angles(t, c, n, 1).sin(), angles(t, c, n, 1).cos()),
        ),
    ],
    "norm": [
        (_("the variance is divided by C - 1, and is to be by C"), partial(normed, unbiased=True)),
        (_("eps is left out"), partial(normed, eps=0.0)),
        *(
            (
                _("the statistics are of the wrong axis: of the features of each token"),
                partial(normed, axis=axis),
            )
            for axis in (0, 1)
        ),
        (_("weight and bias are left out"), lambda x, weight, bias: normed(x, weight * 0 + 1, bias * 0)),
        (
            _("the root of the variance is left out"),
            lambda x, weight, bias: (
                (x - x.mean(-1, keepdim=True)) / (x.var(-1, False, keepdim=True) + 1e-5) * weight + bias
            ),
        ),
    ],
    "heads": [
        (_("query, key and value are not projected: self.c_attns"), heads(project=False)),
        (_("one attention of full width, and not n_head of them"), heads(split=False)),
        (_("one attention of full width, of what is not projected"), heads(project=False, split=False)),
        (_("keys are cut by the query's length; they have their own"), by_query),
        (_("the heads are not brought side by side: transpose back before the view"), heads(turn=False)),
        (_("the last projection is left out: self.c_proj"), heads(join=False)),
        (MASK_LEFT_OUT, heads(mask=False)),
    ],
    "encoder": of_layer(),
    "decoder": [*of_layer(), (_("the source is not read: keys and values are enc_out"), layer("pre", sourced=False))],
}

LIBRARY: dict[str, set[str]] = {
    "softmax": {"softmax", "softmin", "log_softmax"},
    "attention": {"attention", "attention_weights", "scaled_dot_product_attention"},
    "mask": {"causal_mask"},
    "padding": {"real_tokens"},
    "positions": {"sinusoids", "PositionEncoding", "PositionalEncoding"},
    "norm": {"layer_norm", "LayerNorm"},
    **{name: {"forward"} for name in ("heads", "encoder", "decoder")},
}
"""What is the library's own answer to an exercise, by the name of its function."""


def library_call(node: ast.AST, exercise: str) -> str:
    """The library's own function that an answer calls in the place of writing it, or a class inherits; or nothing."""
    if isinstance(node, ast.ClassDef) and not any(isinstance(one, ast.FunctionDef) for one in node.body):
        return "forward"
    called = (
        one.func.attr for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
    )
    return next((name for name in called if name in LIBRARY.get(exercise, ())), "")
