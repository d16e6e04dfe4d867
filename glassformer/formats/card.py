"""The model card of an exported folder: what it is, how it is loaded, its data, its scores, and the parity report."""

from __future__ import annotations

from typing import Any

from glassformer.config import VERSION, ModelConfig
from glassformer.formats.parity import ParityReport
from glassformer.tasks import TextModel

FAMILIES = {"transformer": "an encoder-decoder Transformer", "gpt": "a decoder-only Transformer", "bert": "an encoder"}
TAGS = {
    "translate": "translation",
    "generate": "text-generation",
    "fill": "fill-mask",
    "classify": "text-classification",
    "embed": "feature-extraction",
}

LOADING = {
    "hf": """from transformers import AutoModel{kind}, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModel{kind}.from_pretrained("FOLDER")
{call}""",
    "ct2": """import ctranslate2, tokenizers
tokenizer = tokenizers.Tokenizer.from_file("FOLDER/tokenizer.json")
{call}""",
    "onnx": """from glassformer.formats.onnx.writer import OnnxModel
model = OnnxModel("FOLDER")        # or the plain loop of docs/how-to/export.md, with onnxruntime alone
print(model.write([{ids}], limit=32))""",
    "gguf": """llama-cli -m FOLDER/model.gguf -p "A text" """,
}
CALLS = {
    ("hf", "transformer"): "print(tokenizer.batch_decode(model.generate(**tokenizer([\"A text\"], return_tensors=\"pt\")), "
    "skip_special_tokens=True))",
    ("hf", "gpt"): "print(tokenizer.batch_decode(model.generate(**tokenizer([\"A text\"], return_tensors=\"pt\"), "
    "max_new_tokens=32)))",
    ("hf", "bert"): "print(model(**tokenizer([\"A text\"], return_tensors=\"pt\")).logits.shape)",
    ("ct2", "transformer"): "translator = ctranslate2.Translator(\"FOLDER\")\n"
    "answer = translator.translate_batch([tokenizer.encode(\"A text\").tokens])[0].hypotheses[0]\n"
    "print(TARGET.decode([TARGET.token_to_id(token) for token in answer]))",
    ("ct2", "gpt"): "generator = ctranslate2.Generator(\"FOLDER\")\n"
    "answer = generator.generate_batch([tokenizer.encode(\"A text\").tokens], max_length=32)[0]\n"
    "print(tokenizer.decode(answer.sequences_ids[0]))",
}  # fmt: skip
KINDS = {"transformer": "ForSeq2SeqLM", "gpt": "ForCausalLM", "bert": "ForMaskedLM"}
HEADS = {"classify": "ForSequenceClassification", "tag": "ForTokenClassification", "none": ""}


def snippet(to: str, config: ModelConfig, *, own_target: bool) -> str:
    """A few lines that load the folder and use it."""
    call = CALLS.get((to, config.family), "")
    call = call.replace(".logits", ".last_hidden_state") if config.head == "none" else call
    target = 'tokenizers.Tokenizer.from_file("FOLDER/target/tokenizer.json")' if own_target else "tokenizer"
    kind = HEADS.get(config.head, KINDS[config.family])
    return LOADING[to].format(kind=kind, call=call.replace("TARGET", target), ids="[5, 6, 2]")


def settings_of(section: Any, names: tuple[str, ...]) -> list[str]:
    """Lines of a list: settings that are set, by name."""
    return [
        f"- {name}: {getattr(section, name)}" for name in names if getattr(section, name, None) not in (None, (), "")
    ]


def card(
    model: TextModel, to: str, name: str, metrics: dict[str, float], report: ParityReport, notes: list[str]
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
        "library_name: " + {"hf": "transformers", "ct2": "ctranslate2", "onnx": "onnx", "gguf": "gguf"}[to],
        *([f"pipeline_tag: {TAGS[model.verb]}"] if model.verb in TAGS else []),
        "---",
        "",
        f"# {name}",
        "",
        f"This is {FAMILIES[c.family]} of {model.model.num_params():,} parameters, trained with Glassformer {VERSION} on "
        f"{languages.get(data.task, data.task)}, with weights as {report.weights}.",
        "",
        "```" + ("sh" if to == "gguf" else "python"),
        snippet(to, c, own_target=not model.tokenizers.shared),
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
