"""The model classes of Hugging Face that our models can become, and be made from, with no code of ours.

Each dialect is three things: a config translated there and back, a table of names (read both ways), and the reason why a
model of ours cannot be said in it, where it cannot.

    marian    encoder-decoder, post-norm, sinusoids             (OPUS-MT; Vaswani et al. 2017)
    pegasus   encoder-decoder, pre-norm, sinusoids
    gpt2      decoder, pre-norm, learned positions
    llama     decoder, RMSNorm, rotary, SwiGLU
    qwen2     the same with biases on queries, keys and values, where it was imported as such
    qwen3     Llama with a norm on queries and keys
    bert      encoder, post-norm, learned positions, and its heads

No dialect multiplies the embeddings of a decoder by sqrt(n_embd): where our model does, its embedding table is written
out multiplied and the output layer as it is, so the way back is exact.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.bert import BERT
from glassformer.formats.huggingface.dialects.decoder import GPT2, LLAMA, QWEN2, QWEN3, is_qwen2
from glassformer.formats.huggingface.dialects.dialect import Dialect
from glassformer.formats.huggingface.dialects.seq2seq import MARIAN, PEGASUS
from glassformer.language import _, joined_sentences

DIALECTS: dict[str, Dialect] = {d.name: d for d in (MARIAN, PEGASUS, GPT2, QWEN3, LLAMA, BERT)}


def dialect_for(config: ModelConfig, imported: Mapping[str, Tensor] | None = None) -> Dialect:
    """The dialect in which this model can be said; the reasons of the nearest one, where there is none. `imported`: the
    parameters of a model that came from elsewhere, which tell a Qwen2 from a Llama."""
    candidates = [d for d in DIALECTS.values() if d.family == config.family]
    nearest = min(candidates, key=lambda d: len(d.reasons(config)))
    if reasons := nearest.reasons(config):
        way = _("Train with that otherwise, or export to another format")
        if config.family == "gpt" and config.output_bias:
            way = _(
                "Export to ct2 or onnx, which can say it (or, where this is an imported GPT of before, import it again)"
            )
        raise UserError(
            "no model class of Hugging Face can say this model; the nearest is {nearest}, but {reasons}. {way}",
            nearest.name,
            joined_sentences(reasons),
            way,
        )
    return QWEN2 if nearest is LLAMA and imported and is_qwen2(config, imported) else nearest


__all__ = ["DIALECTS", "Dialect", "dialect_for"]
