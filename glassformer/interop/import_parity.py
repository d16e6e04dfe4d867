"""Is what was imported the model that it was? transformers runs the source folder, we run the run, and the report says.

Without a sample of one's own the two are compared on a few sentences that stand here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from glassformer.errors import install_hint
from glassformer.interop.importing import Imported
from glassformer.interop.parity import SAMPLE, ParityFailed, ParityReport, Side, compare, folder_size
from glassformer.interop.runtimes import make_cases
from glassformer.interop.runtimes.foreign import ForeignRuntime
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel

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
        return f"not compared with its source: that needs transformers ({install_hint('hf')})"
    return None
