"""The model card of an exported folder: what it is, how it is loaded, its data, its scores, and the parity report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.config import VERSION
from glassformer.formats.parity import ParityReport
from glassformer.formats.target import Target
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
        snippet=target.writer.snippet(c, not model.tokenizers.shared),
        notes="".join(f"Note: {note}.\n\n" for note in notes),
        data=settings_of(data, OF_DATA),
        metrics="\n".join(scores or ["- none kept"]),
        configuration=settings_of(c, OF_MODEL),
        verdict=report.verdict(),
        ours=report.ours.name,
        theirs=report.theirs.name,
        rows="\n".join(f"| {what} | {here} | {there} |" for what, here, there in report.rows()),
        remarks="\n".join(f"- {note}" for note in report.notes),
    )
    return filled.rstrip() + "\n"
