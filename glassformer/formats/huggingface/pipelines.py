"""How a text is cut there, as a tokenizer.json: by the tokenizer classes of transformers, and by SentencePiece models.

`BertTokenizer`, `GPT2Tokenizer`, `RobertaTokenizer` (BART has it, too) and `Qwen2Tokenizer` build how a text is cut from a few
settings of tokenizer_config.json, each with a default. Where a tokenizer.json says otherwise of these settings, the class has the
last word. `never_split` is known to none of these classes any more, only to the slow ones of before, and does nothing there or
here.

A SentencePiece model file (Kudo & Richardson 2018) is read by the messages of the `sentencepiece` package (a protocol buffer:
nothing of the file is run). What comes out is the pipeline of the `tokenizers` library that cuts text in the same way.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import UserError, install_hint
from glassformer.files.structured import read_regular
from glassformer.formats.untrusted import inside, read_json
from glassformer.text.imported import LARGEST_FILE, LONGEST_PIECE, MOST_PIECES, check_size
from glassformer.text.tokenizer import CONTROL_NAMES

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


def read_vocabulary(folder: Path, name: str) -> dict[int, str]:
    """A vocab.json of names to numbers, turned round."""
    found = read_json(folder, name, LARGEST_FILE)
    if not 0 < len(found) <= MOST_PIECES or not all(type(i) is int and 0 <= i < MOST_PIECES for i in found.values()):
        raise UserError(
            "{folder} is no vocabulary of names and numbers, of at most {most_pieces:,}", folder / name, MOST_PIECES
        )
    if len(set(found.values())) < len(found):
        raise UserError("{folder} gives one number to two names", folder / name)
    return {i: piece for piece, i in found.items()}


def byte_level_bpe(folder: Path, added: list[dict[str, Any]]) -> dict[str, Any]:
    """GPT-2's `vocab.json` and `merges.txt` as a tokenizer.json."""
    names = read_vocabulary(folder, "vocab.json")
    content = read_regular(inside(folder, "merges.txt"), LARGEST_FILE)
    check_size(content, str(folder / "merges.txt"))
    lines = content.decode("utf-8", "replace").split("\n")
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    ids = {piece: i for i, piece in names.items()}
    good = [pair for pair in merges if len(pair) == 2 and {*pair, "".join(pair)} <= ids.keys()]
    model = {"type": "BPE", "vocab": ids, "merges": good, "unk_token": None}
    return tokenizer_json(model, added, pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL)


def word_pieces(folder: Path, added: list[dict[str, Any]], unknown: str) -> dict[str, Any]:
    """BERT's `vocab.txt` as a tokenizer.json."""
    content = read_regular(inside(folder, "vocab.txt"), LARGEST_FILE)
    names = content.decode("utf-8", "replace").removesuffix("\n").split("\n")
    model: dict[str, Any] = {"type": "WordPiece", "vocab": {name.rstrip("\r"): i for i, name in enumerate(names)}}
    model |= {"unk_token": unknown, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    cut = {"type": "BertPreTokenizer"}
    return tokenizer_json(model, added, normalizer=bert_normalizer({}), pre_tokenizer=cut, decoder=decoder)


# ------------------------------------------------------------------------------------------------------- SentencePiece

LARGEST_MODEL = 32 << 20
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # kinds of pieces
REACHABLE = (NORMAL, USER_DEFINED, BYTE)
UNIGRAM, BPE = 1, 2  # kinds of models


@dataclass(frozen=True)
class SentencePiece:
    """What a model file says: its pieces with score and kind, in the order of their ids, and how it reads text."""

    pieces: list[tuple[str, float, int]]
    is_bpe: bool
    charsmap: bytes
    dummy_prefix: bool  # a text begins with a space
    single_spaces: bool  # several spaces are one, and none stand at either end
    byte_fallback: bool


def read_sentencepiece(path: Path) -> SentencePiece:
    """A `.spm` or `.model` file; one that makes no sense is refused in a sentence."""
    content = read_regular(path, LARGEST_MODEL)
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
    except ImportError:
        raise UserError(
            "{path} is a SentencePiece model, which takes sentencepiece and protobuf to read; install with: {command}",
            path,
            install_hint("hf"),
        ) from None
    try:
        found: Any = ModelProto.FromString(content)
        pieces = [(piece.piece, piece.score, piece.type) for piece in found.pieces]
    except (DecodeError, ValueError):  # a UnicodeDecodeError is a ValueError
        raise UserError("{path} is not a SentencePiece model, or was cut short", path) from None
    trainer, normalizer = found.trainer_spec, found.normalizer_spec
    if not 0 < len(pieces) <= MOST_PIECES or trainer.model_type not in (UNIGRAM, BPE):
        raise UserError(
            "{path} is not a SentencePiece model of kind unigram or BPE with at least one piece and at most {most_pieces:,}",
            path,
            MOST_PIECES,
        )
    # What is no UTF-8 comes as bytes.
    texts = all(isinstance(name, str) and 0 < len(name) <= LONGEST_PIECE for name, _, _ in pieces)
    if not texts or not all(abs(score) < 1e30 for _, score, _ in pieces):
        raise UserError("{path} has a piece that is no text or too long, or whose score is no number", path)
    if len({name for name, _, _ in pieces}) < len(pieces):
        raise UserError("{path} has a piece twice", path)
    return SentencePiece(
        pieces,
        is_bpe=trainer.model_type == BPE,
        charsmap=normalizer.precompiled_charsmap,
        dummy_prefix=normalizer.add_dummy_prefix,
        single_spaces=normalizer.remove_extra_whitespaces,
        byte_fallback=trainer.byte_fallback,
    )


def merges_of(pieces: Mapping[str, tuple[float, int]]) -> list[list[str]]:
    """BPE's merges, best first: every way in which two pieces make a third, by the score of what they make. `pieces`: score
    and number of each. (SentencePiece keeps no list; which pair comes first among equals is as in Hugging Face's
    converter.)"""
    found: list[tuple[float, int, int, int, str, str]] = []
    for number, (name, (score, _unused)) in enumerate(pieces.items()):
        pairs = [(name[:i], name[i:]) for i in range(1, len(name)) if name[:i] in pieces and name[i:] in pieces]
        pairs.sort(key=lambda pair: (pieces[pair[0]][1], pieces[pair[1]][1]))
        found += [(-score, -len(a), -len(b), number, a, b) for a, b in pairs]
    found.sort(key=lambda entry: entry[:3])
    return [[a, b] for *_, a, b in found]


def is_code(name: str) -> bool:
    """Whether it names a language, as in ">>fra<< Good morning" before a model that writes several."""
    return name.startswith(">>") and name.endswith("<<") and len(name) > 4


def pipeline(model: SentencePiece, vocab: Sequence[str], unknown: int) -> dict[str, Any]:
    """The tokenizer.json that cuts as this model does and gives a piece the number it has in `vocab`. What `vocab` has and the
    model has not can be named and never found in a text: a space stands before it, and spaces are gone by then. What
    the model has and `vocab` has not comes behind it."""
    known = {name: (score, i) for i, (name, score, kind) in enumerate(model.pieces) if kind in REACHABLE}
    own = [name if name in known or name in CONTROL_NAMES or is_code(name) else f" {name}" for name in vocab]
    in_vocab = set(own)
    extra = [name for name in known if name not in in_vocab]
    steps: list[dict[str, Any]] = []
    if model.charsmap:
        charsmap = base64.b64encode(model.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if model.single_spaces:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    across = any("▁" in name[1:] for name in known)
    metaspace: dict[str, Any] = {"type": "Metaspace", "replacement": "▁", "split": not across}
    metaspace["prepend_scheme"] = "always" if model.dummy_prefix else "never"
    if model.is_bpe:
        names: dict[str, Any] = {name: i for i, name in enumerate([*own, *extra])}
        unk = [*own, *extra][unknown]
        body: dict[str, Any] = {"type": "BPE", "vocab": names, "merges": merges_of(known), "unk_token": unk}
        body |= {"fuse_unk": True, "byte_fallback": model.byte_fallback, "ignore_merges": False}
    else:
        lowest = min((score for score, _ in known.values()), default=0.0)
        scores = [[name, known[name][0] if name in known else lowest] for name in [*own, *extra]]
        body = {"type": "Unigram", "vocab": scores, "unk_id": unknown, "byte_fallback": model.byte_fallback}
    codes = [(i, name) for i, name in enumerate(own) if is_code(name)]  # texts that are always one token
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = [{"id": i, "content": name, **plain} for i, name in codes]
    normalizer = {"type": "Sequence", "normalizers": steps} if steps else None
    return tokenizer_json(body, added, normalizer=normalizer, pre_tokenizer=metaspace, decoder=metaspace)
