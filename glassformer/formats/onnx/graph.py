"""Our layers as operators of ONNX: a graph is written node by node, so every axis that may vary is dynamic.

`Graph` collects nodes and weights; each function below adds one part of the machine to it and gives the name of what comes
out. Weights keep the names they have in the model. The parts are those of `nn`, in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig

OPSET = 20
MASKED = -1e9  # added to the score of a key that is masked: its weight is exactly 0 beside one that is not
ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}


class Graph:
    """Nodes and weights. `g("MatMul", a, b)` adds a node and gives the name of its output.

    `weights`: fp32; fp16 stores them in 16 bits and computes in 32; int8 keeps every matrix of its own, to be rounded."""

    def __init__(self, name: str, weights: str = "fp32") -> None:
        from onnx import TensorProto, helper

        self.helper, self.types = helper, TensorProto
        self.name, self.half, self.shares = name, weights == "fp16", weights != "int8"
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self.tables: dict[int, str] = {}  # embedding tables by their address in memory
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def __call__(self, op: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        """One node with one output, called `to` where somebody will ask for it by name."""
        out = to or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def split(self, x: str) -> tuple[str, str]:
        """The two halves of the last axis."""
        halves = f"first_{len(self.nodes)}", f"second_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node("Split", [x], list(halves), axis=-1, num_outputs=2))
        return halves

    def constant(self, value: Any, kind: Any = np.int64) -> str:
        """Numbers that are always the same."""
        array = np.asarray(value, dtype=kind)
        name = f"constant_{array.dtype}_{array.shape}_{array.tobytes().hex()[:64]}"
        if array.nbytes > 32:
            name = f"constant_{len(self.weights)}"
        self.weights.setdefault(name, array)
        return name

    def scalar(self, value: float) -> str:
        """One float32."""
        return self.constant(value, np.float32)

    def weight(self, name: str, tensor: Tensor, *, exact: bool = False) -> str:
        """A parameter of the model by its name; the same one is kept once. `exact`: a computed table, never in fewer bits."""
        half = self.half and not exact
        if name in self.weights:
            return f"{name}_32" if half else name
        array = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
        if not half:
            self.weights[name] = array
            return name
        self.weights[name] = array.astype(np.float16)
        return self.cast(name, f"{name}_32")

    def cast(self, x: str, out: str) -> str:
        """To float32."""
        self.nodes.append(self.helper.make_node("Cast", [x], [out], to=self.types.FLOAT))
        return out

    def add_input(self, kind: str, name: str, axes: list[Any]) -> str:
        """An input of the graph: float or int64; axes are sizes, or names of what may vary."""
        self.inputs.append(self.helper.make_tensor_value_info(name, getattr(self.types, kind.upper()), axes))
        return name

    def add_output(self, name: str, axes: list[Any]) -> None:
        """An output of the graph, floating."""
        self.outputs.append(self.helper.make_tensor_value_info(name, self.types.FLOAT, axes))

    def model(self) -> Any:
        """The whole as ONNX's own message."""
        from onnx import numpy_helper

        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = self.helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, weights)
        opset = [self.helper.make_opsetid("", OPSET)]
        return self.helper.make_model(graph, opset_imports=opset, producer_name="glassformer", ir_version=10)


def linear(g: Graph, name: str, layer: nn.Linear, x: str) -> str:
    """x W^T + b; the matrix is kept as in x out, ready for the product."""
    y = g("MatMul", x, g.weight(f"{name}.weight", layer.weight.T))
    return y if layer.bias is None else g("Add", y, g.weight(f"{name}.bias", layer.bias))


def rms(g: Graph, name: str, norm: Any, x: str) -> str:
    """x / sqrt(mean(x^2) + eps) * weight"""
    square = g("ReduceMean", g("Mul", x, x), g.constant([-1]), keepdims=1)
    size = g("Sqrt", g("Add", square, g.scalar(norm.eps)))
    return g("Mul", g("Div", x, size), g.weight(f"{name}.weight", norm.weight))


def norm(g: Graph, name: str, layer: Any, x: str) -> str:
    """Any of the norms, as it is in evaluation mode."""
    kind = type(layer).__name__
    if kind == "NoNorm":
        return x
    if kind == "RMSNorm":
        return rms(g, name, layer, x)
    if kind not in ("LayerNorm", "BatchNorm"):
        raise TypeError(f"there are no operators yet for {kind}: formats.onnx.graph.norm has to name them")
    weight = g.weight(f"{name}.weight", layer.weight)
    bias = [] if layer.bias is None else [g.weight(f"{name}.bias", layer.bias)]
    if kind == "LayerNorm":
        return g("LayerNormalization", x, weight, *bias, axis=-1, epsilon=layer.eps)
    scale = torch.rsqrt(layer.running_variance + layer.eps)
    centred = g("Sub", x, g.weight(f"{name}.running_mean", layer.running_mean))
    y = g("Mul", g("Mul", centred, g.weight(f"{name}.scale", scale)), weight)
    return g("Add", y, *bias) if bias else y


def activate(g: Graph, name: str, x: str) -> str:
    """An activation by its name."""
    match ACTIVATIONS.get(name, name):
        case "relu":
            return g("Relu", x)
        case "relu2":
            y = g("Relu", x)
            return g("Mul", y, y)
        case "gelu":
            return g("Gelu", x)
        case "gelu_tanh":
            return g("Gelu", x, approximate="tanh")
    return g("Mul", x, g("Sigmoid", x))


def mlp(g: Graph, name: str, layer: Any, activation: str, x: str) -> str:
    """The feed-forward network: up, activation, down; gated or not."""
    up = linear(g, f"{name}.up", layer.up, x)
    if hasattr(layer, "gate"):
        up = g("Mul", activate(g, activation, linear(g, f"{name}.gate", layer.gate, x)), up)
    else:
        up = activate(g, activation, up)
    return linear(g, f"{name}.down", layer.down, up)


# ------------------------------------------------------------------------------------------------------------- attention


class RotationNodes:
    """The cosine and sine of every token's rotary angles: (B, 1, T, half)."""

    def __init__(self, g: Graph, rotary: Any, positions: str, n_positions: int) -> None:
        cos, sin = rotary.covering(n_positions)[:n_positions].chunk(2, dim=-1)
        self.cos, self.sin = (
            g("Unsqueeze", g("Gather", g.weight(f"rotary.{n}", t, exact=True), positions), g.constant([1]))
            for n, t in (("cos", cos), ("sin", sin))
        )

    def rotate(self, g: Graph, x: str) -> str:
        """Every pair (i, i + D/2) of a head rotated by its token's angle."""
        first, second = g.split(x)
        rotated = (
            g("Sub", g("Mul", first, self.cos), g("Mul", second, self.sin)),
            g("Add", g("Mul", first, self.sin), g("Mul", second, self.cos)),
        )
        return g("Concat", *rotated, axis=-1)


def split_heads(g: Graph, x: str, count: int, size: int) -> str:
    """(B, T, H * D) -> (B, H, T, D)"""
    return g("Transpose", g("Reshape", x, g.constant([0, 0, count, size])), perm=[0, 2, 1, 3])


def queries(g: Graph, name: str, a: Any, x: str, rotation: RotationNodes | None) -> str:
    """The queries of an attention, normed, rotated and scaled where asked for."""
    q = split_heads(g, linear(g, f"{name}.query", a.query, x), a.n_head, a.head_size)
    q = q if a.query_norm is None else rms(g, f"{name}.query_norm", a.query_norm, q)
    q = q if rotation is None else rotation.rotate(g, q)
    return g("Mul", q, g.scalar(a.head_size**-0.5)) if a.scaled else q


def keys_values(g: Graph, name: str, a: Any, x: str, rotation: RotationNodes | None) -> tuple[str, str]:
    """Its keys and values."""
    k = split_heads(g, linear(g, f"{name}.key", a.key, x), a.n_kv_head, a.head_size)
    v = split_heads(g, linear(g, f"{name}.value", a.value, x), a.n_kv_head, a.value_size)
    k = k if a.key_norm is None else rms(g, f"{name}.key_norm", a.key_norm, k)
    return (k if rotation is None else rotation.rotate(g, k)), v


def repeat_kv(g: Graph, a: Any, x: str) -> str:
    """Keys or values once for each of the query heads that share them: (B, Hk, S, D) -> (B, H, S, D)."""
    if a.n_kv_head == a.n_head and a.kv_head_of is None:
        return x
    kv_head_of = a.kv_head_of or [i // (a.n_head // a.n_kv_head) for i in range(a.n_head)]
    return g("Gather", x, g.constant(kv_head_of), axis=1)


def attention(g: Graph, name: str, a: Any, q: str, k: str, v: str, mask: str | None) -> str:
    """softmax(q k^T + mask) v, the heads joined by the output projection."""
    scores = g("MatMul", q, g("Transpose", repeat_kv(g, a, k), perm=[0, 1, 3, 2]))
    weights = g("Softmax", scores if mask is None else g("Add", scores, mask), axis=-1)
    out = g("MatMul", weights, repeat_kv(g, a, v))
    joined = g("Reshape", g("Transpose", out, perm=[0, 2, 1, 3]), g.constant([0, 0, a.n_head * a.value_size]))
    return linear(g, f"{name}.out", a.out, joined)


def cross_attention(g: Graph, name: str, a: Any, q: str, k: str, v: str, mask: str) -> str:
    """The same to the keys and values of the source. There may be more rows than sources: the beams of one source stand side by
    side, so its keys are never copied. q (B * beams, H, T, D); k and v (B, H, S, D); mask (B, 1, 1, 1, S)."""
    size = g("Concat", g("Shape", k, start=0, end=1), g.constant([-1]), g("Shape", q, start=1), axis=0)
    apart, one = g("Reshape", q, size), g.constant([1])
    scores = g("MatMul", apart, g("Unsqueeze", g("Transpose", k, perm=[0, 1, 3, 2]), one))
    weights = g("Softmax", g("Add", scores, mask), axis=-1)
    out = g("MatMul", weights, g("Unsqueeze", v, one))  # (B, beams, H, T, D)
    out = g("Transpose", out, perm=[0, 1, 3, 2, 4])
    shape = g("Concat", g.constant([-1]), g("Shape", q, start=2, end=3), g.constant([a.n_head * a.value_size]), axis=0)
    return linear(g, f"{name}.out", a.out, g("Reshape", out, shape))


def additive_mask(g: Graph, allowed: str) -> str:
    """A boolean mask as what is added to the scores: 0 where attention is allowed, and far below everything where it is not."""
    return g("Where", allowed, g.scalar(0.0), g.scalar(MASKED))


def self_mask(g: Graph, config: ModelConfig, model: Any, mask: str, positions: str, *, causal: bool) -> str:
    """The additive mask of self-attention: real tokens; none that comes later; none outside the window; ALiBi's bias. `mask`
    (B, S) is 1 where a token is real, `positions` (B, S) has its position; the last T of the S tokens are the queries."""
    real = g("Unsqueeze", g("Greater", mask, g.constant(0)), g.constant([1, 2]))  # (B, 1, 1, S)
    query = g("Unsqueeze", "query_positions", g.constant([1, 3]))  # (B, 1, T, 1)
    key = g("Unsqueeze", positions, g.constant([1, 2]))  # (B, 1, 1, S)
    distance = g("Sub", query, key)
    allowed = real
    if causal:
        columns = g("Unsqueeze", "key_columns", g.constant([0, 1, 2]))
        rows = g("Unsqueeze", "query_columns", g.constant([0, 1, 3]))
        allowed = g("And", allowed, g("LessOrEqual", columns, rows))
    if config.window is not None:
        allowed = g("And", allowed, g("Less", g("Abs", distance), g.constant(config.window)))
    added = additive_mask(g, allowed)
    if config.positions == "alibi":
        slopes = g.weight("slopes", -model.slopes.table.reshape(1, -1, 1, 1), exact=True)
        far = g.cast(g("Abs", distance), f"distance_{len(g.nodes)}")
        added = g("Add", added, g("Mul", slopes, far))
    return added


def head_mask(g: Graph, config: ModelConfig, a: Any, mask: str) -> str:
    """The mask of the heads that are left after pruning: with ALiBi each head has its own."""
    if config.positions != "alibi" or not a.pruned:
        return mask
    return g("Gather", mask, g.constant(list(a.head_ids)), axis=1)
