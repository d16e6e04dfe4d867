"""`glassformer evaluate`, `score` and `compare`: a run on examples, the probability of texts, and two runs beside each other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.errors import UserError, writing
from glassformer.language import _, localized
from glassformer.screen import FIXED, FOLD, RIGHT, Progress, make_table, table_console, warn

AT_ONCE, STAGES = 256, 5  # pairs that `score` reads at a time; what the study of `compare` tells of


def new_file(path: Path) -> Callable[[str | bytes], None]:
    """What writes a text, or bytes, into a file that must not be there yet: whole, when all of it is known."""
    if path.exists() or path.is_symlink():
        raise UserError("{path} is there already; choose another name for --out, or remove it first", path)
    if not path.parent.is_dir():
        raise UserError("there is no folder {parent} to write {path} into", path.parent, path.name)

    def write(text: str | bytes) -> None:
        from glassformer.files.durable import write_atomically

        with writing(path):
            write_atomically(path, text if isinstance(text, bytes) else text.encode("utf-8", errors="replace"))

    return write


def evaluate(
    run: Path,
    overrides: list[str] | None = None,
    *,
    split: str | None = None,
    file: Path | None = None,
    source: Path | None = None,
    target: Path | None = None,
    perturb: str | None = None,
    contrastive: Path | None = None,
    ensemble: list[Path] | None = None,
    out: Path | None = None,
    limit: int | None = None,
    as_json: bool = False,
    device: str = "auto",
    engine: str | None = None,
) -> None:
    """Score a run on one of its splits, or on files of your own, whatever its task. Shares are percentages.

    Example: evaluate runs/dates --limit 100

    overrides (KEY.SUB=VALUE): How to read and write, such as data.format=csv decode.beam=1.
    split: train, val or test; test if not said, or what there is.
    file: Score this file instead, in a format of training data.
    source: Score this file of sources (one a line) instead.
    target: The references of --source, line by line.
    perturb: Change the pairs as people paste text: upper, title, lower, typos, stops, emoji, lines.
    contrastive: A TSV of source, right, wrong (and contexts): how often the right one is likelier.
    out: Write the model's answers there, a line each; a new file.
    limit: At most so many examples.
    """
    from glassformer.api import load
    from glassformer.api.evaluation import evaluate_run

    if limit is not None and limit < 1:
        raise UserError("--limit must be at least 1, not {limit}", limit)
    if (source is None) != (target is None):
        raise UserError("--source and --target go together: a file of sources and a file of references")
    if file is not None and source is not None:
        raise UserError("--file holds both sides, --source and --target one each: give one or the other")
    files = [path for path in (file, source, target) if path is not None]
    if contrastive is not None:
        if files or split or perturb or ensemble or out or overrides or engine:
            raise UserError("--contrastive scores the pairs of its own file; leave out other data, settings and --out")
        score_contrasts(run, contrastive, limit, device, as_json=as_json)
        return
    write = new_file(out) if out is not None else None
    settings = [*(overrides or []), *([f"decode.engine={engine}"] if engine is not None else [])]
    model = load([run, *ensemble], device=device) if ensemble else None
    how: dict[str, Any] = {"limit": limit, "device": device, "perturb": perturb, "model": model}
    result = evaluate_run(run, split=split, files=files, overrides=settings, **how)
    scores = result.scores
    for note in result.notes:
        warn(note)
    if write is not None:
        if not scores.written:
            raise UserError("this run writes no answers to keep; leave out --out")
        write("".join(" ".join(line.splitlines()) + "\n" for line in scores.written))
    if as_json:
        facts = {"run": str(run), "weights": result.weights, "on": result.on, "examples": result.examples}
        print(json.dumps(facts | scores.values | {"signatures": scores.signatures, "notes": list(result.notes)}))
    else:
        show_scores(run, result)


def score_contrasts(run: Path, file: Path, limit: int | None, device: str, *, as_json: bool) -> None:
    """How often the right one of two translations is the likelier."""
    from glassformer.api import load
    from glassformer.evaluation.examples import contrastive, read_contrasts

    right, total = contrastive(load(run, device=device), read_contrasts(file)[:limit])
    if not total:
        raise UserError("{path}: not one pair fits the length that this run reads", path=file)
    share = 100 * right / total
    if as_json:
        print(json.dumps({"run": str(run), "on": str(file), "examples": total, "right": right, "contrastive": share}))
    else:
        sentence = _("{run} finds the right one likelier in {share:.2f}% of {total:,} pairs", run, share, total)
        table_console().print(sentence, soft_wrap=True)


def show_scores(run: Path, result: Any) -> None:
    """A table of scores, each with what it is, and a few examples."""
    from rich.text import Text

    from glassformer.evaluation.metrics import measure_name, measure_value

    columns = _("measure"), (_("value"), RIGHT), (_("signature"), FOLD | {"style": "dim"})
    table = make_table(columns, title=_("{run} on {on} ({examples:,} examples)", run, result.on, result.examples))
    for name, value in result.scores.values.items():
        signature = Text(localized(result.scores.signatures.get(name, "")))
        table.add_row(localized(measure_name(name)), measure_value(name, value), signature)
    console = table_console()
    console.print(table)
    for given, wanted, written in result.scores.samples:
        same = wanted.strip() == written.strip()
        line = Text(f"  {given} → {written}  ").append("=" if same else "≠", "green" if same else "red")
        console.print(line.append(f"  {wanted}"))


def score(
    run: Path,
    overrides: list[str] | None = None,
    *,
    file: Path | None = None,
    target: Path | None = None,
    out: Path | None = None,
    as_json: bool = False,
    device: str = "auto",
    step: int | None = None,
) -> None:
    """The log-probability of given pairs (or of texts, by a GPT): a line each, in nats, then a tab and over how many tokens it
    is a sum. A pair that is longer than the model reads has an empty line.

    Example: score runs/dates --file pairs.tsv

    overrides (data.KEY=VALUE): How to read the file, such as data.source_field=en.
    file: Pairs as for training: TSV, CSV, JSON, JSONL, Parquet; or a text a line.
    target: The targets, where --file holds the sources alone.
    out: Write there instead of stdout; a new file.
    as_json (--json): One JSON object a line.
    """
    if file is None:
        raise UserError("score needs --file: a file of pairs, such as a TSV")
    from glassformer.api import load
    from glassformer.api.evaluation import pairs_of_files
    from glassformer.tasks.score import score as score_texts

    write = new_file(out) if out is not None else None
    model = load(run, device=device, step=step)
    examples = iter(pairs_of_files(model, [file, *([target] if target is not None else [])], overrides or []))
    lines: list[str] = []
    total = tokens = left_out = 0.0
    while group := list(islice(examples, AT_ONCE)):
        for example, scored in zip(group, score_texts(model, group), strict=True):
            left_out += scored is None
            total += 0.0 if scored is None else scored.log_probability
            tokens += 0 if scored is None else scored.tokens
            lines.append(score_line(example, scored, as_json))
            if write is None:
                print(lines.pop())
    if write is not None:
        write("".join(line + "\n" for line in lines))
    if left_out:
        most = model.model.config.block_size
        warn(_("{count:,.0f} pairs have more than {most} tokens and no score", left_out, most))
    if tokens:
        mean = -total / tokens
        sentence = _(
            "loss {mean:.4f} nats a token, perplexity {perplexity:.2f}, over {tokens:,.0f} tokens",
            *(mean, math.exp(min(50.0, mean)), tokens),
        )
        warn(sentence)


def score_line(example: Any, scored: Any, as_json: bool) -> str:
    """The score of a pair or a text as a line; None is one that is too long to be read."""
    if not as_json:
        return "" if scored is None else f"{scored.log_probability:.6f}\t{scored.tokens}"
    sides = {"text": example} if isinstance(example, str) else {"source": example[0], "target": example[1]}
    probability, tokens = (None, 0) if scored is None else (scored.log_probability, scored.tokens)
    return json.dumps(sides | {"log_probability": probability, "tokens": tokens}, ensure_ascii=False)


def compare(
    first: Path,
    second: Path,
    *,
    split: str = "test",
    examples: int = 500,
    show: int = 8,
    out: Path | None = None,
    as_json: bool = False,
    device: str = "auto",
) -> None:
    """Two runs on the same examples: scores with intervals, what they say differently, where they look differently.

    Example: compare runs/a runs/b

    first (RUN_A): A run folder.
    second (RUN_B): Another.
    split: train, val or test, of RUN_A.
    examples: Compare on so many examples (of a text: blocks).
    show: Show so many of the most changed examples.
    out: Write pictures and compare.json into this folder.
    as_json (--json): One JSON object on stdout, every sentence in it.
    """
    from glassformer.api import load
    from glassformer.files.durable import to_json, write_atomically
    from glassformer.files.owned import OwnedFiles
    from glassformer.inspection import compare as study

    models = load(first, device=device), load(second, device=device)
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))
    with Progress("compare", STAGES) as display:

        def tell(what: str) -> None:
            display.update(display.done + 1, what)

        found = study.compare(models, names, split, examples, (first / "data", second / "data"), tell)
    if out is not None:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(OwnedFiles(out).claim("compare.json")[0], to_json(found.to_dict()))
            study.draw(found, out)
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print_comparison(found, show)


def scores_table(found: Any) -> Any:
    """Three lines a score (each run's, and the difference), so that an interval never has to be broken."""
    from glassformer.evaluation.metrics import measure_name

    numbers = [(name, FIXED | RIGHT) for name in (_("value"), _("95% from"), _("to"), "p")]
    title = _("{examples:,} examples of {split}", found.examples, found.split)
    table = make_table(((_("score"), FIXED), _("of"), *numbers), title=title)
    for name, paired in found.scores.items():
        for run, interval in zip(found.names, (paired.first, paired.second), strict=True):
            table.add_row(
                localized(measure_name(name)), run, *(f"{value:.4g}" for value in vars(interval).values()), ""
            )
        change = (f"{value:+.4g}" for value in vars(paired.difference).values())
        table.add_row("", localized(_("difference")), *change, f"{paired.p:.3g}", end_section=True)
    return table


def print_comparison(found: Any, show: int) -> None:
    """What `compare` found, as tables and sentences on stdout."""
    from glassformer.runs.session import shorten

    console = table_console()
    console.print(scores_table(found))
    written = any(s.first or s.second for s in found.sentences)
    if written:
        console.print(_("They say the same to {same:,} of {examples:,}.", found.same, found.examples))
    for s in [s for s in found.most_changed(show) if s.distance > 0 or not written]:
        console.print(f"  {shorten(s.source, 100)}", style="dim")
        if not written:
            console.print(_("    loss {first_loss:.4g} → {second_loss:.4g}", s.first_loss, s.second_loss))
            continue
        for name, text in zip((*found.names, localized(_("wanted"))), (s.first, s.second, s.wanted), strict=True):
            console.print(f"    {text}  ({name})")
    if found.attention:
        furthest = sorted(found.attention.items(), key=lambda item: -item[1].distance)[:5]
        listed = ", ".join(f"{name} {apart.distance:.2f}" for name, apart in furthest)
        sentence = _(
            "Heads of {first} that look least like any of {second}: {listed} (0 the same, 1 nothing in common).",
            *(*found.names, listed),
        )
        console.print(sentence)
    if found.no_attention:
        console.print(_("Attention is not compared: {no_attention}.", found.no_attention))
