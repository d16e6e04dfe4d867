"""The tokenizer of a Hugging Face folder, as it is, with its pieces in our order.

Four kinds of folders are known: one with a `tokenizer.json`; Marian's, with SentencePiece models of both sides and a
vocabulary; GPT-2's `vocab.json` and `merges.txt`; BERT's `vocab.txt`. Each is read into names by their external ids and a
pipeline, and `Vocabulary` puts both in order.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.files.structured import read_regular
from glassformer.formats.huggingface.generation import GenerationSettings
from glassformer.formats.huggingface.pipelines import (
    ROLES,
    SentencePiece,
    added_tokens,
    as_class_says,
    byte_level_bpe,
    class_of,
    pipeline,
    qwen2_cut,
    read_sentencepiece,
    read_vocabulary,
    word_pieces,
)
from glassformer.formats.huggingface.vocabulary import Vocabulary
from glassformer.formats.untrusted import inside, is_file, read_json
from glassformer.text.imported import (
    LARGEST_FILE,
    ImportedTokenizer,
    check_pipeline,
    check_size,
    from_facts,
)
from glassformer.text.tokenizer import BOS, CONTROL, CONTROL_NAMES, EOS, MASK, PAD, UNK

SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token", "cls_token", "sep_token")


@dataclass(frozen=True)
class ExternalTokenizer:
    """Names by their external ids, what stands for what, and how text is cut: by a pipeline, or by a SentencePiece model."""

    names: Mapping[int, str]
    special: Mapping[str, str]  # "eos_token": "</s>"
    cut: dict[str, Any] | SentencePiece
    where: str
    silent: Collection[str] = ()  # names of tokens that stand for no text

    def id_of(self, role: str) -> int | None:
        """The external id of a special token, such as `mask_token`; None where there is none."""
        name = self.special.get(role)
        return next((i for i, known in self.names.items() if known == name), None) if name is not None else None

    def in_order(
        self,
        vocabulary: Vocabulary,
        before: tuple[int, ...] = (),
        origin: dict[str, Any] | None = None,
        generation: GenerationSettings | None = None,
    ) -> ImportedTokenizer:
        """The tokenizer with our ids. `before`: our ids that begin every text; `origin`: what it is to remember; `generation`:
        what says by which ids a text ends, and which are never written."""
        own = [*CONTROL_NAMES]
        own += [self.names.get(theirs) or f"<unused {theirs} >" for theirs in vocabulary.order[CONTROL:]]
        if isinstance(self.cut, SentencePiece):
            facts = pipeline(self.cut, own, UNK)
        else:
            control = {self.names.get(theirs, "") for theirs in vocabulary.control.values()}
            facts = renumbered(self.cut, own, control)
        silent = {
            i for i, name in enumerate(own) if i >= CONTROL and (name in self.silent or name.startswith("<unused "))
        }
        told = ((), ()) if generation is None else (generation.ends, generation.never)
        ends, never = (own_ids(vocabulary, ids) for ids in told)
        library = from_facts(facts, self.where)
        return ImportedTokenizer(library, len(own), before, silent | {*before, *ends}, origin, ends, never)


def own_ids(vocabulary: Vocabulary, theirs: Iterable[int]) -> tuple[int, ...]:
    """Ids of theirs as ours, without our control ids."""
    return tuple(vocabulary.ours[i] for i in theirs if vocabulary.ours.get(i, 0) >= CONTROL)


def renumbered(facts: dict[str, Any], own: list[str], control: Collection[str]) -> dict[str, Any]:
    """A tokenizer.json whose pieces have the numbers of this list. Special tokens are found in a text no more; a text that is
    always one token still is."""
    model, ids = dict(facts["model"]), {name: i for i, name in enumerate(own)}
    if len(ids) < len(own):
        raise UserError("the tokenizer has two pieces of one name, and is not read")
    if model["type"] == "Unigram":
        scores: dict[str, float] = dict(model["vocab"])
        lowest = min(scores.values())
        extra = [name for name in scores if name not in ids and name not in control]
        model["vocab"] = [[name, scores.get(name, lowest)] for name in [*own, *extra]]
        model["unk_id"] = UNK
    else:
        extra = [name for name in model["vocab"] if name not in ids and name not in control]
        vocab = ids | {name: len(own) + i for i, name in enumerate(extra)}
        model["vocab"] = vocab
        if model.get("unk_token") is not None:
            model["unk_token"] = CONTROL_NAMES[UNK]
        if model["type"] == "BPE":
            prefix = model.get("continuing_subword_prefix") or ""
            pairs = [tuple(m.split(" ", 1)) if isinstance(m, str) else tuple(m) for m in model.get("merges") or []]
            model["merges"] = [
                list(pair)
                for pair in pairs
                if len(pair) == 2 and {*pair, pair[0] + pair[1].removeprefix(prefix)} <= vocab.keys()
            ]
    added = [
        token | {"id": ids[token["content"]]}
        for token in facts.get("added_tokens") or []
        if not token.get("special") and token["content"] in ids
    ]
    gone = {"post_processor": None, "truncation": None, "padding": None}
    return facts | gone | {"model": model, "added_tokens": added}


# ------------------------------------------------------------------------------------------------------------- the files


def special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """What a folder's own files call its special tokens."""
    found: dict[str, str] = {}
    for facts in (read_json(folder, "special_tokens_map.json", LARGEST_FILE, optional=True), config):
        for role in SPECIAL:
            token = facts.get(role)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str) and token:
                found[role] = token
    return found


def read_tokenizer_json(folder: Path, name: str = "tokenizer.json") -> dict[str, Any]:
    """A tokenizer.json, checked."""
    path = inside(folder, name)
    content = read_regular(path, LARGEST_FILE)
    check_size(content, str(path))
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError("{path} is not JSON: {error}", path, str(error)[:200]) from None
    check_pipeline(facts, str(path))
    return facts  # type: ignore[no-any-return]


def names_in(facts: dict[str, Any]) -> dict[int, str]:
    """The pieces and added tokens of a tokenizer.json by their numbers."""
    vocab = facts["model"]["vocab"]
    if isinstance(vocab, list):
        names = {i: name for i, (name, _) in enumerate(vocab)}
    else:
        names = {i: name for name, i in vocab.items()}
    return names | {token["id"]: token["content"] for token in facts.get("added_tokens") or []}


def languages_of(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """The names of languages that M2M100's models have behind their vocabulary."""
    for facts in (read_json(folder, "special_tokens_map.json", LARGEST_FILE, optional=True), config):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            if (found := facts.get(key)) and isinstance(found, list) and all(isinstance(token, str) for token in found):
                return found
    languages = tomllib.loads(Path(__file__).with_name("languages.toml").read_text(encoding="utf-8"))
    codes = config.get("language_codes")
    return [f"__{code}__" for code in languages[codes].split()] if isinstance(codes, str) and codes in languages else []


def read_tokenizers(folder: Path) -> tuple[ExternalTokenizer, ExternalTokenizer]:
    """The tokenizers of what is written and of what is read; mostly one."""
    config = read_json(folder, "tokenizer_config.json", LARGEST_FILE, optional=True)
    kind = class_of(folder, config)
    special = ROLES.get(kind or "", {}) | special_tokens(folder, config)
    if is_file(folder, "source.spm") and is_file(folder, "target.spm"):
        special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"} | special
        names = read_vocabulary(folder, "vocab.json")
        both = read_vocabulary(folder, "target_vocab.json") if is_file(folder, "target_vocab.json") else names
        source, target = (read_sentencepiece(inside(folder, f"{side}.spm")) for side in ("source", "target"))
        return (
            ExternalTokenizer(both, special, target, str(folder / "target.spm"), special.values()),
            ExternalTokenizer(names, special, source, str(folder / "source.spm"), special.values()),
        )
    if is_file(folder, "tokenizer.json"):
        facts, where = read_tokenizer_json(folder), "tokenizer.json"
    elif is_file(folder, "sentencepiece.bpe.model") and is_file(folder, "vocab.json"):  # M2M100
        own = read_sentencepiece(inside(folder, "sentencepiece.bpe.model"))
        names = read_vocabulary(folder, "vocab.json")
        names |= {max(names) + 1 + i: name for i, name in enumerate(languages_of(folder, config))}
        one = ExternalTokenizer(names, special, own, str(folder / "vocab.json"), languages_of(folder, config))
        return one, one
    elif is_file(folder, "vocab.json") and is_file(folder, "merges.txt"):
        facts, where = byte_level_bpe(folder, added_tokens(folder, config)), "vocab.json"
        facts = qwen2_cut(facts) if kind == "Qwen2" else facts
    elif is_file(folder, "vocab.txt"):
        added, kind, where = added_tokens(folder, config), "Bert", "vocab.txt"
        facts = word_pieces(folder, added, special.get("unk_token", "[UNK]"))
        special = ROLES[kind] | special
    else:
        raise UserError(
            "{folder} has no tokenizer: neither tokenizer.json nor source.spm and target.spm, vocab.json and merges.txt, or "
            "vocab.txt; save it there with tokenizer.save_pretrained(folder)",
            folder,
        )
    facts = as_class_says(facts, kind, config)
    check_pipeline(facts, str(folder / where))
    unknown = facts["model"].get("unk_token")
    if isinstance(facts["model"].get("unk_id"), int):
        unknown = facts["model"]["vocab"][facts["model"]["unk_id"]][0] if facts["model"]["unk_id"] >= 0 else None
    special = ({"unk_token": unknown} if isinstance(unknown, str) else {}) | special
    silent = {token["content"] for token in facts.get("added_tokens") or [] if token.get("special")}
    one = ExternalTokenizer(names_in(facts), special, facts, str(folder / where), silent)
    return one, one


def adds_begin(tokenizer: ExternalTokenizer, hf: Mapping[str, Any], folder: Path) -> bool:
    """Does the tokenizer put the token that begins a text before each, as Llama's does?"""
    begin = tokenizer.special.get("bos_token")
    config = read_json(folder, "tokenizer_config.json", optional=True)
    if isinstance(config.get("add_bos_token"), bool):
        return bool(config["add_bos_token"])
    processor = tokenizer.cut.get("post_processor") if isinstance(tokenizer.cut, dict) else None
    return begin is not None and processor is not None and f'"{begin}"' in str(processor).replace("'", '"')


# ------------------------------------------------------------------------------------------------- what stands for what


def one_id(value: Any) -> int | None:
    """A number, or the first of a list of them."""
    value = value[0] if isinstance(value, list) and value else value
    return value if type(value) is int and value >= 0 else None


def control_ids(
    family: str,
    hf: Mapping[str, Any],
    tokenizer: ExternalTokenizer,
    size: int,
    generation: GenerationSettings | None = None,
) -> Vocabulary:
    """Which external id does which job of ours. One that begins texts and is written, too (it ends them, or every answer begins
    with it), begins them here as a copy that is never written."""
    wanted: dict[int, int | None] = {}
    generation = generation or GenerationSettings(hf, hf)
    ends = generation.ends
    wanted[EOS] = ends[0] if ends else tokenizer.id_of("eos_token")
    begin = generation.start if family == "transformer" else one_id(hf.get("bos_token_id"))
    wanted[BOS] = tokenizer.id_of("bos_token") if begin is None else begin
    if family == "transformer" and wanted[BOS] is None:
        raise UserError(
            "{where}: nothing says which token begins an answer (decoder_start_token_id in generation_config.json "
            "or config.json)",
            tokenizer.where,
        )
    if family == "bert":
        wanted[BOS] = first_of(tokenizer.id_of("cls_token"), tokenizer.id_of("bos_token"))
        wanted[EOS] = first_of(tokenizer.id_of("sep_token"), tokenizer.id_of("eos_token"))
    padding = one_id(hf.get("pad_token_id"))
    wanted[PAD] = tokenizer.id_of("pad_token") if padding is None else padding
    wanted[UNK], wanted[MASK] = tokenizer.id_of("unk_token"), tokenizer.id_of("mask_token")
    if wanted[EOS] is None:
        raise UserError("{where}: nothing says which token ends a text (eos_token_id in config.json)", tokenizer.where)
    written = {*ends[1:], generation.forced} if family != "bert" else set()
    if family == "transformer" and tokenizer.names.get(wanted[BOS] or 0) not in {
        *tokenizer.special.values(),
        *tokenizer.silent,
    }:
        written.add(wanted[BOS])  # a word of texts
    control: dict[int, int] = {}
    copies: dict[int, int] = {}
    for ours in (EOS, BOS, UNK, MASK, PAD):
        theirs = wanted[ours]
        if theirs is None or theirs >= size:
            continue
        if theirs not in control.values() and (ours == EOS or theirs not in written):
            control[ours] = theirs
        elif ours == BOS:
            copies[ours] = theirs
    return Vocabulary(size, control, copies)


def first_of(*values: int | None) -> int | None:
    """The first that is there."""
    return next((value for value in values if value is not None), None)
