"""`glassformer generate`: text that goes on where a prompt ends, by a GPT."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from glassformer.cli import lines, options, writing
from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.config import DecodeConfig
    from glassformer.tasks import Answer, TextConstraints, TextModel

BETWEEN = "-" * 40


@dataclass(frozen=True)
class Writer:
    """A GPT that is told how to write, and what is shown of its texts."""

    model: TextModel
    config: DecodeConfig
    constraints: TextConstraints
    shows_prompt: bool
    json: bool
    unknown: lines.Unknown

    @property
    def wide(self) -> int:
        """How many lines of output a prompt takes."""
        return 1 if self.json else writing.answers_a_text(self.config)

    def output(self, prompt: str, answers: list[Answer]) -> lines.Output:
        """The texts that go on from one prompt."""
        tokens = sum(len(answer.ids) for answer in answers)
        if self.json:
            facts = [writing.answer_facts(answer) for answer in answers]
            return lines.Output(
                [lines.as_line({"prompt": prompt, "answers": facts, **self.unknown.fact(prompt)})], tokens
            )
        shown = [(prompt if self.shows_prompt else "") + answer.text for answer in answers]
        return lines.Output(shown + [""] * (self.wide - len(shown)), tokens)

    def answer(self, prompts: Sequence[str]) -> Iterator[lines.Output]:
        """The output for each prompt, as it comes."""
        from glassformer import tasks

        found = tasks.generate_each(self.model, prompts, config=self.config, constraints=self.constraints)
        return (self.output(prompt, answers) for prompt, answers in zip(prompts, found, strict=True))

    def show_stream(self, prompt: str) -> None:
        """The text as it comes. What is wrong is said without a beginning of an answer, so the first piece is waited for."""
        from glassformer import tasks

        self.unknown.tell([prompt])
        pieces = tasks.stream_generated(self.model, prompt, config=self.config, constraints=self.constraints)
        first = next(pieces, "")
        lines.stdout_write((prompt if self.shows_prompt else "") + first)
        for piece in pieces:
            lines.stdout_write(piece)
        lines.stdout_write("\n")

    def show_whole(self, prompts: Sequence[str]) -> None:
        """Each text as it is, with its line breaks."""
        self.unknown.tell(prompts)
        between = "\n" if self.json else f"\n{BETWEEN}\n"
        lines.stdout_write(between.join(text for output in self.answer(prompts) for text in output.lines) + "\n")

    def job(self, fingerprint: str) -> lines.TextJob:
        """The job that reads prompts line by line and writes an answer for each, and can be resumed."""
        options = asdict(self.config) | asdict(self.constraints)
        return lines.TextJob(
            "generate",
            fingerprint,
            options | {"prompt is shown": self.shows_prompt, "json": self.json},
            self.answer,
            self.json,
            {"answers": []},
            self.wide,
            batch=self.config.batch_size or lines.BATCH,
            group=writing.lines_together(self.config, self.model.device),
            begins=True,
            unknown=self.unknown,
        )


def check_stream(one_prompt: bool, as_json: bool, has_terms: bool) -> None:
    """Refuse what cannot be shown as it is written."""
    if as_json:
        raise ConfigError("--stream shows text as it comes and --json whole answers; choose one of them")
    if has_terms:
        raise ConfigError("--term is met by a search, which changes its mind, and --stream cannot; choose one of them")
    if not one_prompt:
        raise ConfigError("--stream shows one text as it is written; give one prompt, and no --file or --out")


def make_writer(
    model: TextModel, options: dict[str, Any], constraints: TextConstraints, *, only_new: bool, as_json: bool
) -> Writer:
    """The model with what the options ask of it, checked."""
    from glassformer import tasks

    model.require("generate")
    if constraints.terms and not {"temperature", "beam"} & set(options):
        options = options | {"beam": model.recipe.decode.beam or 4}  # terms are met by a search
    config = tasks.decode_settings(model, **options)
    tasks.check_constraints(model, constraints, config)
    unknown = lines.Unknown(lambda prompt: tasks.unknown(model, prompt))
    return Writer(model, config, constraints, not only_new and model.kind != "gpt on pairs", as_json, unknown)


@options.documented
@options.takes_decoding
def generate(
    run: options.Run,
    texts: list[str] | None = None,
    prompt: str | None = None,
    file: options.InputFile = None,
    out: options.OutputFile = None,
    resume: options.Resume = False,
    stream: bool = False,
    only_new: bool = False,
    as_json: options.AsJson = False,
    term: options.Terms = None,
    prefix: options.Prefix = "",
    ban: options.Banned = None,
    stop: options.Stops = None,
    settings: options.Settings = None,
    device: options.Device = "auto",
    step: options.Step = None,
    **decoding: Any,
) -> None:
    """Continue prompts, or each line of stdin or of a file. Tokens are drawn, unless --temperature 0 or --beam asks for a
    search; the same seed draws the same text.

    Prompts of the command line are answered with their text as it is; for lines there is a line each, in order (with
    --num-samples N or --n-best N there are N), in which a line break is written as \\n.
    """
    options = writing.decode_options(decoding, settings)
    prompts = [*([] if prompt is None else [prompt]), *(texts or [])]
    given = lines.Input(prompts, file, out, resume)
    given.check()
    if stream:
        check_stream(file is None and out is None and len(prompts) <= 1, as_json, bool(term))
    constraints = writing.make_constraints(term, None, prefix, ban, stop)
    if constraints.glossary:
        raise ConfigError("--term WORD=TERM is for translations; a GPT is given the terms alone")

    from glassformer import tasks
    from glassformer.api import load

    for text in prompts:
        tasks.check_text(text)
    model = load(run, device=device, step=step)
    writer = make_writer(model, options, constraints, only_new=only_new, as_json=as_json)
    if stream:
        writer.show_stream(prompts[0] if prompts else "")
    elif file is None and out is None and (prompts or sys.stdin is None or sys.stdin.isatty()):
        writer.show_whole(prompts or [""])
    else:
        lines.reply(given, writer.job(lines.run_fingerprint(run, step) if out is not None else ""))
