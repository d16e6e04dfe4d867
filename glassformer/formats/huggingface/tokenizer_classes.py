"""What the tokenizer classes of transformers do besides their vocabulary: `BertTokenizer`, `GPT2Tokenizer`, `RobertaTokenizer`
(BART has it, too) and `Qwen2Tokenizer` build how a text is cut from a few settings of tokenizer_config.json, each with a default.
Where a tokenizer.json says otherwise of these settings, the class has the last word.

`never_split` is known to none of these classes any more (only to the slow ones of before), and does nothing there or here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.formats.untrusted import read_json
from glassformer.text.pipeline_checks import LARGEST_FILE

CLASSES = {"bert": "Bert", "gpt2": "GPT2", "opt": "GPT2", "roberta": "Roberta", "bart": "Roberta"}
CLASSES |= {"qwen2": "Qwen2", "qwen3": "Qwen2"}
"""The class of a model_type, where the folder names none."""
SAME = {"Bart": "Roberta"}
FAIRSEQ = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
ROLES: dict[str, dict[str, str]] = {
    "Bert": {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"},
    "Roberta": FAIRSEQ | {"pad_token": "<pad>", "mask_token": "<mask>"},
    "GPT2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    "Qwen2": {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
}
"""What each class calls its special tokens, where the folder does not say."""
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


NO_STEPS = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))


def tokenizer_json(model: dict[str, Any], added: list[dict[str, Any]], **steps: Any) -> dict[str, Any]:
    """A tokenizer.json of a model, the tokens beside it, and the steps before and behind it; those not named are none."""
    return {"version": "1.0", "added_tokens": added, **NO_STEPS, **steps, "model": model}


def settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json; nothing where it is not there."""
    return read_json(folder, "tokenizer_config.json", LARGEST_FILE, optional=True)


def class_of(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Bert, GPT2, Roberta or Qwen2: by the name in tokenizer_config.json, else by the model's type; None for any other."""
    named = config.get("tokenizer_class")
    if isinstance(named, str):
        name = named.removesuffix("Fast").removesuffix("Tokenizer")
        return SAME.get(name, name) if SAME.get(name, name) in ROLES else None
    kind = read_json(folder, "config.json", optional=True).get("model_type")
    return CLASSES.get(kind) if isinstance(kind, str) else None


def bert_normalizer(config: Mapping[str, Any]) -> dict[str, Any]:
    """Lower case and no accents unless told otherwise, and a space round every Chinese character."""
    accents = config.get("strip_accents")
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": bool(config.get("tokenize_chinese_chars", True)),
        "strip_accents": accents if isinstance(accents, bool) else None,
        "lowercase": bool(config.get("do_lower_case", True)),
    }


def qwen2_cut(facts: dict[str, Any]) -> dict[str, Any]:
    """Qwen2's own pattern, on composed characters."""
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    own = [split, BYTE_LEVEL | {"use_regex": False}]
    return facts | {"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": own}}


def with_prefix_space(step: Any, wanted: bool) -> Any:
    """A pre-tokenizer whose byte-level step puts a space before a text, or does not."""
    if not isinstance(step, dict):
        return step
    if isinstance(inner := step.get("pretokenizers"), list):
        return step | {"pretokenizers": [with_prefix_space(one, wanted) for one in inner]}
    return step | {"add_prefix_space": wanted} if step.get("type") == "ByteLevel" else step


def as_class_says(facts: dict[str, Any], kind: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer.json with the settings of its class."""
    if kind is None:
        return facts
    if kind == "Bert":
        told = facts.get("normalizer")
        ours = isinstance(told, dict) and told.get("type") == "BertNormalizer"
        return facts | {"normalizer": bert_normalizer(config)} if ours else facts
    return facts | {
        "pre_tokenizer": with_prefix_space(facts.get("pre_tokenizer"), bool(config.get("add_prefix_space")))
    }


def added_tokens(folder: Path, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tokens that stand beside vocab.txt or vocab.json: in tokenizer_config.json, or in added_tokens.json of before."""
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    older = read_json(folder, "added_tokens.json", LARGEST_FILE, optional=True)
    found = {i: usual | {"id": i, "content": name} for name, i in older.items() if type(i) is int and i >= 0}
    told = config.get("added_tokens_decoder")
    for number, token in told.items() if isinstance(told, dict) else ():
        if str(number).isdecimal() and isinstance(token, dict) and isinstance(token.get("content"), str):
            known = {name: token[name] for name in usual if isinstance(token.get(name), bool)}
            found[int(number)] = usual | known | {"id": int(number), "content": token["content"]}
    return [found[i] for i in sorted(found) if found[i]["content"]]
