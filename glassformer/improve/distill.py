"""Sequence-level distillation (Kim and Rush 2016): a student learns what its teacher writes, not what the data has.

A teacher's answers are simpler and more regular than what people wrote, so a smaller model can learn them. The student has a deep
encoder and a shallow decoder (Kasai et al. 2021): the encoder reads a sentence once, the decoder runs for every token. The
teacher's own held-out pairs choose the student's weights and score the two beside each other.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.api.evaluation import pairs_of_files
from glassformer.api.loading import load
from glassformer.config import Recipe
from glassformer.config.recipe import apply_overrides
from glassformer.data.splits import normalized
from glassformer.data.store import run_examples, stored_splits
from glassformer.errors import UserError
from glassformer.files.durable import to_json, write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.improve.comparison import Answered, Pair, WritePairs, answered, lines_of, metric_for, train_or_resume
from glassformer.improve.shortlist import keep_if_it_pays
from glassformer.models import build_model
from glassformer.models.costs import shapes_alone
from glassformer.runs.folder import RunFolder

WIDEST, ENCODER_LAYERS, DECODER_LAYERS, DROPOUT = 256, 6, 2, 0.1
MOST_BYTES = 15_000_000  # in int8; with 8,000 words it is some 9 million, with very many the student is narrower
TEACHERS_OWN = ("vocab_size", "source_vocab_size", "n_kv_head", "head_size", "value_size", "pruned_heads")
READING = (
    *("tokenizer", "target_tokenizer", "pattern", "decompose", "vocab_size", "separate_vocabularies", "lowercase"),
    *("source_languages", "target_language", "batch_tokens", "layout", "row_width"),
)


def student_recipe(teacher: Recipe, overrides: Sequence[str], *, own_training: bool) -> dict[str, Any]:
    """A recipe's tables for the student, without its data: the teacher's as far as they fit, and a smaller model.
    `own_training`: the teacher was trained from nothing, so that its schedule is one for the student, too."""
    values, model = teacher.to_dict(), teacher.model
    kept = {key: value for key, value in values["model"].items() if key not in TEACHERS_OWN and "n_encoder" not in key}
    for heads in range(max(1, min(WIDEST, model.n_embd) // model.key_size), 0, -1):
        small = {
            "n_head": heads,
            "n_embd": heads * model.key_size,
            "n_hidden": max(1, heads * model.key_size * model.hidden // model.n_embd),
            "n_encoder_layer": ENCODER_LAYERS,
            "n_layer": min(DECODER_LAYERS, max(1, model.n_layer // 2)),
            "dropout": min(DROPOUT, model.dropout),
        }
        words = {key: value for key in ("vocab_size", "source_vocab_size") if (value := getattr(model, key))}
        with shapes_alone():
            if int8_bytes(build_model(Recipe.from_dict({"model": kept | small | words}).model)) <= MOST_BYTES:
                break
    left_out = ("freeze", "lora_rank", "lora_alpha", "lora_targets")
    train = {key: value for key, value in values["train"].items() if key not in left_out}
    out = {
        "name": "student",
        "model": kept | small,
        "data": {key: values["data"][key] for key in READING if key in values["data"]},
        "train": train if own_training else {"device": teacher.train.device},
        "decode": values["decode"],
    }
    apply_overrides(out, list(overrides))
    return out


def int8_bytes(model: nn.Module) -> int:
    """The weights in 8 bits: a byte for each number of a matrix and a float32 scale a row; all others in float32."""
    sizes = (p.numel() + 4 * len(p) if p.dim() == 2 else 4 * p.numel() for p in model.parameters())
    return sum(sizes)


def sources_of(run: RunFolder, texts: Path | None, held: Iterable[Pair]) -> list[str]:
    """What the teacher is asked: the sources it was trained on, then the lines of a file; each once, none that is held out."""
    folder = run.path / "data"
    stored = run_examples(run.recipe.data, "train", folder) if "train" in stored_splits(folder) else ()
    heldout = {normalized(source) for source, _target in held}
    sources = [" ".join(source.split()) for source, _target in stored] + ([] if texts is None else lines_of(texts))
    lines = [line for line in dict.fromkeys(sources) if line and normalized(line) not in heldout]
    if not lines:
        raise UserError("{run} has kept no training pairs; name a file of source texts by --text", run=run.path)
    return lines


def facts_of(run: RunFolder, answers: Answered) -> dict[str, float]:
    """A run in numbers: its score and speed on the held-out pairs, its parameters, its size in 8 bits."""
    model = run.load_model()
    size = {"parameters": model.num_params(), "int8_mb": int8_bytes(model) / 1e6}
    return {"score": answers.score, "sentences_per_second": answers.speed, **size}


def distill(
    teacher: Path,
    out: Path,
    write_pairs: WritePairs,
    *,
    texts: Path | None = None,
    test: Path | None = None,
    overrides: Sequence[str] = (),
    device: str = "auto",
) -> dict[str, Any]:
    """A student of a run, in `out`/student; beside it what it learned from (pairs.tsv). The report, which is distill.json there.
    What was broken off goes on."""
    model, run = load(teacher, device=device), RunFolder.open(teacher)
    model.require("translate")
    if model.kind != "transformer":
        raise UserError("{run} is a GPT; a student is made of an encoder-decoder", run=teacher)
    folder = run.path / "data"
    held: dict[str, list[Pair]] = {
        split: list(run_examples(run.recipe.data, split, folder)) for split in stored_splits(folder) if split != "train"
    }
    held |= {} if test is None else {"test": list(pairs_of_files(model, [test], []))}
    if not held:
        raise UserError("{run} has kept no pairs to score a student on; name a file of pairs by --test", run=run.path)
    lines = sources_of(run, texts, itertools.chain.from_iterable(held.values()))
    owned, scored_on = OwnedFiles(out), "test" if "test" in held else "val"
    sources, pairs, *files = owned.claim("sources.txt", "pairs.tsv", *(f"{split}.jsonl" for split in held))
    owned.claim("pairs.tsv.job", "student", "distill.json")
    with owned.exclusive_lock("distillation"):
        own_training = "from" not in run.facts and "train" in stored_splits(folder)
        values = student_recipe(run.recipe, overrides, own_training=own_training)
        values["data"] |= {split: str(file.absolute()) for split, file in zip(held, files, strict=True)}
        values["data"]["train"] = str(pairs.absolute())
        recipe = Recipe.from_dict(values, name="student")  # what is wrong with it is said before anything is made
        for file, examples in zip(files, held.values(), strict=True):
            rows = (json.dumps({"source": a, "target": b}, ensure_ascii=False) + "\n" for a, b in examples)
            write_atomically(file, "".join(rows).encode("utf-8", "replace"))
        write_atomically(sources, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
        del model
        write_pairs(teacher, sources, pairs)
        student = train_or_resume(recipe, out / "student")
        metric, examples = metric_for(student.recipe), held[scored_on]
        shortlist = keep_if_it_pays(student, held.get("val", examples), metric)
        answers = {"teacher": answered(teacher, examples, metric, device)}
        answers["student"] = answered(student.path, examples, metric, device)
        report = {
            "student": str(student.path),
            "pairs": sum(1 for _line in pairs.open("rb")),
            "split": scored_on,
            "examples": len(examples),
            "metric": metric,
            "facts": {"teacher": facts_of(run, answers["teacher"]), "student": facts_of(student, answers["student"])},
            "paired": answers["teacher"].beside(answers["student"]).to_dict(),
            "shortlist": shortlist,
        }
        write_atomically(out / "distill.json", to_json(report))
    return report
