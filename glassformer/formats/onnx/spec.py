"""A model of ours as ONNX graphs, for onnxruntime and whatever else reads them.

    encoder-decoder   encoder.onnx   input_ids, attention_mask (B, S)  ->  cross_key.i, cross_value.i (B, H, S, D), one a layer
                      decoder.onnx   input_ids (R, T), attention_mask (R, P + T), past_key.i, past_value.i (R, H, P, D),
                                     cross_key.i, cross_value.i, source_mask (B, S)
                                     ->  logits (R, T, V), present_key.i, present_value.i (R, H, P + T, D)
    GPT               model.onnx     the same without a source
    BERT              model.onnx     input_ids, attention_mask (B, T)  ->  logits (B, T, V); without a head logits are the last
                                     hidden state (B, T, C)

Every axis with a letter may have any size: P is 0 for the first call, R is a multiple of B (the beams of a source stand side
by side). A mask is 1 where a token is real; positions are counted over real tokens, so prompts of different lengths are padded
on the left, and what is padding does not matter. Positions are tables of `n_positions` rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.config import ModelConfig
from glassformer.formats.onnx.graph import (
    Graph,
    RotationNodes,
    activate,
    additive_mask,
    attention,
    cross_attention,
    head_mask,
    keys_values,
    linear,
    mlp,
    norm,
    queries,
    repeat_kv,
    self_mask,
)
from glassformer.language import _

MAX_BYTES = 2**30  # of weights in one file; more go beside it, as external data


def unsupported(config: ModelConfig) -> tuple[str, str] | None:
    """The first setting that these graphs do not support, and the nearest that they do; None where they support all."""
    if any(not config.kept_heads(name) for name in config.attentions):
        return _("an attention that has lost all its heads"), _("the nearest is one with a head left")
    if config.positions == "relative":
        return _("model.positions=relative"), _("the nearest is model.positions=alibi")
    return None


def embed(g: Graph, embedding: Any, name: str, encoding: Any, positions: str, n_positions: int) -> str:
    """Token embedding plus positional encoding, of which `n_positions` rows are written where it has no end."""
    table = g.tables[embedding.weight.data_ptr()] = g.weight(f"{name}.weight", embedding.weight)
    x = g("Gather", table, "input_ids")
    x = x if embedding.factor == 1.0 else g("Mul", x, g.scalar(embedding.factor))
    if encoding is None:
        return x
    if hasattr(encoding, "weight"):
        return g("Add", x, g("Gather", g.weight("positions.weight", encoding.weight), positions))
    rows = g.weight("positions.table", encoding.covering(n_positions)[:n_positions], exact=True)
    return g("Add", x, g("Gather", rows, positions))


def positions_of(g: Graph, mask: str) -> tuple[str, str]:
    """Positions of all tokens and of the queries (the last T), and the columns of both, for the masks."""
    # The position of a token, (B, S): how many real ones stand before it.
    positions = g("Max", g("Sub", g("CumSum", mask, g.constant(1)), g.constant(1)), g.constant(0))
    new = g("Shape", "input_ids", start=1, end=2)
    g("Slice", positions, g("Neg", new), g.constant([2**31]), g.constant([1]), to="query_positions")
    every = g("Shape", mask, start=1, end=2)
    count, zero, one = g("Squeeze", every), g.constant(0), g.constant(1)
    g("Range", zero, count, one, to="key_columns")
    g("Slice", "key_columns", g("Neg", new), g.constant([2**31]), g.constant([0]), to="query_columns")
    return positions, "query_positions"


def block(g: Graph, name: str, layer: Any, config: ModelConfig, x: str, sublayers: list[tuple[str, Any]]) -> str:
    """Add & Norm of one block: `sublayers` are (norm's name, function of x)."""
    for i, (which, sublayer) in enumerate(sublayers):
        own = getattr(layer, which)
        last = name if i == len(sublayers) - 1 else None
        y = sublayer(norm(g, f"{name}.{which}", own, x) if layer.pre_norm else x)
        y = g("Add", x, y) if layer.residual else y
        x = y if layer.pre_norm else norm(g, f"{name}.{which}", own, y)
        x = g("Identity", x, to=last) if last else x
    return x


def stack(
    g: Graph, model: Any, side: str, x: str, mask: str, rotation: RotationNodes | None, source_mask: str | None = None
) -> str:
    """The layers of an encoder or a decoder and its last norm. In a decoder keys and values join those of the past; with a
    source, the keys and values of cross-attention are inputs."""
    c, layers = model.config, getattr(model, side)
    for i, layer in enumerate(layers.layers):
        name = f"{side}.{i}"

        def self_attention(y: str, name: str = f"{name}.attention", a: Any = layer.attention, i: int = i) -> str:
            k, v = keys_values(g, name, a, y, rotation)
            if side == "decoder":
                k, v = (with_past(g, f"key.{i}", a, a.head_size, k), with_past(g, f"value.{i}", a, a.value_size, v))
            return attention(g, name, a, queries(g, name, a, y, rotation), k, v, head_mask(g, c, a, mask))

        def attend_source(y: str, name: str = f"{name}.cross", layer: Any = layer, i: int = i) -> str:
            a = layer.cross
            k = g.add_input("float", f"cross_key.{i}", ["sources", a.n_head, "source", a.head_size])
            v = g.add_input("float", f"cross_value.{i}", ["sources", a.n_head, "source", a.value_size])
            assert source_mask is not None
            return cross_attention(g, name, a, queries(g, name, a, y, None), k, v, source_mask)

        def feed_forward(y: str, name: str = f"{name}.mlp", layer: Any = layer) -> str:
            return mlp(g, name, layer.mlp, c.activation, y)

        cross = [("cross_norm", attend_source)] if layer.has_cross else []
        x = block(g, name, layer, c, x, [("attention_norm", self_attention), *cross, ("mlp_norm", feed_forward)])
    return x if layers.norm is None else norm(g, f"{side}.norm", layers.norm, x)


def with_past(g: Graph, name: str, a: Any, size: int, new: str) -> str:
    """Keys or values of new tokens behind those of the past, which is an input; all of them are an output."""
    past = g.add_input("float", f"past_{name}", ["rows", a.n_kv_head, "past", size])
    joined = g("Concat", past, new, axis=2, to=f"present_{name}")
    g.add_output(joined, ["rows", a.n_kv_head, "all", size])
    return joined


def output_layer(g: Graph, weight: Any, bias: Any, x: str) -> str:
    """The logits: one for each token of the vocabulary, or for each label. A tied embedding table is kept once."""
    table = g.tables.get(weight.data_ptr()) if g.shares else None
    matrix = g.weight("output.weight", weight.T) if table is None else g("Transpose", table, perm=[1, 0])
    y = g("MatMul", x, matrix)
    if bias is not None:
        y = g("Add", y, g.weight("output.bias", bias))
    return g("Identity", y, to="logits")


def begin(
    g: Graph, model: Any, tables: tuple[str, Any, Any, Any], n_positions: int, *, causal: bool
) -> tuple[str, str, RotationNodes | None]:
    """Embedded tokens, their mask and rotary angles. `tables`: the name of the embedding, it, positions and norm."""
    name, embedding, encoding, own_norm = tables
    key_positions, query_positions = positions_of(g, "attention_mask")
    x = embed(g, embedding, name, encoding, query_positions, n_positions)
    if getattr(model, "type_embedding", None) is not None:  # all is sentence A
        x = g("Add", x, g.weight("type_embedding.weight", model.type_embedding.weight[0] * model.type_embedding.factor))
    x = x if own_norm is None else norm(g, "embedding_norm", own_norm, x)
    rotation = None if model.rotary is None else RotationNodes(g, model.rotary, query_positions, n_positions)
    return x, self_mask(g, model.config, model, "attention_mask", key_positions, causal=causal), rotation


def encoder_graph(model: Any, n_positions: int, weights: str = "fp32") -> Any:
    """The encoder, and of each decoder layer the keys and values of the source."""
    g = Graph("encoder", weights)
    g.add_input("int64", "input_ids", ["sources", "source"])
    g.add_input("int64", "attention_mask", ["sources", "source"])
    tables = "source_embedding", model.source_table, model.source_positions, model.source_norm
    x = stack(g, model, "encoder", *begin(g, model, tables, n_positions, causal=False))
    for i, layer in enumerate(model.decoder.layers):
        found = keys_values(g, f"decoder.{i}.cross", layer.cross, x, None)
        for part, y, size in zip(("key", "value"), found, (layer.cross.head_size, layer.cross.value_size), strict=True):
            g("Identity", repeat_kv(g, layer.cross, y), to=f"cross_{part}.{i}")
            g.add_output(f"cross_{part}.{i}", ["sources", layer.cross.n_head, "source", size])
    return g.model()


def decoder_graph(model: Any, n_positions: int, weights: str = "fp32") -> Any:
    """One step of decoding, or the prefill of a prompt: new tokens after those of the past."""
    g, source_mask = Graph("decoder", weights), None
    g.add_input("int64", "input_ids", ["rows", "new"])
    g.add_input("int64", "attention_mask", ["rows", "all"])
    if model.config.family == "transformer":
        g.add_input("int64", "source_mask", ["sources", "source"])
        real = g("Greater", "source_mask", g.constant(0))
        source_mask = additive_mask(g, g("Unsqueeze", real, g.constant([1, 2, 3])))
        tables = "target_embedding", model.target_table, model.target_positions, model.target_norm
    else:
        tables = "embedding", model.embedding, model.positions, model.embedding_norm
    x = stack(g, model, "decoder", *begin(g, model, tables, n_positions, causal=True), source_mask)
    weight, bias = model.output_weight, model.output_bias
    if model.config.family == "gpt" and model.head is not None:
        x = g("Tanh", linear(g, "head.dense", model.head.dense, x)) if model.head.dense is not None else x
        weight, bias = model.output_layer()
    output_layer(g, weight, bias, x)
    g.add_output("logits", ["rows", "new", model.output_weight.size(0)])
    return g.model()


def bert_graph(model: Any, n_positions: int, weights: str = "fp32") -> Any:
    """A BERT, whatever its head."""
    c, g = model.config, Graph("bert", weights)
    g.add_input("int64", "input_ids", ["rows", "new"])
    g.add_input("int64", "attention_mask", ["rows", "new"])
    tables = "embedding", model.embedding, model.positions, model.embedding_norm
    x = stack(g, model, "encoder", *begin(g, model, tables, n_positions, causal=False))
    if model.mean_pooling:
        real = g.cast(g("Unsqueeze", "attention_mask", g.constant([2])), "real")
        total = g("ReduceSum", g("Mul", x, real), g.constant([1]), keepdims=1)
        mean = g("Div", total, g("ReduceSum", real, g.constant([1]), keepdims=1))
        x = g("Add", mean, g("Mul", x, g.scalar(0.0)))
    head = model.head
    if head is None:
        g("Identity", x, to="logits")
        g.add_output("logits", ["rows", "new", c.n_embd])
        return g.model()
    if c.head == "mlm":
        activation = c.activation if c.activation in ("relu", "gelu", "gelu_tanh", "relu2", "silu") else "gelu"
        x = norm(g, "head.norm", head.norm, activate(g, activation, linear(g, "head.dense", head.dense, x)))
    elif head.dense is not None:
        x = g("Tanh", linear(g, "head.dense", head.dense, x))
    weight, bias = model.output_layer()
    output_layer(g, weight, bias, x)
    g.add_output("logits", ["rows", "new", weight.size(0)])
    return g.model()


def graphs(model: Any, n_positions: int, weights: str = "fp32") -> dict[str, Any]:
    """Every graph of a model by the name of its file."""
    made = {
        "transformer": {"encoder.onnx": encoder_graph, "decoder.onnx": decoder_graph},
        "gpt": {"model.onnx": decoder_graph},
        "bert": {"model.onnx": bert_graph},
    }
    return {name: make(model, n_positions, weights) for name, make in made[model.config.family].items()}


def save(model: Any, folder: Path, *, n_positions: int, weights: str = "fp32") -> None:
    """Leave the graphs in `folder`. fp16: weights of 16 bits, arithmetic in 32. int8: weights of 8 bits (7 are used, which is
    right on every processor), inputs rounded as they come, by onnxruntime's own dynamic quantization."""
    import onnx

    for name, graph in graphs(model, n_positions, weights).items():
        path = folder / (f"full-{name}" if weights == "int8" else name)
        size = sum(len(w.raw_data) for w in graph.graph.initializer)
        onnx.save(graph, str(path), save_as_external_data=size > MAX_BYTES, location=f"{name}.data")
        if weights == "int8":
            quantize(path, folder / name, large=size > MAX_BYTES)


def quantize(full: Path, path: Path, *, large: bool) -> None:
    """The matrices of a graph in 8 bits, a scale for each column."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it advises to run a shape inference that these graphs do not need
    try:
        quantize_dynamic(
            str(full),
            str(path),
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            op_types_to_quantize=["MatMul"],
            use_external_data_format=large,
        )
    finally:
        logging.disable(before)
        full.unlink(missing_ok=True)
        full.with_name(f"{path.name}.data").unlink(missing_ok=True) if large else None
