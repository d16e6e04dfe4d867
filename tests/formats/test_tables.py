"""Our tensors under Hugging Face's names, run by Hugging Face's own classes: the same logits; and back, bit for bit.

The reference is `transformers` itself. Broken variants these catch: query and key swapped in a fused matrix, a matrix not
transposed, channels not permuted for half-split sinusoids, a tied table scaled where theirs is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects import DIALECTS, dialect_for
from glassformer.formats.huggingface.writer import tensors_from, tensors_to
from glassformer.models import build_model
from glassformer.nn.rows import Rows

SMALL: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 16, "block_size": 24, "vocab_size": 37, "n_hidden": 40}
POST = {"pre_norm": False, "final_norm": False}
BERT = {
    "family": "bert",
    **POST,
    "positions": "learned",
    "embedding_norm": True,
    "activation": "gelu",
    "n_token_type": 2,
}
LLAMA = {"family": "gpt", "positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
GPT2 = {"family": "gpt", "positions": "learned", "activation": "gelu_tanh"}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("marian", POST),
    "marian, untied output": ("marian", {**POST, "tie_output": False}),
    "marian, unscaled": ("marian", {**POST, "scale_embeddings": False, "n_encoder_layer": 1, "activation": "gelu"}),
    "marian, two vocabularies": ("marian", {**POST, "source_vocab_size": 29, "share_source_target": False}),
    "marian, output bias": ("marian", {**POST, "output_bias": True, "activation": "silu"}),
    "marian, other wavelengths": ("marian", {**POST, "sinusoid_base": 50.0}),
    "marian, shared layers": ("marian", {**POST, "share_layers": True}),
    "pegasus": ("pegasus", {"output_bias": True}),
    "pegasus, untied output": ("pegasus", {"tie_output": False}),
    "gpt2": ("gpt2", {**GPT2, "scale_embeddings": False}),
    "gpt2, untied": ("gpt2", {**GPT2, "scale_embeddings": False, "tie_output": False}),
    "gpt2, scaled embeddings": ("gpt2", GPT2),
    "gpt2, shared layers": ("gpt2", {**GPT2, "share_layers": True}),
    "llama": ("llama", {**LLAMA, "scale_embeddings": False}),
    "llama, grouped heads, biases": ("llama", {**LLAMA, "n_kv_head": 2, "bias": True, "tie_output": False}),
    "llama, wide heads": ("llama", {**LLAMA, "head_size": 8, "rotary_base": 500.0}),
    "qwen3": ("qwen3", {**LLAMA, "qk_norm": True, "n_kv_head": 2}),
    "bert": ("bert", {**BERT, "scale_embeddings": False}),
    "bert, scaled embeddings": ("bert", BERT),
    "bert, untied, shared layers": ("bert", {**BERT, "tie_output": False, "share_layers": True}),
    "bert, no head": ("bert", {**BERT, "scale_embeddings": False, "head": "none"}),
    "bert classify": ("bert", {**BERT, "scale_embeddings": False, "head": "classify", "n_label": 3}),
    "bert tag": ("bert", {**BERT, "scale_embeddings": False, "head": "tag", "n_label": 3}),
}


def made(settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    model = build_model(ModelConfig(**(SMALL | settings))).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too: what begins as zero or one hides a mistake
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def theirs(name: str, config: ModelConfig, tensors: dict[str, torch.Tensor], extra: dict[str, Any]) -> Any:
    dialect = DIALECTS[name]
    facts = dialect.to_config(config) | extra
    model_type = facts.pop("model_type")
    kind = getattr(transformers, dialect.class_with(config.head))
    model = kind(transformers.AutoConfig.for_model(model_type, **facts)).double().eval()
    result = model.load_state_dict(tensors, strict=False)
    assert not result.unexpected_keys
    model.tie_weights()
    computed = {"final_logits_bias", *dialect.ignored(config)}
    tied = {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
    assert set(result.missing_keys) <= computed | tied
    return model


@pytest.mark.parametrize("case", CASES)
def test_the_same_logits_there(case: str) -> None:
    name, settings = CASES[case]
    model = made(settings)
    config = model.config
    assert dialect_for(config).name == name
    tensors, extra = tensors_to(DIALECTS[name], config, dict(model.named_parameters()))
    other = theirs(name, config, tensors, extra)
    tokens = torch.randint(5, 29, (2, 9))
    with torch.no_grad():
        if config.family == "transformer":
            target = torch.randint(5, 29, (2, 7))
            ours = model(Rows.whole(tokens), Rows.whole(target))
            found = other(input_ids=tokens, decoder_input_ids=target).logits
        else:
            ours = model(Rows.whole(tokens))
            found = other(input_ids=tokens)
            found = found.last_hidden_state if config.head == "none" else found.logits
    if config.head == "classify":
        ours = ours[:, 0]
    # Their tables of positions are float32, whatever the model is.
    torch.testing.assert_close(found, ours, atol=1e-9 if config.positions == "learned" else 5e-6, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_and_back_bit_for_bit(case: str) -> None:
    name, settings = CASES[case]
    model = made(settings).float()
    config, own = model.config, {n: p.detach() for n, p in model.named_parameters()}
    tensors, _ = tensors_to(DIALECTS[name], config, own)
    back = tensors_from(DIALECTS[name], config, tensors)
    assert back.keys() == own.keys()
    assert all(torch.equal(back[n], own[n]) for n in own)


@pytest.mark.parametrize("case", [c for c in CASES if not any(w in c for w in ("scaled", "two", "llama", "shared"))])
def test_a_config_there_and_back(case: str) -> None:
    name, settings = CASES[case]
    config = ModelConfig(**(SMALL | settings))
    facts = DIALECTS[name].to_config(config) | {
        "architectures": [DIALECTS[name].class_with(config.head)],
        "id2label": {str(i): str(i) for i in range(config.n_label)},
    }
    there = ModelConfig(**DIALECTS[name].settings(facts))
    for field in (
        "n_embd",
        "hidden",
        "key_size",
        "kv_heads",
        "pre_norm",
        "activation",
        "tie_output",
        "norm_eps",
        "head",
    ):
        assert getattr(there, field) == getattr(config, field), field
    # An encoder-decoder comes with an output bias, which may be zero.
    there = replace(there, output_bias=config.output_bias)
    assert build_model(there).num_params() == build_model(config).num_params()


def test_what_cannot_be_said_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"nearest is llama, but model\.activation is relu, and llama has swiglu"):
        dialect_for(ModelConfig(**(SMALL | LLAMA | {"activation": "relu"})))
    with pytest.raises(UserError, match=r"model\.window is 4"):
        dialect_for(ModelConfig(**(SMALL | GPT2 | {"window": 4})))
