"""Is what was imported the model that it was? transformers runs the source folder, we run the run, and the report says.

It begins with text. Both tokenizers cut the same texts; then each side writes as it does when nobody tells it how, there by the
folder's generation_config.json, here by the run's [decode]. Then scores and answers on the same ids, with all settings put
aside, and scores once more over as many tokens as the model reads at a time. Without a sample of one's own the two are compared
on a few sentences that stand here.
"""

from __future__ import annotations

import importlib.util
import random
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import install_hint
from glassformer.formats.huggingface.generation import NEUTRAL
from glassformer.formats.huggingface.importing import Imported
from glassformer.formats.huggingface.runtime import TransformersRuntime, transformers_can_use
from glassformer.formats.parity import (
    LIMITS,
    SAMPLE,
    Logits,
    ParityFailed,
    ParityReport,
    Side,
    compare,
    difference,
    folder_size,
)
from glassformer.formats.runtime import Case, OurRuntime, make_cases, text_of
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel
from glassformer.tasks.generate import generate, prompt_ids
from glassformer.tasks.settings import NO_SAMPLING, changed, decode_settings
from glassformer.tasks.translate import source_ids, translate
from glassformer.text.tokenizer import CONTROL

WRITTEN = 8  # texts that are answered by default
LONGEST = 32  # new tokens of such an answer, where the folder allows more or does not say
MOST_POSITIONS, MOST_SCORES = 4096, 1 << 28  # of the one long row


@dataclass
class ImportComparison:
    """A run beside the folder it came from: what both say of texts, of answers and of one long row."""

    folder: Path
    imported: Imported
    model: TextModel
    theirs: TransformersRuntime
    report: ParityReport
    tokenizer: Any = None
    special: list[str] = field(default_factory=list)  # tokens that no text spells with us

    def open_tokenizer(self) -> None:
        """AutoTokenizer of the folder, told the language that is read; a note where it cannot be opened."""
        from transformers import AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        except Exception as error:  # whatever an external file makes of it
            said = " ".join(str(error).split())[:160]
            self.report.notes.append(
                _("its texts were not compared: transformers cannot open the tokenizer ({said})", said)
            )
            return
        self.special = [str(token) for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        if hasattr(self.tokenizer, "src_lang") and (before := self.model.tokenizers.source.before):
            name = self.tokenizer.convert_ids_to_tokens(int(self.theirs.source.order[before[0]]))
            codes = getattr(self.tokenizer, "lang_code_to_token", None) or {}
            self.tokenizer.src_lang = next((code for code, token in codes.items() if token == name), name)

    def ours_as_theirs(self, text: str) -> list[int]:
        """The ids of a text as the run reads it, in their numbers."""
        words = self.model.tokenizers.source
        if self.model.kind == "transformer":
            ids = source_ids(self.model, words.encode(text))
        elif self.model.kind == "gpt":
            ids = prompt_ids(self.model, text)
        else:
            ids = self.model.with_special_tokens(words.encode(text))
        return list(self.theirs.source.theirs(ids))

    def their_ids(self, text: str) -> list[int]:
        """The ids of a text as the folder's tokenizer cuts it."""
        with transformers_can_use(self.folder):
            return list(self.tokenizer(text).input_ids)

    def texts(self, texts: Sequence[str]) -> str | None:
        """Where the two tokenizers part; None where they do not."""
        if self.tokenizer is None:
            return None
        apart = [text for text in texts if self.ours_as_theirs(text) != self.their_ids(text)]
        self.report.same_ids = 1 - len(apart) / max(1, len(texts))
        if not apart:
            return None
        there, here = (some(ids) for ids in (self.their_ids(apart[0]), self.ours_as_theirs(apart[0])))
        return _(
            "the text {text!r} is {their_ids} there and {our_ids} here, in ids of theirs", apart[0][:60], there, here
        )

    def answers(self, texts: Sequence[str]) -> str | None:
        """Where what both write by default differs; None where it does not."""
        settings, changes = self.settings()
        write = translate if self.model.verb == "translate" else generate
        texts = [text for text in (self.shortened(text, settings.max_new_tokens) for text in texts) if text][:WRITTEN]
        apart, cut = [], 0
        for text, answer in zip(texts, write(self.model, texts, config=settings), strict=True):
            ids = self.ours_as_theirs(text) if self.tokenizer is None else self.their_ids(text)
            with transformers_can_use(self.folder / "generation_config.json"):
                there, ended = self.theirs.write_by_default(ids, changes)
            here = list(answer[0].parts[0].hypothesis.ids) if answer[0].parts else []
            if here != there and settings.beams > 1 and not ended:
                cut += 1
            elif here != there:
                apart.append((text[:60], some(there), some(here)))
        if cut:
            self.report.notes.append(
                _(
                    "{cut} of {n_texts} answers were cut at the limit there: here what has ended by itself comes before that",
                    cut,
                    len(texts),
                )
            )
        self.report.same_default = 1 - len(apart) / max(1, len(texts) - cut) if len(texts) > cut else None
        if self.report.same_default is None or self.report.same_default >= LIMITS["fp32"].same:
            return None
        return _("after {text!r} it writes {their_ids}, and the run {our_ids}, in ids of ours", *apart[0])

    def shortened(self, text: str, new: int) -> str:
        """As many of a text's words as the model reads at once; a GPT with room for so many new tokens."""
        words, block = text.split(), self.model.model.config.block_size
        room = block - (new if self.model.kind == "gpt" else 1)
        while words and len(self.ours_as_theirs(" ".join(words))) > room:
            words.pop()
        return " ".join(words)

    def settings(self) -> tuple[Any, dict[str, Any]]:
        """How the run writes by default, and what `generate` must be told besides what the folder says: what was left aside on
        the way is off, nothing is drawn, and no answer is longer than it need be."""
        settings = decode_settings(self.model)
        changes: dict[str, Any] = {name: NEUTRAL.get(name) for name in self.imported.left_aside}
        if settings.temperature > 0:
            settings = changed(replace(settings, **NO_SAMPLING), {"beam": 1})
            changes["num_beams"] = 1
            self.report.notes.append(_("by default it draws; the answers by default were compared without drawing"))
        most = min(LONGEST, max(1, self.model.model.config.block_size // 2))
        if settings.max_new_tokens is None or settings.max_new_tokens > most:
            most = max(most, settings.min_new_tokens + 1)
            settings, changes = replace(settings, max_new_tokens=most), changes | {"max_new_tokens": most}
        if self.imported.model_type in ("m2m_100", "mbart"):
            language = self.model.tokenizers.target.before
            changes["forced_bos_token_id"] = self.theirs.target.theirs(language)[0] if language else None
        return settings, changes

    def long_row(self) -> str | None:
        """Where the scores of random ids part over as many tokens as the model reads; None where they do not."""
        c = self.model.model.config
        most = min(max(MOST_POSITIONS, (c.window or 0) + 64), max(16, MOST_SCORES // c.vocab_size))
        length = min(c.block_size, most)
        if length < c.block_size:
            self.report.notes.append(
                _("scores were compared over {length:,} of the {block_size:,} tokens it can read", length, c.block_size)
            )
        drawn = random.Random(1)

        def ids(order: Any, count: int) -> tuple[int, ...]:
            known = [i for i in range(CONTROL, len(order.order)) if order.order[i] >= 0]
            return tuple(drawn.choices(known, k=count))

        source, target = self.theirs.source, self.theirs.target
        if self.model.verb == "translate":
            case = Case(ids(source, length), ids(target, length))
        elif self.model.verb == "generate":
            case = Case(ids(target, 1), ids(target, length))
        else:
            case = Case(ids(target, length))
        ours = OurRuntime(self.model, self.theirs.rules, self.theirs.special)
        numbers = Logits()
        numbers.add(case, ours.logits([case])[0], self.theirs.logits([case])[0])
        judged = replace(self.report, same_greedy=None, same_beam=None)
        judged.largest_logit_difference, judged.largest_logit = numbers.difference, numbers.largest
        if (differs := difference(judged, ours, self.theirs, [case])) is not None:
            return _("over {length:,} random tokens {differs}", length, differs)
        self.report.largest_logit_difference = max(self.report.largest_logit_difference, numbers.difference)
        return None


def some(ids: Sequence[int]) -> str:
    """The first ids of a list."""
    return f"[{', '.join(map(str, ids[:12]))}{', …' if len(ids) > 12 else ''}]"


def import_parity(folder: Path, found: Imported, run: RunFolder, examples: Iterable[Any] | None = None) -> ParityReport:
    """The report, saved as parity.json in the run. ParityFailed where the run is another model than the folder."""
    model = TextModel(run.load_model(), run.tokenizers, run.recipe)
    texts = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
    sentences, on = texts["sentences"], "some sentences" if examples is None else "the sample"
    given = None if examples is None else list(examples)
    cases = make_cases(model, sentences if given is None else given, SAMPLE)
    theirs = TransformersRuntime(folder, model, found.theirs, torch.float32)
    ours = Side("glassformer", folder_size(run.final))
    other = Side(theirs.name, sum(p.stat().st_size for p in folder.glob("*.safetensors")))
    report = ParityReport(f"import of a {found.model_type}", "fp32", on, len(cases), ours, other)
    both = ImportComparison(folder, found, model, theirs, report)
    # With its own recipe and tokenizers, an export of ours says more than theirs can.
    is_ours = (folder / "glassformer.json").exists()
    if not is_ours:
        both.open_tokenizer()
    plain = [text for text in map(text_of, given or []) if text.strip()]
    plain = [text for text in plain if not any(token in text for token in both.special)] or sentences
    apart = None if is_ours else both.texts(list(dict.fromkeys([*plain, *sentences, *texts["cuts"]])))
    differs = compare(model, theirs, cases, report).differs
    differs = apart or differs or both.long_row()
    if not is_ours and model.verb in ("translate", "generate"):
        differs = differs or both.answers(plain)
    report.conclude(differs)
    if not report.passed:
        raise ParityFailed(report.verdict(), report)
    report.save(run.path)
    return report


def cannot_compare(source: Path, found: Imported, head: str | None) -> str | None:
    """Why the two are not compared, as a sentence; None where they are."""
    if not source.is_dir():
        return _("not compared with its source: only a folder of Hugging Face's can be run beside it")
    if head == "next-sentence":
        return _("not compared with its source: transformers has no class with the next-sentence head alone")
    if importlib.util.find_spec("transformers") is None:
        return _("not compared with its source: that needs transformers ({command})", install_hint("hf"))
    return None
