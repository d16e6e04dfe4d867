"""A tokenizer of ours as the folder that `AutoTokenizer` loads, and back.

The file is the same tokenizer.json, with two things added that Hugging Face expects in it: the control ids as special
tokens, and a template that puts them where the model was trained to see them. (Taken out again on the way back: with us
the text of a person can never spell a control id.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import processors

from glassformer.config import Recipe
from glassformer.formats.huggingface.dialects.dialect import labels_of
from glassformer.formats.huggingface.tokenizers import read_tokenizer_json
from glassformer.formats.untrusted import read_json
from glassformer.text.imported import ImportedTokenizer
from glassformer.text.tokenizer import BOS, CONTROL_NAMES, EOS, MASK, PAD, UNK, Tokenizer
from glassformer.text.tokenizers import Tokenizers

ENVELOPE = "glassformer_tokenizer.json"
"""What an imported tokenizer has besides its tokenizer.json: see text/imported.py."""


def with_template(tokenizer: Tokenizer, before: Sequence[int], after: Sequence[int]) -> tokenizers.Tokenizer:
    """The library's tokenizer that lays a text out as `before`, text, `after`."""
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    library.add_special_tokens(list(CONTROL_NAMES))
    if before or after:
        names = [*(CONTROL_NAMES[i] for i in before), "$A", *(CONTROL_NAMES[i] for i in after)]
        library.post_processor = processors.TemplateProcessing(
            single=names, special_tokens=[(CONTROL_NAMES[i], i) for i in sorted({*before, *after})]
        )
    return library


def write_tokenizer_folder(
    tokenizer: Tokenizer, folder: Path, *, before: Sequence[int] = (), after: Sequence[int] = (), longest: int
) -> None:
    """tokenizer.json and tokenizer_config.json."""
    folder.mkdir(exist_ok=True)
    library = with_template(tokenizer, before, after)
    (folder / "tokenizer.json").write_text(library.to_str(pretty=True), encoding="utf-8")
    if isinstance(tokenizer, ImportedTokenizer):
        rest = {name: value for name, value in tokenizer.envelope().items() if name != "tokenizer"}
        (folder / ENVELOPE).write_text(json.dumps(rest), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": CONTROL_NAMES[PAD],
        "bos_token": CONTROL_NAMES[BOS],
        "eos_token": CONTROL_NAMES[EOS],
        "unk_token": CONTROL_NAMES[UNK],
        "mask_token": CONTROL_NAMES[MASK],
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def read_own_tokenizers(folder: Path, recipe: Recipe) -> Tokenizers:
    """The tokenizers of a folder that we exported: without special tokens and template, as we keep them."""

    def read(place: Path) -> Tokenizer:
        path = place / "tokenizer.json"
        facts = read_tokenizer_json(place)
        plain = [token for token in facts.get("added_tokens") or [] if not token.get("special")]
        facts |= {"added_tokens": plain, "post_processor": None, "truncation": None, "padding": None}
        if (place / ENVELOPE).exists():
            return ImportedTokenizer.from_envelope(read_json(place, ENVELOPE) | {"tokenizer": facts}, str(path))
        return Tokenizer.from_json(json.dumps(facts).encode(), path)

    labels = labels_of(read_json(folder, "config.json")) if recipe.model.head != "mlm" else []
    source = read(folder)
    target = read(folder / "target") if (folder / "target").is_dir() else source
    return Tokenizers(target, source, labels)
