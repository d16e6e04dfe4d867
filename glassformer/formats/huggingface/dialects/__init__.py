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

Others can be read and are written as one of these: BART, mBART, M2M100 (and NLLB), T5, OPT, RoBERTa, Mistral. What their files
need before the tables of names fit:

    tables of positions begin at row 2 in BART's and OPT's files, and behind the id that pads in RoBERTa's: they are cut off there
    M2M100 computes its positions by another series of wavelengths: they become a table
    some have biases here and there: the others are zero
    OPT may have smaller embeddings and a matrix behind them: the two are multiplied
    GPT-2's and BERT's oldest files have older names

No dialect multiplies the embeddings of a decoder by sqrt(n_embd): where our model does, its embedding table is written
out multiplied and the output layer as it is, so the way back is exact.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.bert import BERT, ROBERTA, XLM_ROBERTA
from glassformer.formats.huggingface.dialects.decoder import GPT2, LLAMA, MISTRAL, OPT, QWEN2, QWEN3, is_qwen2
from glassformer.formats.huggingface.dialects.dialect import Dialect
from glassformer.formats.huggingface.dialects.seq2seq import BART, M2M100, MARIAN, MBART, PEGASUS, T5
from glassformer.language import _, joined_sentences

DIALECTS: dict[str, Dialect] = {d.name: d for d in (MARIAN, PEGASUS, GPT2, QWEN3, LLAMA, BERT)}
READ_ONLY = (BART, MBART, M2M100, T5, OPT, ROBERTA, XLM_ROBERTA, MISTRAL, QWEN2)
READABLE: dict[str, Dialect] = DIALECTS | {d.name: d for d in READ_ONLY}
"""Every `model_type` of a config.json that can be imported; a Qwen2 that was imported is written as one, too."""


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


__all__ = ["DIALECTS", "READABLE", "Dialect", "dialect_for"]
