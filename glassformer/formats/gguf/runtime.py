"""A GGUF file in llama.cpp's hands (the package llama-cpp-python), or, where that is not installed, read back and run here."""

from __future__ import annotations

import copy
import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.decode import SpecialTokens
from glassformer.formats.gguf.spec import read_gguf
from glassformer.formats.huggingface.importing import in_our_order
from glassformer.formats.huggingface.vocabulary import Vocabulary
from glassformer.formats.runtime import Ids, OurRuntime, Runtime
from glassformer.language import _
from glassformer.models.weights import load_model_tensors
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import EOS

NO_BEAM = "llama.cpp has no beam search"


class ReadBack(OurRuntime):
    """The file's tensors in a model of ours: it shows that every number was written and can be read."""

    name = "the GGUF file, read back"
    lacks: tuple[str, ...] = (
        _("llama.cpp (llama-cpp-python) is not installed here: the file was read back tensor by tensor and run by us"),
    )

    def __init__(self, path: Path, model: TextModel, vocabulary: Vocabulary | None = None) -> None:
        began = time.perf_counter()
        net = copy.deepcopy(model.model).cpu().eval()
        if vocabulary is None:
            found = read_gguf(path, net.config)
        else:
            there = replace(net.config, vocab_size=vocabulary.size, output_bias=False)
            found = in_our_order(there, read_gguf(path, there), vocabulary, vocabulary)[1]
        load_model_tensors(net, found)
        super().__init__(TextModel(net, model.tokenizers, model.recipe), special=model.special_tokens)
        self.load_seconds = time.perf_counter() - began


class LlamaCppRuntime(Runtime):
    """llama.cpp itself, told to keep keys and values in float32 (by default it rounds them to 16 bits)."""

    name, family = "llama.cpp", "gpt"
    lacks: tuple[str, ...] = (NO_BEAM,)

    def __init__(self, path: Path, model: TextModel, vocabulary: Vocabulary | None = None) -> None:
        import llama_cpp

        self.block = model.model.config.block_size
        began = time.perf_counter()
        full = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
        how = {"n_ctx": self.block, "n_threads": torch.get_num_threads(), "logits_all": True, "verbose": False}
        self.runner: Any = llama_cpp.Llama(str(path), **how, **full)
        self.load_seconds = time.perf_counter() - began
        self.vocabulary = vocabulary or Vocabulary.ours_alone(model.model.config.vocab_size)
        self.end = self.vocabulary.order[EOS]
        self.rules = DecodeConfig(allow_unknown=True)
        self.special = replace(SpecialTokens(), never=())

    def scores(self, rows: Ids, targets: Ids) -> Sequence[np.ndarray]:
        """The scores after each id of each row, one row after the other."""
        found = []
        for row in rows:
            self.runner.reset()
            self.runner.eval(list(self.vocabulary.theirs(row)))
            found.append(self.vocabulary.scores(np.array(self.runner.scores[: len(row), : self.vocabulary.size])))
        return found

    def write(self, prompts: Ids, *, beam: int, limit: int) -> list[list[int]]:
        """The likeliest token, again and again."""
        found = []
        for prompt in prompts:
            self.runner.reset()
            self.runner.eval(list(self.vocabulary.theirs(prompt)))
            written: list[int] = []
            while len(written) < limit and self.runner.n_tokens < self.block:
                token = int(np.argmax(self.runner.scores[self.runner.n_tokens - 1, : self.vocabulary.size]))
                if token == self.end:
                    break
                written.append(self.vocabulary.ours.get(token, -1))
                if len(written) < limit:
                    self.runner.eval([token])
            found.append(written)
        return found


def open_gguf(path: Path, model: TextModel, vocabulary: Vocabulary | None = None) -> Runtime:
    """llama.cpp where it is installed, else the file read back. `vocabulary`: that of the file, where it is not ours."""
    if importlib.util.find_spec("llama_cpp") is not None:
        return LlamaCppRuntime(path, model, vocabulary)
    return ReadBack(path, model, vocabulary)
