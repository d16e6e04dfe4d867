"""A run's model as a folder of CTranslate2's, with its tokenizers; and such a folder, loaded by CTranslate2."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.decode import SpecialTokens
from glassformer.errors import UserError
from glassformer.formats.ctranslate2 import spec
from glassformer.formats.huggingface.writer import write_tokenizers
from glassformer.formats.runtime import Ids, Runtime
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS, UNK, Tokenizer


def token_names(tokenizer: Tokenizer, size: int) -> list[str]:
    """What each id is called in the tokenizer; ids past its last are unused."""
    named = [tokenizer.library.id_to_token(i) for i in range(size)]
    return [f"<unused {i}>" if name is None else name for i, name in enumerate(named)]


def refuse(model: TextModel) -> None:
    """Where CTranslate2 has no word for something, that is said with the nearest it has."""
    if (lacking := spec.unsupported(model.model.config)) is not None:
        raise UserError("CTranslate2 has nothing for {what}; {advice}, and onnx can say more", lacking[0], lacking[1])


def write(model: TextModel, folder: Path, weights: str, name: str) -> list[str]:
    """model.bin, its vocabularies and config.json, and the tokenizers."""
    c = model.model.config
    source = token_names(model.tokenizers.source, c.source_vocab_size or c.vocab_size)
    vocabularies = spec.Vocabularies(BOS, EOS, UNK, source, token_names(model.tokenizers.target, c.vocab_size))
    kind = {"fp32": None, "fp16": "float16", "int8": "int8"}[weights]
    positions = c.block_size if c.positions == "learned" else max(512, c.block_size)
    spec.save(model.model, folder, vocabularies, n_positions=positions, quantization=kind)
    return write_tokenizers(model.tokenizers, model.recipe, folder)


def read_vocabulary(folder: Path, name: str) -> list[str]:
    """The words of one side, as the folder has them."""
    names = (f"{name}_vocabulary.json", "shared_vocabulary.json", "vocabulary.json")
    path = next(folder / name for name in names if (folder / name).exists())
    return list(json.loads(path.read_text(encoding="utf-8")))


class CTranslate2Runtime(Runtime):
    """A folder in CTranslate2's hands: a Translator, or a Generator for a GPT. What may not be written it takes out before the
    softmax and we after it, so both are compared with everything allowed."""

    name = "ctranslate2"
    cut_competes = True

    def __init__(self, folder: Path, model: TextModel) -> None:
        import ctranslate2

        alpha, threads = model.recipe.decode.alpha, torch.get_num_threads()
        self.family, self.alpha = model.model.config.family, alpha or spec.NO_PENALTY
        runner = ctranslate2.Translator if self.family == "transformer" else ctranslate2.Generator
        self.runner: Any = runner(str(folder), device="cpu", inter_threads=1, intra_threads=threads)
        self.source, self.target = (read_vocabulary(folder, side) for side in ("source", "target"))
        self.ids = {word: i for i, word in enumerate(self.target)}
        self.rules = DecodeConfig(length_rule="power", alpha=alpha, stop_rule="first-k", allow_unknown=True)
        self.special = SpecialTokens(bos=BOS, eos=EOS, unknown=UNK, never=())

    def words(self, rows: Ids, *, target: bool = False) -> list[list[str]]:
        """Ids as it is given them."""
        names = self.target if target or self.family != "transformer" else self.source
        return [[names[i] for i in row] for row in rows]

    def scores(self, rows: Ids, targets: Ids) -> Sequence[np.ndarray]:
        """A Generator's scores are all there. A Translator shows scores only of what it writes, so it is made to write each
        target and the scores of the places are taken as they come."""
        if self.family != "transformer":
            return list(np.array(self.runner.forward_batch(self.words(rows))))
        found = []
        for row, target in zip(rows, targets, strict=True):
            answer = self.runner.translate_batch(
                self.words([row]),
                self.words([target[1:]], target=True) if len(target) > 1 else None,
                beam_size=1,
                max_decoding_length=len(target),
                min_decoding_length=0,
                max_input_length=0,
                return_logits_vocab=True,
            )[0]
            found.append(np.stack([np.array(row) for row in answer.logits[0]]))
        return found

    def write(self, prompts: Ids, *, beam: int, limit: int) -> list[list[int]]:
        """Its own search, told nothing but the width of the beam, the length and the length penalty."""
        how: dict[str, Any] = {"beam_size": beam, "length_penalty": self.alpha, "max_batch_size": 32}
        if self.family == "transformer":
            how |= {"max_decoding_length": limit, "min_decoding_length": 0, "max_input_length": 0}
            answers = self.runner.translate_batch(self.words(prompts), **how)
            return [[self.ids[word] for word in one.hypotheses[0]] for one in answers]
        found: list[list[int]] = [[] for _ in prompts]
        for length in sorted({len(p) for p in prompts}):  # prompts of one length can be decoded together
            same = [i for i, p in enumerate(prompts) if len(p) == length]
            how |= {"max_length": limit, "min_length": 0, "include_prompt_in_result": False}
            answers = self.runner.generate_batch(self.words([prompts[i] for i in same]), **how)
            for i, one in zip(same, answers, strict=True):
                found[i] = [token for token in one.sequences_ids[0] if token != EOS]
        return found


def open_folder(model: TextModel, folder: Path) -> Runtime:
    """The folder in CTranslate2's hands."""
    return CTranslate2Runtime(folder, model)
