"""Small models of Hugging Face's, of random weights, saved as their library saves them: what `glassformer import` reads."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import sentencepiece
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.formats.huggingface.vocabulary import Vocabulary
from glassformer.text.tokenizer import UNK

TEXTS = [
    "the cat sat on the mat",
    "a cat and a hat",
    "three mice, or four?",
    "naïve café 你好",
    "one day the mice ate the hat",
    "where is my cat? on the mat.",
] * 4
SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40}
LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA |= {"num_key_value_heads": 2, "max_position_embeddings": 40}
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def noisy(model: Any) -> Any:
    """Biases and norms too: what begins as zero or one hides a mistake."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.requires_grad:  # a table that is computed
                continue
            parameter.add_(0.3 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.add_(torch.randn_like(buffer))
    return model.eval()


def byte_level(folder: Path, special: list[str], **roles: Any) -> Any:
    """A byte-level BPE tokenizer with special tokens, in a tokenizer.json."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    library.train_from_iterator(TEXTS, trainer)
    frame = roles.pop("frame", None)
    if frame is not None:
        library.post_processor = processors.TemplateProcessing(
            single=frame, special_tokens=[(name, special.index(name)) for name in special if name in frame]
        )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=library, **roles)
    tokenizer.save_pretrained(folder)
    return tokenizer


def unigram(folder: Path, special: list[str], **roles: Any) -> Any:
    """A unigram tokenizer over words with their spaces, in a tokenizer.json."""
    library = Tokenizer(models.Unigram())
    library.normalizer = normalizers.NFKC()
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(TEXTS, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", special.index("</s>"))]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=library, **roles)
    tokenizer.save_pretrained(folder)
    return tokenizer


def in_our_ids(vocabulary: Vocabulary, theirs: torch.Tensor) -> torch.Tensor:
    """Ids of a model that was imported, as the run has them."""
    table = torch.full((vocabulary.size,), UNK)
    table[torch.tensor(list(vocabulary.ours.keys()))] = torch.tensor(list(vocabulary.ours.values()))
    return table[theirs]


def spm_bytes(kind: str = "unigram", size: int = 40) -> bytes:
    """A SentencePiece model trained on the texts."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=out, model_type=kind, vocab_size=size, minloglevel=2
    )
    return out.getvalue()


def marian(folder: Path, *, separate: bool = False) -> tuple[Any, Any]:
    """OPUS-MT's layout: two SentencePiece models, a vocabulary of its own order, padding that starts the decoder."""
    folder.mkdir()
    found = {}
    for side, size in (("source", 42), ("target", 38)):
        (folder / f"{side}.spm").write_bytes(spm_bytes(size=size))
        processor = sentencepiece.SentencePieceProcessor(model_proto=(folder / f"{side}.spm").read_bytes())
        found[side] = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]

    def vocabulary(pieces: list[str]) -> dict[str, int]:
        names = ["</s>", "<unk>", *dict.fromkeys(pieces), ">>fra<<"]
        names.insert(2 if separate else len(names), "<pad>")
        return {name: i for i, name in enumerate(names)}

    both = vocabulary(found["source"][:-2] + found["target"])  # two pieces of the model are in no vocabulary
    source = vocabulary(found["source"]) if separate else both
    (folder / "vocab.json").write_text(json.dumps(source), encoding="utf-8")
    target = vocabulary(found["target"]) if separate else both
    extra: dict[str, Any] = {"separate_vocabs": True} if separate else {}
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(target), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer", **extra}))
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    config = transformers.MarianConfig(
        vocab_size=len(source),
        decoder_vocab_size=len(target),
        share_encoder_decoder_embeddings=not separate,
        tie_word_embeddings=True,
        pad_token_id=source["<pad>"],
        decoder_start_token_id=target["<pad>"],
        eos_token_id=0,
        activation_function="swish",
        scale_embedding=True,
        static_position_embeddings=True,
        forced_eos_token_id=None,
        **SIZES,
    )
    model = noisy(transformers.MarianMTModel(config))
    model.save_pretrained(folder)
    return model, tokenizer


def pegasus(folder: Path, **sizes: Any) -> tuple[Any, Any]:
    tokenizer = unigram(folder, ["<pad>", "</s>", "<unk>"], pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    config = transformers.PegasusConfig(vocab_size=len(tokenizer), scale_embedding=True, **ids, **(SIZES | sizes))
    return saved(transformers.PegasusForConditionalGeneration(config), folder), tokenizer


def bart(folder: Path, kind: str = "Bart") -> tuple[Any, Any]:
    special = ["<s>", "<pad>", "</s>", "<unk>", "en_XX", "de_DE"]
    frame = "<s> $A </s>" if kind == "Bart" else "en_XX $A </s>"
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "frame": frame}
    tokenizer = byte_level(folder, special, **roles)
    forced = 0 if kind == "Bart" else 5
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer),
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_bos_token_id=forced,
        forced_eos_token_id=None,
        scale_embedding=kind != "Bart",
        **SIZES,
    )
    return saved(getattr(transformers, f"{kind}ForConditionalGeneration")(config), folder), tokenizer


def t5(folder: Path, **more: Any) -> tuple[Any, Any]:
    """T5's layout: its tokenizer with marks for gaps behind the words, tables that are larger than it, no biases."""
    words = unigram(folder, ["<pad>", "</s>", "<unk>"], pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    pieces = json.loads(words.backend_tokenizer.to_str())["model"]["vocab"]
    tokenizer = transformers.T5Tokenizer(vocab=[tuple(piece) for piece in pieces], extra_ids=3)
    tokenizer.save_pretrained(folder)
    sizes = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 4, "initializer_factor": 0.3}
    config = transformers.T5Config(vocab_size=len(tokenizer) + 5, decoder_start_token_id=0, **sizes, **more)
    return saved(transformers.T5ForConditionalGeneration(config), folder), tokenizer


def flan_t5(folder: Path) -> tuple[Any, Any]:
    """The files of T5 1.1 and Flan-T5: gated layers, and an output layer of its own, whose input is not scaled."""
    _, tokenizer = t5(folder, feed_forward_proj="gated-gelu")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn(tensors["shared.weight"].shape)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    facts = json.loads((folder / "config.json").read_text())
    facts.pop("scale_decoder_outputs", None)
    (folder / "config.json").write_text(json.dumps(facts | {"tie_word_embeddings": False}))
    return transformers.T5ForConditionalGeneration.from_pretrained(folder).eval(), tokenizer


def m2m_100(folder: Path) -> tuple[Any, Any]:
    """M2M100's own layout: a SentencePiece model, a vocabulary in an order of its own, languages and made-up words behind it."""
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(spm_bytes("bpe", 60))
    processor = sentencepiece.SentencePieceProcessor(model_proto=(folder / "sentencepiece.bpe.model").read_bytes())
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces[-9:], *pieces[:-9]]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    files = str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model")
    tokenizer = transformers.M2M100Tokenizer(*files, src_lang="en", tgt_lang="de")
    tokenizer.save_pretrained(folder)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    size = len(names) + len(tokenizer.lang_token_to_id) + tokenizer.num_madeup_words
    config = transformers.M2M100Config(vocab_size=size, scale_embedding=True, forced_eos_token_id=None, **ids, **SIZES)
    return saved(transformers.M2M100ForConditionalGeneration(config), folder), tokenizer


def gpt2(folder: Path, **more: Any) -> tuple[Any, Any]:
    tokenizer = byte_level(folder, ["<|endoftext|>"], bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
    config = transformers.GPT2Config(vocab_size=len(tokenizer), **sizes, **ids, **more)
    return saved(transformers.GPT2LMHeadModel(config), folder), tokenizer


def opt(folder: Path) -> tuple[Any, Any]:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    roles = {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "frame": "</s> $A"}
    tokenizer = byte_level(folder, special, **roles)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "ffn_dim": 24,
        "word_embed_proj_dim": 16,
    }
    config = transformers.OPTConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes)
    return saved(transformers.OPTForCausalLM(config), folder), tokenizer


def llama(folder: Path, kind: str = "Llama", **more: Any) -> tuple[Any, Any]:
    special = ["<unk>", "<s>", "</s>", "<|im_start|>"]
    frame = None if kind.startswith("Qwen") else "<s> $A"
    roles = {"bos_token": "<s>", "eos_token": "</s>", "frame": frame}
    tokenizer = byte_level(folder, special, **roles)
    # Tables are often larger than the vocabulary.
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer) + 5, bos_token_id=1, eos_token_id=2, pad_token_id=None, **(LLAMA | more)
    )
    return saved(getattr(transformers, f"{kind}ForCausalLM")(config), folder), tokenizer


def bert(folder: Path, kind: str = "ForMaskedLM", **more: Any) -> tuple[Any, Any]:
    folder.mkdir()
    words = sorted({w.strip("?.,") for t in TEXTS[:3] + TEXTS[4:6] for w in t.split()})
    names = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "##s", "##e", "?", ",", "."]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    vocab = {name: i for i, name in enumerate(names)}
    tokenizer = transformers.BertTokenizer(vocab=vocab)
    config = transformers.BertConfig(vocab_size=len(names), max_position_embeddings=40, **BERT, **more)
    return saved(getattr(transformers, f"Bert{kind}")(config), folder), tokenizer


def roberta(folder: Path, kind: str = "ForMaskedLM", **more: Any) -> tuple[Any, Any]:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    roles = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    tokenizer = byte_level(folder, special, mask_token="<mask>", unk_token="<unk>", frame="<s> $A </s>", **roles)
    sizes = {"max_position_embeddings": 42, "type_vocab_size": 1}
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), **sizes, **BERT, **more)
    return saved(getattr(transformers, f"Roberta{kind}")(config), folder), tokenizer


def saved(model: Any, folder: Path) -> Any:
    """The model with random weights, written into the folder."""
    noisy(model).save_pretrained(folder)
    return model


LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
SEQ2SEQ: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "marian": marian,
    "marian, two vocabularies": lambda f: marian(f, separate=True),
    "pegasus": pegasus,
    "pegasus, an encoder of its own sizes": lambda f: pegasus(f, encoder_attention_heads=4, encoder_ffn_dim=10),
    "bart": bart,
    "mbart": lambda f: bart(f, "MBart"),
    "m2m_100": lambda f: bart(f, "M2M100"),
    "m2m_100, its own files": m2m_100,
    "t5": t5,
    "flan-t5": flan_t5,
}
LLAMA_31 = {"rope_type": "llama3", "rope_theta": 50.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_31 |= {"original_max_position_embeddings": 40}
DECODERS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "gpt2": gpt2,
    "gpt2, a scale a layer": lambda f: gpt2(f, scale_attn_by_inverse_layer_idx=True),
    "gpt2, untied": lambda f: gpt2(f, tie_word_embeddings=False),
    "opt": opt,
    "llama": llama,
    "llama, tied, biases": lambda f: llama(f, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama 3.1": lambda f: llama(f, rope_parameters=LLAMA_31, head_dim=16),
    "mistral, a window": lambda f: llama(f, "Mistral", sliding_window=4),
    "qwen2": lambda f: llama(f, "Qwen2"),
    "qwen3": lambda f: llama(f, "Qwen3", head_dim=8),
}
READERS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "bert": bert,
    "bert classify": lambda f: bert(f, "ForSequenceClassification", **LABELS),
    "bert tag": lambda f: bert(f, "ForTokenClassification", **LABELS),
    "bert pre-training": lambda f: bert(f, "ForPreTraining"),
    "roberta": roberta,
    "roberta classify": lambda f: roberta(f, "ForSequenceClassification", **LABELS),
}
