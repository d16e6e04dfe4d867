"""A model as a folder of ONNX graphs; such a folder in onnxruntime's hands, searched by our own search.

`spec.py` says what goes in and comes out of each graph; docs/how-to/export.md has the loop that runs it with onnxruntime alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.decode import translate_batch
from glassformer.errors import UserError
from glassformer.formats.huggingface.writer import write_tokenizers
from glassformer.formats.onnx import spec as conversion
from glassformer.formats.onnx.engine import OnnxNet, session, with_net
from glassformer.formats.runtime import Ids, Runtime
from glassformer.nn.rows import Rows
from glassformer.tasks import TextModel


class OnnxRuntime(Runtime):
    """A folder of graphs. The search is ours, so its rules are the recipe's."""

    name = "onnxruntime"

    def __init__(self, folder: Path, model: TextModel) -> None:
        self.folder, self.model, self.family = folder, model, model.model.config.family
        threads = torch.get_num_threads()
        if self.family == "bert":
            self.reader: Any = session(folder / "model.onnx", threads)
        else:
            self.net = OnnxNet(folder, model.model.config, threads)
            self.twin = with_net(model.model, self.net)
        self.rules = replace(model.recipe.decode, engine="auto", temperature=0.0, n_best=1, num_samples=1)
        self.special = model.special_tokens

    @torch.no_grad()
    def scores(self, rows: Ids, targets: Ids) -> Sequence[np.ndarray]:
        """The scores after each token: of a BERT in one call, else by a step that reads all tokens at once."""
        read = Rows.from_lists([list(row) for row in rows])
        if self.family == "bert":
            given = {"input_ids": read.tokens.numpy(), "attention_mask": read.real.long().numpy()}
            return list(self.reader.run(["logits"], given)[0])
        written = targets or rows
        state = self.net.start(read if targets else len(rows))
        tokens = Rows.from_lists([list(row) for row in written]).tokens
        return list(self.net.step(tokens, state, [len(row) for row in written]).numpy())

    def write(self, prompts: Ids, *, beam: int, limit: int) -> list[list[int]]:
        """Our search over the graphs' scores."""
        config = replace(self.rules, engine="onnx", beam=beam, max_new_tokens=limit)
        found = translate_batch(self.twin, [list(p) for p in prompts], config, special=self.special)
        return [hypotheses[0].ids for hypotheses in found]


POSITIONS = 512  # rows, at least, of a table of positions that has no end


def refuse(model: TextModel) -> None:
    """Where the graphs cannot say something, that is said with the nearest they can."""
    if (lacking := conversion.unsupported(model.model.config)) is not None:
        raise UserError("these ONNX graphs have nothing for {what}; {advice}", lacking[0], lacking[1])


def write(model: TextModel, folder: Path, weights: str, name: str) -> list[str]:
    """encoder.onnx and decoder.onnx, or model.onnx, and the tokenizers."""
    c = model.model.config
    rows = c.block_size if c.positions == "learned" else max(POSITIONS, c.block_size)
    conversion.save(model.model, folder, n_positions=rows, weights=weights)
    return write_tokenizers(model.tokenizers, model.recipe, folder)


def open_folder(model: TextModel, folder: Path) -> Runtime:
    """The folder in onnxruntime's hands."""
    return OnnxRuntime(folder, model)
