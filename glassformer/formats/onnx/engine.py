"""The engine `onnx`: the model as ONNX graphs in onnxruntime's hands, searched by our own search.

Only the scores are somebody else's, so every option means what it means elsewhere, and answers are those of the model itself
up to rounding. The graphs are made when they are first asked for and kept as long as the weights stay as they are. It is for
a CPU.
"""

from __future__ import annotations

import copy
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.decode.engines import RequestJob
from glassformer.errors import ConfigError
from glassformer.formats.onnx import spec as conversion
from glassformer.formats.targets import target_of
from glassformer.models.weights import weight_checksum
from glassformer.nn.rows import Rows

MIN_POSITIONS = 512  # rows of a table of positions that has no end, at first
EVERY_POSITION = 2**31
Arrays = dict[str, np.ndarray]


@dataclass
class OnnxState:
    """Rows being written: keys and values of the past by their names, which columns of it are real, and the source."""

    past: Arrays
    real: np.ndarray
    source: Arrays
    beams: int

    def reorder(self, rows: Int[Tensor, "R"]) -> None:
        """Row i goes on as what row rows[i] was; with fewer rows, those that are not named are gone."""
        which = rows.cpu().numpy()
        self.past = {name: array[which] for name, array in self.past.items()}
        self.real = self.real[which]
        sources = which[:: self.beams] // self.beams
        if self.source and not np.array_equal(sources, np.arange(len(next(iter(self.source.values()))))):
            self.source = {name: array[sources] for name, array in self.source.items()}


def session(path: Path, threads: int) -> Any:
    """A graph, loaded."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class OnnxNet:
    """The graphs of a folder with the calls of a model: `start`, then `step` after `step`."""

    def __init__(self, folder: Path, config: ModelConfig, threads: int = 1) -> None:
        self.config = config
        pairs = config.family == "transformer"
        self.encoder = session(folder / "encoder.onnx", threads) if pairs else None
        self.decoder = session(folder / ("decoder.onnx" if pairs else "model.onnx"), threads)
        self.names = [one.name for one in self.decoder.get_outputs()]
        self.shapes = {one.name: one.shape for one in self.decoder.get_inputs() if one.name.startswith("past_")}

    def parameters(self) -> Iterator[Tensor]:
        """What says where the model is: on a CPU, in float32."""
        return iter([torch.zeros(())])

    def encode(self, ids: np.ndarray, mask: np.ndarray) -> Arrays:
        """A source's keys and values for every layer, and its mask."""
        assert self.encoder is not None
        names = [one.name for one in self.encoder.get_outputs()]
        found = self.encoder.run(names, {"input_ids": ids, "attention_mask": mask})
        return dict(zip(names, found, strict=True)) | {"source_mask": mask}

    def start(self, source: Rows | int, capacity: int = 0, *, beams: int = 1) -> OnnxState:
        """Room for rows: a source's `beams` each, or so many rows of a GPT."""
        rows, read = source if isinstance(source, int) else source.shape[0] * beams, {}
        if isinstance(source, Rows):
            read = self.encode(source.tokens.cpu().numpy(), source.real.cpu().numpy().astype(np.int64))
        past = {name: np.zeros((rows, shape[1], 0, shape[3]), np.float32) for name, shape in self.shapes.items()}
        return OnnxState(past, np.zeros((rows, 0), np.int64), read, beams)

    def step(
        self, tokens: Int[Tensor, "R new"], state: OnnxState, lengths: Sequence[int] | None = None
    ) -> Float[Tensor, "R new V"]:
        """Further tokens, and the scores of what may follow each. `lengths`: how many of each row's are real."""
        rows, new = tokens.shape
        real = np.ones((rows, new), np.int64)
        if lengths is not None:
            real = (np.arange(new) < np.asarray(lengths)[:, None]).astype(np.int64)
        state.real = np.concatenate([state.real, real], axis=1)
        given = {"input_ids": tokens.cpu().numpy().astype(np.int64), "attention_mask": state.real}
        found = dict(zip(self.names, self.decoder.run(self.names, given | state.past | state.source), strict=True))
        state.past = {name: found[name.replace("past_", "present_")] for name in state.past}
        return torch.from_numpy(found["logits"])


def check_supported(config: ModelConfig) -> None:
    """Says in a sentence what keeps this model from onnxruntime."""
    target_of("onnx").require("engine=onnx")
    if (unsupported := conversion.unsupported(config)) is not None:
        raise ConfigError("engine=onnx has nothing for {unsupported}; use engine=auto", unsupported[0])


nets: weakref.WeakKeyDictionary[nn.Module, tuple[Any, int, OnnxNet]] = weakref.WeakKeyDictionary()
lock = threading.Lock()


def net(model: Any, batch: Sequence[RequestJob]) -> OnnxNet:
    """The model's graphs: made once, and again when a weight has changed or the batch needs more positions."""
    positions = max(len(request.ids) + job.limit for request, job in batch)
    check_supported(model.config)
    if next(model.parameters()).device.type != "cpu":
        raise ConfigError("engine=onnx is for a CPU, and the model is on a GPU; use engine=auto")
    now = weight_checksum(model)
    with lock:
        known = nets.get(model)
        if known is None or known[1] < positions or not torch.equal(known[0], now):
            rows = model.config.block_size
            if model.config.positions != "learned":
                rows = max(MIN_POSITIONS, rows, 1 << (positions - 1).bit_length())
            with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
                conversion.save(model, Path(folder), n_positions=rows)
                made = OnnxNet(Path(folder), model.config, torch.get_num_threads())
            known = nets[model] = (now, max(rows, positions), made)
    return known[2]


def with_net(model: Any, net: OnnxNet) -> Any:
    """A twin of the model whose logits with engine=onnx are those of a net that was made elsewhere."""
    twin = copy.copy(model)
    nets[twin] = (weight_checksum(twin), EVERY_POSITION, net)
    return twin
