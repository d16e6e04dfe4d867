"""A trained model as a folder that other programs run, with the proof that it is the same model.

`export_model` writes the folder under a temporary name, loads it there in the real program, compares (parity.py), and gives
it its name when that went well. What a target cannot express is refused before anything is written, with the nearest setting
that could be exported. The targets are in targets.py.

A folder that was exported is known by the list of its files, which its glassformer.json holds: only such a folder is ever
replaced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.config import VERSION
from glassformer.decode.ensemble import Ensemble
from glassformer.errors import UserError
from glassformer.files import owned
from glassformer.formats.parity import SAMPLE, ParityFailed, ParityReport, compare
from glassformer.formats.runtime import make_cases
from glassformer.formats.targets import Target, names, target_of
from glassformer.formats.untrusted import LARGEST_JSON, read_json
from glassformer.language import _
from glassformer.tasks import TextModel

FAMILIES = {"transformer": "an encoder-decoder Transformer", "gpt": "a decoder-only Transformer", "bert": "an encoder"}
TAGS = {
    "translate": "translation",
    "generate": "text-generation",
    "fill": "fill-mask",
    "classify": "text-classification",
    "embed": "feature-extraction",
}


LANGUAGES = {"pairs": "pairs of texts", "text": "plain text", "classify": "texts and classes", "tag": "tagged words"}
OF_DATA = ("builtin", "train", "train_target", "task", "tokenizer", "vocab_size", "lowercase")
OF_MODEL = (
    *("family", "vocab_size", "source_vocab_size", "block_size", "n_layer", "n_encoder_layer", "n_head", "n_kv_head"),
    *("n_embd", "n_hidden", "positions", "norm", "pre_norm", "activation", "tie_output"),
)


def settings_of(section: Any, names: tuple[str, ...]) -> str:
    """Lines of a list: settings that are set, by name."""
    values = {name: getattr(section, name, None) for name in names}
    return "\n".join(f"- {name}: {value}" for name, value in values.items() if value not in (None, (), ""))


def card(
    model: TextModel, target: Target, name: str, metrics: dict[str, float], report: ParityReport, notes: list[str]
) -> str:
    """README.md of the folder, by card.md."""
    c, data = model.model.config, model.recipe.data
    scores = [f"- {key} on the run's validation split: {value:.4g}" for key, value in metrics.items()]
    text = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    filled = text.format(
        library=target.library,
        tag=f"\npipeline_tag: {TAGS[model.verb]}" if model.verb in TAGS else "",
        name=name,
        family=FAMILIES[c.family],
        parameters=model.model.num_params(),
        version=VERSION,
        languages=LANGUAGES.get(data.task, data.task),
        weights=report.weights,
        language=target.language,
        snippet=target.snippet(c, not model.tokenizers.shared),
        notes="".join(f"Note: {note}.\n\n" for note in notes),
        data=settings_of(data, OF_DATA),
        metrics="\n".join(scores or ["- none kept"]),
        configuration=settings_of(c, OF_MODEL),
        verdict=report.verdict(),
        rows="\n".join(f"| {what} | {value} |" for what, value in report.rows()),
        remarks="\n".join(f"- {note}" for note in report.notes),
    )
    return filled.rstrip() + "\n"


FACTS = "glassformer.json"


def files_in(folder: Path) -> set[str]:
    """The names of everything that lies in a folder and is no folder."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}


def own_export(out: Path) -> Collection[str]:
    """The files of an earlier export that this one may replace; none where there is nothing. Whatever else lies there is
    somebody's, and the folder is refused."""
    if not out.is_dir() or not (found := files_in(out)):
        return ()
    listed = read_json(out, FACTS, LARGEST_JSON, optional=True).get("files")
    if not isinstance(listed, list):
        raise UserError(
            "{out} was not exported by this command, so --overwrite leaves it alone; choose another folder", out
        )
    if others := sorted(found - {*map(str, listed)}):
        raise UserError(
            "{out} holds {others}, which is no file of the export, so --overwrite leaves it alone; move it away",
            out,
            others[0],
        )
    return found


def list_files(folder: Path, **more: Any) -> None:
    """Writes the names of its files into an export, by which it is known as one; `more`: what else glassformer.json is to say."""
    facts = {"glassformer": VERSION} | more
    facts |= read_json(folder, FACTS, LARGEST_JSON, optional=True)
    facts |= {"files": sorted({*files_in(folder), FACTS})}
    (folder / FACTS).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def check(model: TextModel, to: str, quantize: str | None) -> str:
    """Refuses what cannot be; the name of the numbers that weights are written in."""
    target, weights = target_of(to), quantize or "fp32"
    if weights not in target.weights:
        there = ", ".join(w for w in target.weights if w != "fp32")
        raise UserError(
            "{to} takes --quantize {there} or none, not {weights}; int8 can be had with {names}",
            to,
            there,
            weights,
            names("int8"),
        )
    target.require(_("exporting to {target}", to))
    if isinstance(model._model, Ensemble):
        raise UserError("an ensemble is several runs; export them one by one")
    target.writer.refuse(model)
    return weights


def write(model: TextModel, to: str, folder: Path, weights: str, name: str) -> list[str]:
    """The files of a target in an empty folder, the recipe among them; gives notes for the reader."""
    notes = target_of(to).writer.write(model, folder, weights, name)
    list_files(folder, recipe=model.recipe.to_dict())
    return notes


def export_model(
    model: TextModel,
    to: str,
    out: Path,
    examples: Iterable[Any],
    *,
    quantize: str | None = None,
    on: str = "the sample",
    name: str | None = None,
    metrics: dict[str, float] | None = None,
    overwrite: bool = False,
) -> ParityReport:
    """Writes `out`, a new or empty folder (with `overwrite` an earlier export), and gives the parity report that is saved in it.
    ParityFailed where it is another model than here; then nothing is left."""
    weights, target = check(model, to, quantize), target_of(to)
    old = own_export(out) if overwrite else ()
    model.model.eval()
    cases = make_cases(model, islice(examples, 4 * SAMPLE), SAMPLE)
    with owned.new_folder(out, "an export", old) as draft:
        notes = write(model, to, draft, weights, name or out.name)
        runtime = target.writer.open_folder(model, draft)
        report = ParityReport(to, weights, on, len(cases), runtime.name, notes=list(notes))
        compare(model, runtime, cases, report)
        if not report.passed:
            raise ParityFailed(_("{verdict}; nothing was left in {out}", report.verdict(), out), report)
        report.save(draft)
        text = card(model, target, name or out.name, metrics or {}, report, notes)
        (draft / "README.md").write_text(text, encoding="utf-8")
        list_files(draft)
    return report
