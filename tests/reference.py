"""The Transformer once more, in NumPy and float64, from the formulas of the papers.

It exists to disagree: written from the equations and not from `glassformer/nn`, it shares with the package only the names
of the parameters and the meaning of the settings. One sentence at a time, no batch, no padding, no cache, no mask where a
rule will do, so none of the package's bookkeeping can be repeated here by mistake. Slow on purpose, readable on purpose.
`reference_models.py` puts whole models together from it.

Sources: attention, sinusoids, label smoothing, blocks: Vaswani et al. 2017 (label smoothing after Szegedy et al. 2016);
layer norm: Ba et al. 2016; RMS norm: Zhang and Sennrich 2019; batch norm: Ioffe and Szegedy 2015; rotary: Su et al. 2021,
in the half-split order; ALiBi: Press et al. 2022; relative: Raffel et al. 2020; gated units: Shazeer 2020; squared ReLU: So
et al. 2021; GELU: Hendrycks and Gimpel 2016; grouped queries: Ainslie et al. 2023; query-key norm: Henry et al. 2020, with an
RMS norm; BERT: Devlin et al. 2019; GPT-2: Radford et al. 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Params = Mapping[str, Array]
"""Arrays by the names of the package's state_dict."""


def under(params: Params, prefix: str) -> dict[str, Array]:
    """The parameters below `prefix.`, without it."""
    return {name[len(prefix) + 1 :]: value for name, value in params.items() if name.startswith(prefix + ".")}


# ---------------------------------------------------------------------------------------------------- the small functions


def linear(x: Array, p: Params) -> Array:
    """y = x Wᵀ + b, where there is a b."""
    y = x @ p["weight"].T
    return y + p["bias"] if "bias" in p else y


def softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def gelu(x: Array) -> Array:
    """x Φ(x), with Φ the distribution function of the standard normal."""
    return x * 0.5 * (1.0 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2.0)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def relu_squared(x: Array) -> Array:
    return relu(x) ** 2


def silu(x: Array) -> Array:
    """x times the logistic function, which is (1 + tanh(x/2)) / 2 and so never overflows."""
    return x * 0.5 * (1.0 + np.tanh(x / 2.0))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu2": relu_squared,
    "silu": silu,
    "swiglu": silu,
    "geglu": gelu,
    "geglu_tanh": gelu_tanh,
}


# ------------------------------------------------------------------------------------------------------------------ norms


def layer_norm(x: Array, weight: Array, bias: Array | None, eps: float) -> Array:
    """Mean and variance over the features of each token, the variance divided by their number."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    y = (x - mean) / np.sqrt(variance + eps) * weight
    return y if bias is None else y + bias


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight


def batch_norm(
    x: Array, weight: Array, bias: Array | None, eps: float, mean: Array | None = None, variance: Array | None = None
) -> Array:
    """Each feature over all real tokens [N, C]: with their own statistics in training, with given ones afterwards."""
    if mean is None:
        mean = x.mean(axis=0)
    if variance is None:
        variance = ((x - x.mean(axis=0)) ** 2).mean(axis=0)
    y = (x - mean) / np.sqrt(variance + eps) * weight
    return y if bias is None else y + bias


def norm(x: Array, p: Params, kind: str, eps: float) -> Array:
    if kind == "none":
        return x
    if kind == "layer":
        return layer_norm(x, p["weight"], p.get("bias"), eps)
    if kind == "rms":
        return rms_norm(x, p["weight"], eps)
    if kind == "batch":  # one sentence on its own says nothing of a batch: the running statistics
        return batch_norm(x, p["weight"], p.get("bias"), eps, p["running_mean"], p["running_variance"])
    raise ValueError(kind)


# -------------------------------------------------------------------------------------------------------------- positions


def sinusoids(length: int, width: int, base: float = 10000.0) -> Array:
    """PE(pos, 2i) = sin(pos / base^(2i/width)), PE(pos, 2i+1) = cos of the same."""
    table = np.zeros((length, width))
    for position in range(length):
        for i in range(width // 2):
            angle = position / base ** (2 * i / width)
            table[position, 2 * i] = math.sin(angle)
            table[position, 2 * i + 1] = math.cos(angle)
    return table


def scaled_base(config: Any) -> float:
    """The base under NTK-aware scaling: chosen so that the slowest pair, i = D/2 - 1, turns `factor` times more slowly."""
    size = config.head_size or config.n_embd // config.n_head
    if config.rotary_scaling != "ntk" or size == 2:
        return float(config.rotary_base * (config.rotary_factor**2 if config.rotary_scaling == "ntk" else 1))
    return float(config.rotary_base * config.rotary_factor ** (size / (size - 2)))


def frequency_scaling(config: Any) -> Callable[[float], float]:
    """Llama 3.1: by its wavelength 2π/f a pair is long, short or between; a long one's frequency is divided by the factor, a
    short one's stays, and between the two the share of what stays goes by how often it turns in the length trained on."""

    def scaled(frequency: float) -> float:
        wavelength = 2 * math.pi / frequency
        if config.rotary_scaling != "llama3" or wavelength < config.rotary_length / config.rotary_high:
            return frequency
        if wavelength > config.rotary_length / config.rotary_low:
            return float(frequency / config.rotary_factor)
        smooth = (config.rotary_length / wavelength - config.rotary_low) / (config.rotary_high - config.rotary_low)
        return float((1 - smooth) * frequency / config.rotary_factor + smooth * frequency)

    return scaled


def rotate(
    x: Array, positions: Sequence[float], base: float = 10000.0, scale_frequency: Callable[[float], float] = lambda f: f
) -> Array:
    """Rotary positions on one head [T, D]: the pair (x_i, x_{i+D/2}) turns by position · base^(-2i/D)."""
    width = x.shape[-1]
    rotated = np.zeros_like(x)
    for row, position in enumerate(positions):
        for i in range(width // 2):
            angle = position * scale_frequency(base ** (-2 * i / width))
            turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            rotated[row, [i, i + width // 2]] = turn @ x[row, [i, i + width // 2]]
    return rotated


def alibi_slopes(n_head: int) -> list[float]:
    """Powers of two: 2^(-8h/n) for h = 1..n. Otherwise, as its authors publish it: the slopes of the power of two below,
    then every other slope (the 1st, 3rd, ...) of the power of two above."""

    def powers(n: int) -> list[float]:
        return [2.0 ** (-8.0 * h / n) for h in range(1, n + 1)]

    below = 2 ** math.floor(math.log2(n_head))
    return powers(below) + powers(2 * below)[0::2][: n_head - below]


def bucket(after: int, causal: bool, n_buckets: int = 32, max_distance: int = 128) -> int:
    """T5's bucket of a key so many tokens after its query, in whole numbers: a bucket each below n/2, and from there the
    k-th wide one begins where (distance / exact)^(n - exact) reaches (max_distance / exact)^k. Both ways, later keys have
    the second half."""
    if not causal:
        return (n_buckets // 2 if after > 0 else 0) + bucket(-abs(after), True, n_buckets // 2, max_distance)
    distance, exact = max(0, -after), n_buckets // 2
    if distance < exact:
        return distance
    wide = n_buckets - exact
    k = sum(distance**wide * exact**j >= max_distance**j * exact**wide for j in range(1, wide))
    return exact + k


# -------------------------------------------------------------------------------------------------------------- attention


def attention_weights(
    q: Array, k: Array, mask: NDArray[np.bool_] | None = None, bias: Array | float = 0.0, scaled: bool = True
) -> Array:
    """softmax(QKᵀ/√d_k) over the keys where `mask` is True."""
    scores = q @ np.swapaxes(k, -1, -2)
    if scaled:
        scores = scores / math.sqrt(q.shape[-1])
    scores = scores + bias
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores)


def attention(
    q: Array, k: Array, v: Array, mask: NDArray[np.bool_] | None = None, bias: Array | float = 0.0, scaled: bool = True
) -> Array:
    return attention_weights(q, k, mask, bias, scaled) @ v


def visible(length: int, causal: bool, window: int | None) -> NDArray[np.bool_]:
    """mask[t, s]: token t sees token s. A window of w shows w keys, self included (so many each way without a future)."""
    mask = np.zeros((length, length), dtype=bool)
    for t in range(length):
        for s in range(length):
            mask[t, s] = not (causal and s > t) and (window is None or abs(t - s) <= window - 1)
    return mask


def multi_head_attention(
    x: Array,
    memory: Array,
    p: Params,
    *,
    n_head: int,
    n_kv_head: int | None = None,
    mask: NDArray[np.bool_] | None = None,
    scaled: bool = True,
    rotary_base: float | None = None,
    linear_factor: float = 1.0,
    scale_frequency: Callable[[float], float] = lambda f: f,
    alibi: bool = False,
    relative: Array | None = None,
    causal: bool = True,
    qk_norm_eps: float | None = None,
) -> Array:
    """Queries of x [T, C], keys and values of memory [S, C]; one head after the other, each with its slice of the weights.

    Query head h reads key-value head h // (n_head / n_kv_head). `rotary_base` and `alibi` (for self-attention) count
    positions from 0; `qk_norm_eps` says that queries and keys are normed, each head by itself, before they turn.
    """
    n_kv_head = n_kv_head or n_head
    queries, keys, values = (
        linear(x, under(p, "query")),
        linear(memory, under(p, "key")),
        linear(memory, under(p, "value")),
    )
    d_k, d_v = queries.shape[1] // n_head, values.shape[1] // n_kv_head
    outputs = []
    for h in range(n_head):
        g = h // (n_head // n_kv_head)
        q, k, v = (
            queries[:, h * d_k : (h + 1) * d_k],
            keys[:, g * d_k : (g + 1) * d_k],
            values[:, g * d_v : (g + 1) * d_v],
        )
        if qk_norm_eps is not None:
            q = rms_norm(q, p["query_norm.weight"], qk_norm_eps)
            k = rms_norm(k, p["key_norm.weight"], qk_norm_eps)
        if rotary_base is not None:
            q, k = (
                rotate(x, [position / linear_factor for position in range(len(x))], rotary_base, scale_frequency)
                for x in (q, k)
            )
        bias: Array | float = 0.0
        if alibi:
            distance = np.abs(np.arange(len(q))[:, None] - np.arange(len(k))[None, :])
            bias = -alibi_slopes(n_head)[h] * distance
        if relative is not None:
            bias = np.array([[relative[bucket(s - t, causal), h] for s in range(len(k))] for t in range(len(q))])
        outputs.append(attention(q, k, v, mask, bias, scaled))
    return linear(np.concatenate(outputs, axis=1), under(p, "out"))


# ----------------------------------------------------------------------------------------------------- feed-forward, block


def feed_forward(x: Array, p: Params, activation: str) -> Array:
    """down(act(up x)), or for the gated kinds down(act(gate x) · up x)."""
    act = ACTIVATIONS[activation]
    if activation in ("swiglu", "geglu", "geglu_tanh"):
        hidden = act(linear(x, under(p, "gate"))) * linear(x, under(p, "up"))
    else:
        hidden = act(linear(x, under(p, "up")))
    return linear(hidden, under(p, "down"))


def block(
    x: Array, p: Params, config: Any, *, causal: bool, memory: Array | None = None, relative: Array | None = None
) -> Array:
    """Self-attention, cross-attention where there is a memory, feed-forward; config is a ModelConfig, read for its words."""

    def self_attention(y: Array) -> Array:
        return multi_head_attention(
            y,
            y,
            under(p, "attention"),
            n_head=config.n_head if causal else getattr(config, "n_encoder_head", None) or config.n_head,
            n_kv_head=config.n_kv_head,
            mask=visible(len(y), causal, config.window),
            scaled=config.scaled_attention,
            rotary_base=scaled_base(config) if config.positions == "rotary" else None,
            linear_factor=config.rotary_factor if config.rotary_scaling == "linear" else 1.0,
            scale_frequency=frequency_scaling(config),
            alibi=config.positions == "alibi",
            relative=relative,
            causal=causal,
            qk_norm_eps=config.norm_eps if config.qk_norm else None,
        )

    def cross_attention(y: Array) -> Array:
        assert memory is not None
        return multi_head_attention(
            y,
            memory,
            under(p, "cross"),
            n_head=config.n_head,
            n_kv_head=config.n_kv_head,
            scaled=config.scaled_attention,
            qk_norm_eps=config.norm_eps if config.qk_norm else None,
        )

    def mlp(y: Array) -> Array:
        return feed_forward(y, under(p, "mlp"), config.activation)

    steps = [("attention_norm", self_attention), ("mlp_norm", mlp)]
    if memory is not None:
        steps.insert(1, ("cross_norm", cross_attention))
    for name, part in steps:
        if config.pre_norm:
            y = part(norm(x, under(p, name), config.norm, config.norm_eps))
            x = x + y if config.residual else y
        else:
            y = part(x)
            x = norm(x + y if config.residual else y, under(p, name), config.norm, config.norm_eps)
    return x


def stack(x: Array, p: Params, config: Any, n_layer: int, *, causal: bool, memory: Array | None = None) -> Array:
    for i in range(n_layer):
        relative = p["positions.weight"] if config.positions == "relative" else None
        x = block(x, under(p, str(i)), config, causal=causal, memory=memory, relative=relative)
    return norm(x, under(p, "norm"), config.norm, config.norm_eps) if config.final_norm else x


# ------------------------------------------------------------------------------------------------------------------- loss


def cross_entropy(logits: Array, targets: Sequence[int], smoothing: float = 0.0) -> Array:
    """−Σ_v q_v ln p_v for each row, where q is (1 − ε) on the right class plus ε/V on every class, the right one too."""
    n_class = logits.shape[-1]
    log_p = np.log(softmax(logits))
    q = np.full_like(logits, smoothing / n_class)
    q[np.arange(len(targets)), list(targets)] += 1.0 - smoothing
    losses: Array = -(q * log_p).sum(axis=-1)
    return losses
