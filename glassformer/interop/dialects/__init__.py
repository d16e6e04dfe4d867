"""The model classes of Hugging Face that our models can become, and be made from, with no code of ours.

Each dialect is three things: a config translated there and back, a table of names (read both ways), and the reason why a
model of ours cannot be said in it, where it cannot.

    marian    encoder-decoder, post-norm, sinusoids             (OPUS-MT; Vaswani et al. 2017)
    pegasus   encoder-decoder, pre-norm, sinusoids
    gpt2      decoder, pre-norm, learned positions
    llama     decoder, RMSNorm, rotary, SwiGLU
    qwen3     the same with a norm on queries and keys
    bert      encoder, post-norm, learned positions, and its heads

No dialect multiplies the embeddings of a decoder by sqrt(n_embd): where our model does, its embedding table is written
out multiplied and the output layer as it is, so the way back is exact.
"""

from __future__ import annotations

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.interop.dialects.bert import BERT
from glassformer.interop.dialects.decoder import GPT2, LLAMA, QWEN3
from glassformer.interop.dialects.dialect import Dialect
from glassformer.interop.dialects.seq2seq import MARIAN, PEGASUS

DIALECTS: dict[str, Dialect] = {d.name: d for d in (MARIAN, PEGASUS, GPT2, QWEN3, LLAMA, BERT)}


def dialect_for(config: ModelConfig) -> Dialect:
    """The dialect in which this model can be said; the reasons of the nearest one, where there is none."""
    candidates = [d for d in DIALECTS.values() if d.family == config.family]
    nearest = min(candidates, key=lambda d: len(d.reasons(config)))
    if reasons := nearest.reasons(config):
        way = "Train with that otherwise, or export to another format"
        if config.family == "gpt" and config.output_bias:
            way = "Export to ct2 or onnx, which can say it (an imported GPT has that bias for control ids it lacks)"
        raise UserError(
            f"no model class of Hugging Face can say this model; the nearest is {nearest.name}, but "
            f"{'; '.join(reasons)}. {way}"
        )
    return nearest


__all__ = ["DIALECTS", "Dialect", "dialect_for"]
