"""Whole models of Hugging Face, with the same weights under other names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.models import BERT, GPT, Transformer, build_model, preset
from glassformer.nn.positions import sinusoids
from glassformer.nn.rows import Rows
from tests.scrambled import CLOSE, VOCABULARY, difference, scramble


def renamed(state: Mapping[str, Tensor], table: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """Each name through the first row of the table that matches all of it; a name that no row matches is an error."""
    out = {}
    for name, tensor in state.items():
        for pattern, ours in table:
            if re.fullmatch(pattern, name):
                if ours:
                    out[re.sub(pattern, ours, name)] = tensor
                break
        else:
            raise AssertionError(f"no row for {name}")
    return out


GPT2_NAMES = [
    (r"transformer\.wte\.weight", "embedding.weight"),
    (r"transformer\.wpe\.weight", "positions.weight"),
    (r"transformer\.h\.(\d+)\.ln_1\.(\w+)", r"decoder.\1.attention_norm.\2"),
    (r"transformer\.h\.(\d+)\.ln_2\.(\w+)", r"decoder.\1.mlp_norm.\2"),
    (r"transformer\.h\.(\d+)\.attn\.c_attn\.(\w+)", r"decoder.\1.attention.qkv.\2"),
    (r"transformer\.h\.(\d+)\.attn\.c_proj\.(\w+)", r"decoder.\1.attention.out.\2"),
    (r"transformer\.h\.(\d+)\.mlp\.c_fc\.(\w+)", r"decoder.\1.mlp.up.\2"),
    (r"transformer\.h\.(\d+)\.mlp\.c_proj\.(\w+)", r"decoder.\1.mlp.down.\2"),
    (r"transformer\.ln_f\.(\w+)", r"decoder.norm.\1"),
    (r"lm_head\.weight", ""),
]

MARIAN_NAMES = [
    (r"model\.shared\.weight", "embedding.weight"),
    (r".*embed_tokens\.weight|lm_head\.weight|.*embed_positions\.weight|final_logits_bias", ""),
    *(
        (rf"model\.(encoder|decoder)\.layers\.(\d+)\.{theirs}\.{t}_proj\.(\w+)", rf"\1.\2.{ours}.{o}.\3")
        for theirs, ours in [("self_attn", "attention"), ("encoder_attn", "cross")]
        for t, o in [("q", "query"), ("k", "key"), ("v", "value"), ("out", "out")]
    ),
    (r"model\.(\w+)\.layers\.(\d+)\.self_attn_layer_norm\.(\w+)", r"\1.\2.attention_norm.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.encoder_attn_layer_norm\.(\w+)", r"\1.\2.cross_norm.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.final_layer_norm\.(\w+)", r"\1.\2.mlp_norm.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.fc1\.(\w+)", r"\1.\2.mlp.up.\3"),
    (r"model\.(\w+)\.layers\.(\d+)\.fc2\.(\w+)", r"\1.\2.mlp.down.\3"),
]

BERT_NAMES = [
    (r"bert\.embeddings\.word_embeddings\.weight", "embedding.weight"),
    (r"bert\.embeddings\.position_embeddings\.weight", "positions.weight"),
    (r"bert\.embeddings\.token_type_embeddings\.weight", "type_embedding.weight"),
    (r"bert\.embeddings\.LayerNorm\.(\w+)", r"embedding_norm.\1"),
    (r"bert\.encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)\.(\w+)", r"encoder.\1.attention.\2.\3"),
    (r"bert\.encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)", r"encoder.\1.attention.out.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.(\w+)", r"encoder.\1.attention_norm.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.intermediate\.dense\.(\w+)", r"encoder.\1.mlp.up.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.output\.dense\.(\w+)", r"encoder.\1.mlp.down.\2"),
    (r"bert\.encoder\.layer\.(\d+)\.output\.LayerNorm\.(\w+)", r"encoder.\1.mlp_norm.\2"),
    (r"bert\.pooler\.dense\.(\w+)", r"head.dense.\1"),
    (r"classifier\.(\w+)", r"head.label.\1"),
    (r"cls\.predictions\.transform\.dense\.(\w+)", r"head.dense.\1"),
    (r"cls\.predictions\.transform\.LayerNorm\.(\w+)", r"head.norm.\1"),
    (r"cls\.predictions\.bias", "head.bias"),
    (r"cls\.predictions\.decoder\.\w+", ""),
]


def split_gpt2(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """GPT-2 keeps its matrices transposed, and query, key and value side by side."""
    out = {}
    for name, tensor in renamed(state, GPT2_NAMES).items():
        if name.startswith("decoder.") and tensor.ndim == 2:
            tensor = tensor.T
        if ".qkv." in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3, dim=0), strict=True):
                out[name.replace("qkv", part)] = piece
        else:
            out[name] = tensor
    return out


def loaded(config: ModelConfig, state: Mapping[str, Tensor]) -> Transformer | GPT | BERT:
    model = build_model(config).eval()
    model.load_state_dict(dict(state), strict=True)
    return model


SHORT, LONG = [3, 1, 4], [1, 5, 9, 2, 6, 5, 3]
TOKENS = torch.tensor([[*SHORT, 0, 0, 0, 0], LONG])
REAL = torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1] * 7])


@pytest.mark.slow
@pytest.mark.parametrize("attend", ["eager", "sdpa"])
def test_gpt2_of_hugging_face(attend: str) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=16,
            n_embd=16,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    theirs.set_attn_implementation(attend)
    scramble(theirs)
    ours = loaded(
        replace(preset("gpt2"), vocab_size=VOCABULARY, block_size=16, n_layer=2, n_head=4, n_embd=16),
        split_gpt2(theirs.state_dict()),
    )
    logits = ours(Rows.from_lists([SHORT, LONG]))
    expected = theirs(TOKENS, attention_mask=REAL).logits
    assert difference(logits[REAL.bool()], expected[REAL.bool()]) <= CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_marian_of_hugging_face(activation: str) -> None:
    """Marian's table of positions is half-split, the paper's interleaved: ours is put in its place."""
    from transformers import MarianConfig, MarianMTModel

    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=16,
            d_model=16,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=20,
            decoder_ffn_dim=20,
            activation_function=activation,
            scale_embedding=True,
            pad_token_id=0,
            eos_token_id=0,
            forced_eos_token_id=0,
            decoder_start_token_id=0,
        )
    ).eval()
    scramble(theirs)
    with torch.no_grad():
        for stack in (theirs.model.encoder, theirs.model.decoder):
            stack.embed_positions.weight.copy_(sinusoids(16, 16))
    config = replace(
        preset("transformer-base"),
        vocab_size=VOCABULARY,
        block_size=16,
        n_layer=3,
        n_encoder_layer=2,
        n_head=4,
        n_embd=16,
        n_hidden=20,
        activation=activation,  # type: ignore[arg-type]
    )
    ours = loaded(config, renamed(theirs.state_dict(), MARIAN_NAMES))
    target = torch.tensor([[7, 8, 9, 10], [2, 4, 6, 8]])
    logits = ours(Rows.from_lists([SHORT, LONG]), Rows.whole(target))
    expected = theirs(input_ids=TOKENS, attention_mask=REAL, decoder_input_ids=target).logits
    assert difference(logits, expected) <= CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("head", ["mlm", "classify", "tag"])
def test_bert_of_hugging_face(head: str) -> None:
    """Token types, the norm on the embeddings, and each head. Catches a masked head without its norm or bias, and a class
    read off another token than the first."""
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification

    kind = {"mlm": BertForMaskedLM, "classify": BertForSequenceClassification, "tag": BertForTokenClassification}[head]
    theirs = kind(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=20,
            max_position_embeddings=16,
            num_labels=3,  # type: ignore[call-arg]
        )
    ).eval()
    scramble(theirs)
    config = replace(
        preset("bert-base"),
        vocab_size=VOCABULARY,
        block_size=16,
        n_layer=2,
        n_head=4,
        n_embd=16,
        n_hidden=20,
        head=head,  # type: ignore[arg-type]
        n_label=0 if head == "mlm" else 3,
    )
    ours = loaded(config, renamed(theirs.state_dict(), BERT_NAMES))
    types = torch.tensor([[0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1]])
    logits = ours(Rows.from_lists([SHORT, LONG]), types)
    expected = theirs(TOKENS, attention_mask=REAL, token_type_ids=types).logits
    if head == "classify":
        assert difference(logits[:, 0], expected) <= CLOSE
    else:
        assert difference(logits[REAL.bool()], expected[REAL.bool()]) <= CLOSE
