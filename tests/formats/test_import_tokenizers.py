"""Tokenizers that come as vocab.txt, or as vocab.json and merges.txt: texts are cut as `AutoTokenizer` of transformers cuts them,
whatever tokenizer_config.json says. Special tokens that a text spells are text, here (there: `split_special_tokens`).

Broken variants these catch: accents, Chinese characters, case or the space before a text handled by a default instead of the
setting; Qwen2 cut by GPT-2's pattern; tokens that were added beside the vocabulary left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from glassformer.formats.huggingface.tokenizers import control_ids, read_tokenizers

TEXTS = [
    "the cat sat on the mat",
    "  blanks before",
    "two  inside, and behind ",
    "Crème BRÛLÉE, naïve café",
    "ÅNGSTRÖM Straße İstanbul ǅ",
    "cafe\u0301 decomposed e\u0301",
    "你好，世界",
    "没有空格的中文mixed with English",
    "日本語 かな 한국어 ไทย",
    "emoji 🙂 and 👍🏽",
    "don't it's we'LL they'Ve",
    "3.14% of 1234567",
    "a\ttab,\na line\r\n\r\nand another",
    "the [MASK] sat [SEP] </s> <mask> <|endoftext|> <|im_start|>",
    "THE CAT",
    "zero\u200bwidth and\u00a0hard\u3000wide",
    "a-b_c (d) [e] {f}",
    "½ ﬁne ①",
    "catcat" * 40,
    "?!.,;—…",
    "newword and NEWWORD",
]
CONFIGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "cased": {"do_lower_case": False},
    "accents kept": {"strip_accents": False},
    "accents stripped, cased": {"strip_accents": True, "do_lower_case": False},
    "Chinese left whole": {"tokenize_chinese_chars": False},
    "never split": {"never_split": ["mat"], "do_basic_tokenize": True},
    "another unknown": {"unk_token": "[NIL]"},
}
ADDED = {
    "content": "newword",
    "special": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": True,
    "single_word": False,
}


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def apart(folder: Path) -> list[str]:
    """The texts that are cut otherwise."""
    theirs = AutoTokenizer.from_pretrained(folder)
    found = read_tokenizers(folder)[0]
    vocabulary = control_ids("bert", {}, found, max(found.names) + 1)
    ours = found.in_order(vocabulary)
    return [
        text
        for text in TEXTS
        if [vocabulary.order[i] for i in ours.encode(text)]
        != theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids
    ]


@pytest.mark.parametrize("has_class", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_word_pieces(name: str, has_class: bool, tmp_path: Path) -> None:
    """vocab.txt alone, and the same settings with a tokenizer.json that says otherwise."""
    letters = sorted(
        {c for text in TEXTS for word in (text, text.lower(), text.upper()) for c in word if not c.isspace()}
    )
    plain = [chr(c) for c in range(97, 123)]
    names = ["[PAD]", "[UNK]", "[NIL]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*letters, *plain]), "the", "cat"]
    names += [f"##{c}" for c in dict.fromkeys([*letters, *plain])] + ["##at", "The"]
    config = CONFIGS[name] | ({"tokenizer_class": "BertTokenizer"} if has_class else {})
    write(tmp_path, "vocab.txt", "\n".join(names) + "\n")
    write(tmp_path, "config.json", {"model_type": "bert"})
    write(tmp_path, "tokenizer_config.json", config)
    assert apart(tmp_path) == []
    AutoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    facts = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    facts["normalizer"] |= {"lowercase": not facts["normalizer"]["lowercase"], "handle_chinese_chars": False}
    write(tmp_path, "tokenizer.json", facts)
    write(tmp_path, "tokenizer_config.json", config)
    assert apart(tmp_path) == []


KINDS = {
    "GPT2Tokenizer": ("gpt2", ["<|endoftext|>"]),
    "RobertaTokenizer": ("roberta", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
    "BartTokenizer": ("bart", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
    "Qwen2Tokenizer": ("qwen2", ["<|endoftext|>"]),
    "Qwen2TokenizerFast": ("qwen3", ["<|endoftext|>"]),
}


@pytest.mark.parametrize(
    "more", [{}, {"add_prefix_space": True}, {"add_prefix_space": False}, {"added": True}], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_class", [True, False])
def test_byte_level_pieces(kind: str, more: dict[str, Any], has_class: bool, tmp_path: Path) -> None:
    model_type, special = KINDS[kind]
    library = Tokenizer(models.BPE())
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    library.train_from_iterator(TEXTS * 2, trainer)
    facts = json.loads(library.to_str())["model"]
    write(tmp_path, "vocab.json", facts["vocab"])
    write(tmp_path, "merges.txt", "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in facts["merges"]))
    write(tmp_path, "config.json", {"model_type": model_type})
    config = {k: v for k, v in more.items() if k != "added"} | ({"tokenizer_class": kind} if has_class else {})
    if "added" in more:
        config["added_tokens_decoder"] = {str(len(facts["vocab"])): ADDED}
    write(tmp_path, "tokenizer_config.json", config)
    assert apart(tmp_path) == []
    if "added" in more:
        found = read_tokenizers(tmp_path)[0]
        assert found.names[len(facts["vocab"])] == "newword"
