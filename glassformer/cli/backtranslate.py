"""`glassformer backtranslate`: text of the target language to synthetic pairs, by a model of the other direction.

Sennrich, Haddow and Birch (2016): a translator learns from text that nobody has translated, if a model translates it back.
Sampled sources teach more than the best ones where there is much text (Edunov et al. 2018), and a tag before them lets the
model tell them from real ones (Caswell, Chelba and Grangier 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.cli import lines, options, writing
from glassformer.cli.bulk import LocalWorkers, reply_in_bulk
from glassformer.cli.translate import PLAIN, make_job
from glassformer.errors import ConfigError
from glassformer.language import _
from glassformer.screen import say


def make_pair_job(
    run: Path,
    device: str,
    step: int | None,
    decoding: dict[str, Any],
    *,
    verb: str,
    tag: str = "",
    answer_first: bool = False,
) -> lines.TextJob:
    """A job whose answers are pairs: the text and what the run makes of it, or (`answer_first`) the other way round, with `tag`
    before the first. A text that is blank or has no answer gives no pair."""
    from glassformer.tasks import TextConstraints

    job = make_job([run], device, step, decoding, TextConstraints(), PLAIN, names_run=True)

    def answer(texts: Sequence[str]) -> Iterator[lines.Output]:
        for text, output in zip(texts, job.answer(texts), strict=True):
            # A draw may break off inside a character, which reads as U+FFFD; nothing is to be learned from that.
            own = [one.replace("\t", " ").replace("\ufffd", "").strip() for one in output.lines]
            given = text.replace("\t", " ").strip()
            pairs = [(one, given) if answer_first else (given, one) for one in own if one]
            yield lines.Output([f"{tag} {a}".strip() + f"\t{b}" for a, b in pairs], output.tokens)

    return replace(job, verb=verb, answer=answer, wide=0, options=job.options | {"tag": tag})


def write_pairs(given: lines.Input, job: partial[lines.TextJob], jobs: int | None, device: str) -> None:
    """The pairs of a file's lines into a file, by one process or several."""
    if jobs is not None:
        reply_in_bulk(given, job, LocalWorkers(jobs, device))
    else:
        lines.reply(given, job())


def pair_writer(
    verb: str, jobs: int | None, device: str, *, answer_first: bool = False
) -> Callable[[Path, Path, Path], None]:
    """For a study that has pairs made on its way: from a run, a file of texts and a file for the pairs. Broken off, the same call
    goes on. A text that has no answer costs a sentence, and the study goes on without it."""

    def write(run: Path, texts: Path, pairs: Path) -> None:
        say(_("{run} translates {texts}", run, texts))
        job = partial(make_pair_job, run.absolute(), device, None, {}, verb=verb, answer_first=answer_first)
        try:
            write_pairs(lines.Input(None, texts, pairs, resume=True), job, jobs, device)
        except SystemExit as ended:
            if ended.code != 1:
                raise

    return write


@options.documented
@options.takes_decoding
def backtranslate(
    run: Path,
    file: Path,
    out: Path,
    sample: bool = False,
    tag: str = ("<bt>"),
    resume: options.Resume = False,
    jobs: int | None = None,
    settings: options.Settings = None,
    device: options.Device = "auto",
    step: options.Step = None,
    **decoding: Any,
) -> None:
    """Make synthetic pairs of text in the target language, to train the forward model on with the real ones.

    A line for each line of the file, in order; with --n-best N (or --num-samples N) N lines. A blank line gives none, nor does
    one that cannot be translated (stderr says which; the exit code is then 1).
    """
    chosen = writing.decode_options(decoding, settings)
    if sample:
        if chosen.get("temperature") == 0:
            raise ConfigError("--sample draws, and --temperature 0 does not; leave one of them out")
        chosen = {"temperature": 1.0} | chosen
    if tag != " ".join(tag.split()):
        raise ConfigError("--tag must not begin, end or double its blanks: {tag!r}", tag)
    lines.check_counts(jobs=jobs)
    given = lines.Input(None, file, out, resume)
    given.check()
    job = partial(make_pair_job, run.absolute(), device, step, chosen, verb="backtranslate", tag=tag, answer_first=True)
    write_pairs(given, job, jobs, device)
