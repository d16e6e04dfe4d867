"""Sequence-level distillation (Kim and Rush 2016): a student learns what its teacher writes, not what the data has.

A teacher's answers are simpler and more regular than what people wrote, so a smaller model can learn them. The student has a deep
encoder and a shallow decoder (Kasai et al. 2021): the encoder reads a sentence once, the decoder runs for every token. The
teacher's own held-out pairs choose the student's weights and score the two beside each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.api.evaluation import pairs_of_files
from glassformer.api.loading import load
from glassformer.config import Recipe
from glassformer.config.recipe import apply_overrides
from glassformer.data.files import ReadContext, numbered_lines
from glassformer.data.splits import normalized
from glassformer.data.store import run_examples, stored_splits
from glassformer.errors import UserError
from glassformer.evaluation.significance import Paired
from glassformer.files.durable import write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.improve.held_out import check_text, write_jsonl
from glassformer.improve.shortlist import keep_if_it_pays
from glassformer.improve.trial import Pair, WritePairs, answered, compared, metric_for, train_or_resume
from glassformer.language import _
from glassformer.models import build_model
from glassformer.models.costs import shapes_alone
from glassformer.runs.folder import RunFolder
from glassformer.runs.report import made_with, markdown_table, write_report

WIDEST, ENCODER_LAYERS, DECODER_LAYERS, DROPOUT = 256, 6, 2, 0.1
MOST_BYTES = 15_000_000  # in int8; with 8,000 words it is some 9 million, with very many the student is narrower
TEACHERS_OWN = ("vocab_size", "source_vocab_size", "n_kv_head", "head_size", "value_size", "pruned_heads")
READING = (
    *("tokenizer", "vocab_size", "separate_vocabularies", "lowercase", "source_languages", "target_language"),
    *("batch_tokens", "layout", "row_width"),
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


@dataclass(frozen=True)
class Distillation:
    """Teacher and student beside each other: each one's facts, and the difference of their scores."""

    student: str
    pairs: int
    split: str
    examples: int
    metric: str
    facts: dict[str, dict[str, float]]  # by "teacher" and "student": score, sentences_per_second, parameters, int8_mb
    paired: Paired
    shortlist: dict[str, Any]  # kept, engine, score and sentences_per_second with it and without, on val and a CPU

    def shortlist_in_words(self) -> str:
        """What a shortlist brings, and whether the student got one."""
        told = (
            _("the student has a shortlist")
            if self.shortlist["kept"]
            else _("the student has no shortlist, which would not pay")
        )
        return _(
            "{told}: {metric} {score:.2f} with it and {score_without:.2f} without, {speed:,.1f} and {speed_without:,.1f} "
            "sentences/s on the CPU (engine={engine})",
            told,
            self.metric,
            *(self.shortlist[name] for name in ("score", "score_without", "sentences_per_second")),
            *(self.shortlist[name] for name in ("sentences_per_second_without", "engine")),
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**vars(self), "paired": self.paired.to_dict(), **made_with()}

    def rows(self) -> list[list[str]]:
        """A row for each of the two: name, score, int8 size, parameters, sentences a second."""
        return [
            [
                name,
                f"{own['score']:.2f}",
                f"{own['int8_mb']:.1f} MB",
                f"{own['parameters']:,.0f}",
                f"{own['sentences_per_second']:,.1f}",
            ]
            for name, own in self.facts.items()
        ]

    def markdown(self) -> str:
        """The report for a person to read."""
        gap = self.paired.difference
        page = [
            "# Distillation",
            "",
            f"{self.pairs:,} pairs by the teacher; scored on {self.examples:,} pairs of {self.split}.",
        ]
        page += [
            "",
            *markdown_table(["", self.metric, "in int8", "parameters", "sentences/s"], self.rows(), numbers=True),
        ]
        told = f"Student less teacher: {gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}], p {self.paired.p:.3g}."
        return "\n".join([*page, "", told, "", f"{self.shortlist_in_words()}.", ""])


def held_out_pairs(model: Any, run: RunFolder, test: Path | None) -> tuple[dict[str, list[Pair]], str]:
    """The pairs of val and test that the teacher's run has kept, and on which of them to score; `test`: a file in its place."""
    folder = run.path / "data"
    kept: dict[str, list[Pair]] = {
        s: list(run_examples(run.recipe.data, s, folder)) for s in stored_splits(folder) if s != "train"
    }
    if test is not None:
        kept["test"] = list(pairs_of_files(model, [test], []))
    if not kept:
        raise UserError("{run} has kept no pairs to score a student on; name a file of pairs by --test", run=run.path)
    return kept, "test" if "test" in kept else "val"


def sources_of(run: RunFolder, texts: Path | None, held: Mapping[str, list[Pair]]) -> list[str]:
    """What the teacher is asked: the sources it was trained on, then the lines of a file; each once, none that is held out."""
    folder = run.path / "data"
    stored = run_examples(run.recipe.data, "train", folder) if "train" in stored_splits(folder) else ()
    more = () if texts is None else (line for _number, line in numbered_lines(texts, ReadContext()))
    heldout = {normalized(source) for pairs in held.values() for source, _target in pairs}
    lines = (" ".join(text.split()) for text in itertools.chain((source for source, _target in stored), more))
    found = [line for line in dict.fromkeys(lines) if line and normalized(line) not in heldout]
    if not found:
        raise UserError("{run} has kept no training pairs; name a file of source texts by --text", run=run.path)
    return found


def distill(
    teacher: Path,
    out: Path,
    write_pairs: WritePairs,
    *,
    texts: Path | None = None,
    test: Path | None = None,
    overrides: Sequence[str] = (),
    device: str = "auto",
) -> Distillation:
    """A student of a run, in `out`/student; beside it what it learned from (pairs.tsv) and distill.md and .json. What was broken
    off goes on."""
    model, run = load(teacher, device=device), RunFolder.open(teacher)
    model.require("translate")
    if model.kind != "transformer":
        raise UserError("{run} is a GPT; a student is made of an encoder-decoder", run=teacher)
    if texts is not None:
        check_text(texts)
    held, scored_on = held_out_pairs(model, run, test)
    owned = OwnedFiles(out)
    sources, pairs, *files = owned.claim("sources.txt", "pairs.tsv", *(f"{split}.jsonl" for split in held))
    owned.claim("pairs.tsv.job", "student")
    with owned.exclusive_lock("distillation"):
        own = "from" not in run.facts and "train" in stored_splits(run.path / "data")
        values = student_recipe(run.recipe, overrides, own_training=own)
        named = {split: str(file.absolute()) for split, file in zip(held, files, strict=True)}
        values["data"] |= {"train": str(pairs.absolute()), **named}
        recipe = Recipe.from_dict(values, name="student")  # what is wrong with it is said before anything is made
        for file, examples in zip(files, held.values(), strict=True):
            write_jsonl(file, examples)
        lines = sources_of(run, texts, held)
        write_atomically(sources, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
        del model
        write_pairs(teacher, sources, pairs)
        student = train_or_resume(recipe, out / "student")
        metric, examples = metric_for(student.recipe), held[scored_on]
        shortlist = keep_if_it_pays(student, held.get("val", examples), metric)
        both = {"teacher": run, "student": student}
        scores = {name: answered(one.path, examples, metric, device) for name, one in both.items()}
        facts = {}
        for name, one in both.items():
            weights = one.load_model()
            facts[name] = {
                "score": scores[name].score,
                "sentences_per_second": scores[name].speed,
                "parameters": weights.num_params(),
                "int8_mb": int8_bytes(weights) / 1e6,
            }
        paired = compared(scores["teacher"], scores["student"])
        count = sum(1 for _line in pairs.open("rb"))
        found = Distillation(str(student.path), count, scored_on, len(examples), metric, facts, paired, shortlist)
        write_report(out, "distill", found.to_dict(), found.markdown())
    return found
