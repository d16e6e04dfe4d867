"""Is what was imported the model that it was? transformers runs the source folder, we run the run, and the report says.

It begins with text: both tokenizers cut the same texts. Then scores and answers on the same ids, with all settings of writing put
aside, and scores once more over as many tokens as the model reads at a time. Without a sample of one's own the two are compared
on a few sentences that stand here.
"""

from __future__ import annotations

import importlib.util
import random
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import install_hint
from glassformer.formats.huggingface.importing import Imported
from glassformer.formats.huggingface.runtime import TransformersRuntime, transformers_can_use
from glassformer.formats.parity import SAMPLE, ParityFailed, ParityReport, compare
from glassformer.formats.runtime import Case, make_cases, text_of
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel
from glassformer.tasks.generate import prompt_ids
from glassformer.tasks.translate import source_ids
from glassformer.text.tokenizer import CONTROL

MOST_POSITIONS, MOST_SCORES = 4096, 1 << 28  # of the one long row


def open_tokenizer(folder: Path, model: TextModel, theirs: TransformersRuntime) -> Any:
    """AutoTokenizer of the folder, told the language that is read."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if hasattr(tokenizer, "src_lang") and (before := model.tokenizers.source.before):
        name = tokenizer.convert_ids_to_tokens(int(theirs.source.order[before[0]]))
        codes = getattr(tokenizer, "lang_code_to_token", None) or {}
        tokenizer.src_lang = next((code for code, token in codes.items() if token == name), name)
    return tokenizer


def ids_read(model: TextModel, text: str) -> list[int]:
    """The ids of a text as the run reads it."""
    words = model.tokenizers.source
    if model.kind == "transformer":
        return list(source_ids(model, words.encode(text)))
    return prompt_ids(model, text) if model.kind == "gpt" else list(model.with_special_tokens(words.encode(text)))


def compare_texts(
    tokenizer: Any, model: TextModel, theirs: TransformersRuntime, texts: Sequence[str], report: ParityReport
) -> str | None:
    """Where the two tokenizers part; None where they do not."""
    apart = []
    for text in texts:
        here = list(theirs.source.theirs(ids_read(model, text)))
        with transformers_can_use(theirs.folder):
            there = list(tokenizer(text).input_ids)
        if here != there:
            apart.append((text[:60], some(there), some(here)))
    report.same_ids = 1 - len(apart) / max(1, len(texts))
    return (
        _("the text {text!r} is {their_ids} there and {our_ids} here, in ids of theirs", *apart[0]) if apart else None
    )


def some(ids: Sequence[int]) -> str:
    """The first ids of a list."""
    return f"[{', '.join(map(str, ids[:12]))}{', …' if len(ids) > 12 else ''}]"


def long_row(model: TextModel, theirs: TransformersRuntime, report: ParityReport) -> Case:
    """Random ids, as many as the model reads at a time."""
    c = model.model.config
    most = min(max(MOST_POSITIONS, (c.window or 0) + 64), max(16, MOST_SCORES // c.vocab_size))
    length = min(c.block_size, most)
    if length < c.block_size:
        report.notes.append(
            _("scores were compared over {length:,} of the {block_size:,} tokens it can read", length, c.block_size)
        )
    drawn = random.Random(1)

    def ids(order: Any, count: int) -> tuple[int, ...]:
        known = [i for i in range(CONTROL, len(order.order)) if order.order[i] >= 0]
        return tuple(drawn.choices(known, k=count))

    first = {"translate": ids(theirs.source, length), "generate": ids(theirs.target, 1)}.get(model.verb)
    answer = ids(theirs.target, length)
    return Case(answer) if first is None else Case(first, answer)


def import_parity(folder: Path, found: Imported, run: RunFolder, examples: Iterable[Any] | None = None) -> ParityReport:
    """The report, saved as parity.json in the run. ParityFailed where the run is another model than the folder."""
    model = TextModel(run.load_model(), run.tokenizers, run.recipe)
    texts = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
    sentences, on = texts["sentences"], "some sentences" if examples is None else "the sample"
    given = None if examples is None else list(examples)
    cases = make_cases(model, sentences if given is None else given, SAMPLE)
    theirs = TransformersRuntime(folder, model, found.theirs, torch.float32)
    report = ParityReport(f"import of a {found.model_type}", "fp32", on, len(cases), theirs.name)
    apart = None
    if not (folder / "glassformer.json").exists():  # an export of ours says more in its own recipe and tokenizers
        try:
            tokenizer = open_tokenizer(folder, model, theirs)
        except Exception as error:  # whatever an external file makes of it
            told = " ".join(str(error).split())[:160]
            report.notes.append(_("its texts were not compared: transformers cannot open the tokenizer ({said})", told))
        else:
            special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
            plain = [text for text in map(text_of, given or []) if text.strip()]
            plain = [text for text in plain if not any(token in text for token in special)]
            every = dict.fromkeys([*plain, *sentences, *texts["cuts"]])
            apart = compare_texts(tokenizer, model, theirs, list(every), report)
    compare(model, theirs, cases, report, long_row(model, theirs, report))
    report.conclude(apart or report.differs)
    if not report.passed:
        raise ParityFailed(report.verdict(), report)
    report.save(run.path)
    return report


def cannot_compare(source: Path) -> str | None:
    """Why the two are not compared, as a sentence; None where they are."""
    if not source.is_dir():
        return _("not compared with its source: only a folder of Hugging Face's can be run beside it")
    if importlib.util.find_spec("transformers") is None:
        return _("not compared with its source: that needs transformers ({command})", install_hint("hf"))
    return None
