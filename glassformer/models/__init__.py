"""Three families out of one block."""

from glassformer.config import ModelConfig
from glassformer.config.model import PRESETS, preset
from glassformer.models.bert import BERT
from glassformer.models.costs import FAMILIES, check_fits_in_memory
from glassformer.models.gpt import GPT
from glassformer.models.parts import BaseModel
from glassformer.models.transformer import Transformer


def build_model(config: ModelConfig) -> Transformer | GPT | BERT:
    """The model a config describes, with fresh weights (from torch's global random state).

    >>> type(build_model(ModelConfig(family="gpt", vocab_size=9, n_layer=1, n_embd=8, n_head=2))).__name__
    'GPT'
    """
    check_fits_in_memory(config)
    return FAMILIES[config.family](config)


__all__ = ["BERT", "GPT", "PRESETS", "BaseModel", "Transformer", "build_model", "preset"]
