"""Is what was imported the model that it was? transformers runs the source folder, we run the run, and the report says.

Foreign ids are in another order than ours (vocabulary.py): what goes in is put into theirs, and scores and answers that come
out into ours. Without a sample of one's own the two are compared on a few sentences that stand here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.interop.importing import Imported
from glassformer.interop.parity import SAMPLE, ParityFailed, ParityReport, Side, compare, folder_size
from glassformer.interop.runtimes import Case, make_cases
from glassformer.interop.runtimes.huggingface import Ids, TransformersRuntime
from glassformer.interop.vocabulary import NEVER, Vocabulary
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS, PAD

SENTENCES = (
    "The cat sat on the mat and looked out of the window.",
    "How much does it cost, and when will it be ready?",
    "On 3 May 1979 the bridge was opened to traffic.",
    "Es war einmal ein König, der hatte zwölf Töchter.",
    "Nous avons trouvé la clé sous la porte.",
    "She wrote 1,234 letters; none was answered.",
    "def f(x): return x + 1",
    "你好，世界。",
)


class Order:
    """Our ids as theirs and back, of one side."""

    def __init__(self, vocabulary: Vocabulary | None, size: int) -> None:
        order = list(range(size)) if vocabulary is None else list(vocabulary.order)
        never: list[int] = []
        if vocabulary is not None:
            never = [*vocabulary.missing, *vocabulary.copies]
            for ours, theirs in vocabulary.copies.items():
                order[ours] = theirs
        self.order, self.never = np.array(order), np.array(never, dtype=np.int64)
        self.ours = {theirs: i for i, theirs in enumerate(order) if i not in never}

    def theirs(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Ids of ours in their order."""
        return tuple(int(self.order[i]) for i in ids)

    def scores(self, found: np.ndarray) -> np.ndarray:
        """A column a word, in our order; what they do not have is never."""
        out = found[:, np.maximum(self.order, 0)]
        out[:, self.never] = NEVER
        return out


class ForeignRuntime(TransformersRuntime):
    """transformers with the folder that was imported."""

    def __init__(self, folder: Path, model: TextModel, theirs: Any) -> None:
        c = model.model.config
        self.source = Order(theirs.get("source"), c.source_vocab_size or c.vocab_size)
        self.target = Order(theirs.get("target"), c.vocab_size)
        if c.family != "transformer":
            self.source = self.target
        super().__init__(folder, c.family, c.head, alpha=model.recipe.decode.alpha)
        known = {ours: int(self.target.order[ours]) for ours in (PAD, BOS, EOS)}
        self.ids = Ids(pad=max(0, known[PAD]), start=known[BOS], end=known[EOS])
        hidden = [int(self.target.order[i]) for i in self.special.banned(allow_unknown=False)]
        before = [int(self.target.order[i]) for i in model.tokenizers.target.before]
        self.options = {
            "suppress_tokens": sorted({i for i in hidden if i >= 0 and i != self.ids.end}) or None,
            "forced_bos_token_id": before[0] if before else None,
            "forced_eos_token_id": None,
            "no_repeat_ngram_size": 0,
            "repetition_penalty": 1.0,
            "bad_words_ids": None,
            "min_length": 0,
        }
        self.prefix = model.tokenizers.target.before

    def logits(self, cases: Sequence[Case]) -> list[np.ndarray]:
        """Their scores in the order of our ids."""
        own = [replace(c, prompt=self.source.theirs(c.prompt), answer=self.target.theirs(c.answer)) for c in cases]
        found = super().logits(own)
        return found if self.head != "mlm" else [self.target.scores(one) for one in found]

    def write(self, prompts: Sequence[Sequence[int]], *, beam: int, limit: int) -> list[list[int]]:
        """What `generate` writes, in our ids."""
        found = super().write([self.source.theirs(p) for p in prompts], beam=beam, limit=limit)
        return [[self.target.ours.get(token, -1) for token in ids] for ids in found]


def import_parity(folder: Path, found: Imported, run: RunFolder, examples: Iterable[Any] | None = None) -> ParityReport:
    """The report, saved as parity.json in the run. ParityFailed where the run is another model than the folder."""
    model = TextModel(run.load_model(), run.tokenizers, run.recipe)
    on = "the sample" if examples is not None else "some sentences"
    cases = make_cases(model, SENTENCES if examples is None else examples, SAMPLE)
    theirs = ForeignRuntime(folder, model, found.theirs)
    sizes = folder_size(run.final), sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    report = ParityReport(
        f"import of a {found.model_type}",
        "fp32",
        on,
        len(cases),
        Side("glassformer", sizes[0]),
        Side(theirs.name, sizes[1]),
    )
    compare(model, theirs, cases, report)
    if not report.passed:
        raise ParityFailed(report.verdict(), report)
    report.save(run.path)
    return report


def cannot_compare(source: Path, found: Imported, head: str | None) -> str | None:
    """Why the two are not compared, as a sentence; None where they are."""
    if not source.is_dir():
        return "not compared with its source: only a folder of Hugging Face's can be run beside it"
    if head == "next-sentence":
        return "not compared with its source: transformers has no class with the next-sentence head alone"
    if importlib.util.find_spec("transformers") is None:
        return "not compared with its source: that needs transformers (pip install 'glassformer[hf]')"
    return None
