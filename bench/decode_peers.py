"""The peers of bench/decode.py: Hugging Face's MarianMTModel and CTranslate2, given the weights of our model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.config import ModelConfig
from glassformer.models import Transformer, preset
from glassformer.nn import sinusoids

WORDS, SENTENCES, NEW = 8000, 64, 24
BOS, EOS = 1, 2
Run = Callable[[int, int], list[list[int]]]


def config() -> ModelConfig:
    return replace(preset("transformer-base"), vocab_size=WORDS, block_size=128)


def to_marian(model: Transformer) -> Any:
    from transformers import MarianConfig, MarianMTModel

    c = model.config
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=c.vocab_size,
            d_model=c.n_embd,
            encoder_layers=c.n_layer,
            decoder_layers=c.n_layer,
            encoder_attention_heads=c.n_head,
            decoder_attention_heads=c.n_head,
            encoder_ffn_dim=c.hidden,
            decoder_ffn_dim=c.hidden,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=c.block_size,
            pad_token_id=0,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )
    words = {"self_attn": "attention", "encoder_attn": "cross", "fc1": "mlp.up", "fc2": "mlp.down"}
    words |= {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out", "final_layer_norm": "mlp_norm"}
    words |= {"self_attn_layer_norm": "attention_norm", "encoder_attn_layer_norm": "cross_norm"}
    ours = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in marian.named_parameters():
            parts = name.split(".")
            if "layers" in parts:
                mine = ".".join(words.get(part, part) for part in parts if part not in ("model", "layers"))
                parameter.copy_(ours[mine])
            elif "embed_positions" in parts:  # Marian has the sines first and the cosines after; ours alternate
                parameter.copy_(sinusoids(*parameter.shape))
            else:
                parameter.copy_(model.target_table.weight)
    return marian.eval()


def save_ctranslate2(marian: Any, folder: Path) -> None:
    from ctranslate2.converters.transformers import BartLoader

    marian.config.normalize_before = False
    marian.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(marian)
    words = [str(i) for i in range(WORDS)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = str(BOS)
    spec.config.eos_token, spec.config.unk_token = str(EOS), "3"
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))


def hugging_face(folder: Path, sentences: list[list[int]]) -> Run:
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(folder / "marian").eval()
    with torch.no_grad():  # the table of positions is made anew by Marian, its own way
        for side in (model.model.encoder, model.model.decoder):
            side.embed_positions.weight.copy_(sinusoids(*side.embed_positions.weight.shape))
    order = sorted(range(SENTENCES), key=lambda i: -len(sentences[i]))

    @torch.inference_mode()
    def run(beam: int, batch: int) -> list[list[int]]:
        answers: list[list[int]] = [[] for _ in sentences]
        for start in range(0, SENTENCES, batch):
            here = order[start : start + batch]
            width = max(len(sentences[i]) for i in here)
            tokens = torch.tensor([[*sentences[i], *[0] * (width - len(sentences[i]))] for i in here])
            real = torch.tensor([[1] * len(sentences[i]) + [0] * (width - len(sentences[i])) for i in here])
            found = model.generate(
                input_ids=tokens,
                attention_mask=real,
                num_beams=beam,
                do_sample=False,
                min_new_tokens=NEW,
                max_new_tokens=NEW,
            )
            for i, row in zip(here, found.tolist()):
                answers[i] = row[1:]
        return answers

    return run


def ctranslate2(kind: str, folder: Path, sentences: list[list[int]], threads: int) -> Run:
    from ctranslate2 import Translator

    translator = Translator(
        str(folder / "ct2"), device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads
    )
    words = [[str(i) for i in sentence] for sentence in sentences]
    options: dict[str, Any] = {"max_decoding_length": NEW, "min_decoding_length": NEW}

    def run(beam: int, batch: int) -> list[list[int]]:
        if batch == 1:
            found = [translator.translate_batch([s], beam_size=beam, **options)[0] for s in words]
        else:
            found = translator.translate_batch(words, beam_size=beam, max_batch_size=batch, **options)
        return [[int(word) for word in one.hypotheses[0]] for one in found]

    return run
