"""The model card of an exported folder: what it is, how it is loaded, its data, its scores, and the parity report."""

from __future__ import annotations

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


def settings_of(section: Any, names: tuple[str, ...]) -> list[str]:
    """Lines of a list: settings that are set, by name."""
    return [
        f"- {name}: {getattr(section, name)}" for name in names if getattr(section, name, None) not in (None, (), "")
    ]


def card(
    model: TextModel, target: Target, name: str, metrics: dict[str, float], report: ParityReport, notes: list[str]
) -> str:
    """README.md of the folder."""
    c, data = model.model.config, model.recipe.data
    languages = {
        "pairs": "pairs of texts",
        "text": "plain text",
        "classify": "texts and classes",
        "tag": "tagged words",
    }
    lines = [
        "---",
        f"library_name: {target.library}",
        *([f"pipeline_tag: {TAGS[model.verb]}"] if model.verb in TAGS else []),
        "---",
        "",
        f"# {name}",
        "",
        f"This is {FAMILIES[c.family]} of {model.model.num_params():,} parameters, trained with Glassformer {VERSION} on "
        f"{languages.get(data.task, data.task)}, with weights as {report.weights}.",
        "",
        f"```{target.language}",
        target.writer.snippet(c, not model.tokenizers.shared),
        "```",
        "",
        *(f"Note: {note}.\n" for note in notes),
        "## Data",
        "",
        *settings_of(data, ("builtin", "train", "train_target", "task", "tokenizer", "vocab_size", "lowercase")),
        "",
        "## Metrics",
        "",
        *([f"- {key} on the run's validation split: {value:.4g}" for key, value in metrics.items()] or ["- none kept"]),
        "",
        "## Configuration",
        "",
        *settings_of(
            c,
            (
                "family", "vocab_size", "source_vocab_size", "block_size", "n_layer", "n_encoder_layer", "n_head",
                "n_kv_head", "n_embd", "n_hidden", "positions", "norm", "pre_norm", "activation", "tie_output",
            ),
        ),
        "",
        "The whole recipe is in `glassformer.json`.",
        "",
        "## Parity",
        "",
        report.verdict() + ".",
        "",
        f"| | {report.ours.name} | {report.theirs.name} |",
        "| --- | ---: | ---: |",
        *(f"| {what} | {here} | {there} |" for what, here, there in report.rows()),
        "",
        *(f"- {note}" for note in report.notes),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"
