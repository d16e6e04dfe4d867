"""A run's model as a folder of CTranslate2's, with its tokenizers, and that folder beside the run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.ctranslate2 import spec
from glassformer.formats.ctranslate2.runtime import CTranslate2Runtime
from glassformer.formats.huggingface.writer import write_tokenizers
from glassformer.formats.runtime import Case, OurRuntime, Runtime
from glassformer.language import _
from glassformer.models import build_model
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS, UNK, Tokenizer

LIMIT = 1e-3  # by which the scores of two models in float32 may differ
CALLS = {
    "transformer": """translator = ctranslate2.Translator("FOLDER")
answer = translator.translate_batch([tokenizer.encode("A text").tokens])[0].hypotheses[0]
print(TARGET.decode([TARGET.token_to_id(token) for token in answer]))""",
    "gpt": """generator = ctranslate2.Generator("FOLDER")
answer = generator.generate_batch([tokenizer.encode("A text").tokens], max_length=32)[0]
print(tokenizer.decode(answer.sequences_ids[0]))""",
}


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


def first_layers(model: TextModel, encoder: int, decoder: int) -> TextModel:
    """The same model with its first layers alone."""
    c = model.model.config
    sizes: dict[str, Any] = {"n_layer": decoder} | ({"n_encoder_layer": encoder} if c.family == "transformer" else {})
    config = replace(c, **sizes)
    net = build_model(config).eval()
    own = dict(model.model.named_parameters())
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(own[name])
    return TextModel(net, model.tokenizers, replace(model.recipe, model=config))


class ExportedFolder(CTranslate2Runtime):
    """A folder beside the model it was made of."""

    def __init__(self, model: TextModel, folder: Path) -> None:
        self.model = model
        family, alpha = model.model.config.family, model.recipe.decode.alpha
        super().__init__(folder, family, alpha=alpha, threads=torch.get_num_threads())

    def first_layer_that_differs(self, cases: Sequence[Case]) -> str | None:
        """CTranslate2 shows no layers: models of the first layers alone are converted one after the other, until one differs."""
        c = self.model.model.config
        encoders = range(1, c.encoder_layers + 1) if c.family == "transformer" else [0]
        steps = [(e, 1) for e in encoders] + [(c.encoder_layers, d) for d in range(2, c.n_layer + 1)]
        before = "the embeddings"
        for encoder, decoder in steps:
            small = first_layers(self.model, encoder, decoder)
            with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
                write(small, Path(folder), "fp32", "")
                there = CTranslate2Runtime(Path(folder), c.family).logits(cases[:1])[0]
            gap = float(abs(OurRuntime(small).logits(cases[:1])[0] - there).max())
            name = f"decoder.{decoder - 1}" if decoder > 1 or c.family == "gpt" else f"encoder.{encoder - 1}"
            if not gap <= LIMIT:
                return _(
                    "{name} (a model that ends with it differs by {gap:.2g}; up to {before} all is the same)",
                    name,
                    gap,
                    before,
                )
            before = name
        return None


def open_folder(model: TextModel, folder: Path) -> Runtime:
    """The folder in CTranslate2's hands."""
    return ExportedFolder(model, folder)


def snippet(config: ModelConfig, own_target: bool) -> str:
    """A Translator or a Generator, and one call."""
    target = 'tokenizers.Tokenizer.from_file("FOLDER/target/tokenizer.json")' if own_target else "tokenizer"
    opened = 'import ctranslate2, tokenizers\ntokenizer = tokenizers.Tokenizer.from_file("FOLDER/tokenizer.json")\n'
    return opened + CALLS[config.family].replace("TARGET", target)
