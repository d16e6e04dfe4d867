"""A model as a folder of ONNX graphs, and the loop that runs it with onnxruntime.

`spec.py` says what goes in and comes out of each graph; docs/how-to/export.md has the loop in onnxruntime alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from glassformer.config import ModelConfig, Recipe
from glassformer.errors import UserError
from glassformer.formats.huggingface.writer import write_tokenizers
from glassformer.formats.onnx import spec as conversion
from glassformer.formats.onnx.engine import OnnxNet
from glassformer.formats.onnx.runtime import OnnxRuntime
from glassformer.formats.runtime import Runtime
from glassformer.formats.untrusted import LARGEST_JSON, read_json
from glassformer.nn.rows import Rows
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS

POSITIONS = 512  # rows, at least, of a table of positions that has no end
SNIPPET = """from glassformer.formats.onnx.writer import OnnxModel
model = OnnxModel("FOLDER")        # or the plain loop of docs/how-to/export.md, with onnxruntime alone
print(model.write([[5, 6, 2]], limit=32))"""


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


def snippet(config: ModelConfig, own_target: bool) -> str:
    """Greedy decoding of one text."""
    return SNIPPET


class OnnxModel:
    """An exported folder, run by onnxruntime: greedy, the whole loop in a dozen lines.

    model = OnnxModel("dates-onnx")
    model.write([[17, 23, 9, 2]], limit=32)         ids in, ids out
    """

    def __init__(self, folder: str | Path, *, threads: int = 1) -> None:
        folder = Path(folder)
        recipe = Recipe.from_dict(read_json(folder, "glassformer.json", LARGEST_JSON)["recipe"], stored=True)
        self.family = recipe.model.family
        if self.family == "bert":
            raise UserError(
                "{folder} holds a BERT, which writes nothing; run its model.onnx once for each text", folder
            )
        self.net = OnnxNet(folder, recipe.model, threads)

    def write(self, prompts: Sequence[Sequence[int]], *, limit: int) -> list[list[int]]:
        """What follows each prompt (of an encoder-decoder: each source), the likeliest token again and again."""
        rows = Rows.from_lists([list(prompt) for prompt in prompts])
        if self.family == "transformer":
            state = self.net.start(rows)
            scores = self.net.step(torch.full((len(prompts), 1), BOS), state)[:, -1]
        else:
            state = self.net.start(len(prompts))
            lengths = [len(prompt) for prompt in prompts]
            every = self.net.step(rows.tokens, state, lengths)
            scores = every[torch.arange(len(prompts)), torch.tensor(lengths) - 1]
        written: list[list[int]] = [[] for _ in prompts]
        going = np.ones(len(prompts), bool)
        for _unused in range(limit):
            chosen = scores.argmax(-1)
            going &= chosen.numpy() != EOS
            for row in np.flatnonzero(going):
                written[row].append(int(chosen[row]))
            if not going.any():
                break
            scores = self.net.step(chosen[:, None], state)[:, -1]
        return written
