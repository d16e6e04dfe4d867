"""Options that several verbs take, each with its help once. One that a single verb takes stands in its own file.

Of decoding, what is in common use has a name of its own; every other setting of `[decode]` is reached by `--set name=value`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="A run folder.")]
RunOut = Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME by default.")]
Changes = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="Changes, such as train.steps=200.")
]
Task = Annotated[str | None, typer.Option(help="Files: pairs, text, classify or tag; guessed if not said.")]
JsonObject = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]

# Texts in, lines out.
Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any, lines of stdin.")]
InputFile = Annotated[Path | None, typer.Option("--file", help="A file with a text a line.")]
OutputFile = Annotated[Path | None, typer.Option("--out", help="A new file for the answers, line by line.")]
Resume = Annotated[bool, typer.Option("--resume", help="With --file and --out: go on with an interrupted job.")]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON object for each text.")]
Device = Annotated[str, typer.Option(help="auto (CUDA where there is one), cpu or cuda.")]
Step = Annotated[int | None, typer.Option(help="Use the checkpoint of this step.")]
BatchSize = Annotated[int | None, typer.Option(help="Texts answered at a time.")]

# How a model is told to write.
Beam = Annotated[int | None, typer.Option(help="Hypotheses searched side by side; 1 is greedy.")]
NBest = Annotated[int | None, typer.Option(help="So many answers, best first.")]
Temperature = Annotated[float | None, typer.Option(help="Above 0: draw instead of search.")]
TopK = Annotated[int | None, typer.Option(help="Draw among the k likeliest tokens.")]
TopP = Annotated[float | None, typer.Option(help="Draw among the likeliest tokens that make up this share.")]
MinP = Annotated[float | None, typer.Option(help="Draw among tokens at least so likely, relative to the likeliest.")]
NumSamples = Annotated[int | None, typer.Option(help="So many draws.")]
Seed = Annotated[int | None, typer.Option(help="The same seed draws the same text.")]
MaxNewTokens = Annotated[int | None, typer.Option(help="At most so many tokens.")]
Strict = Annotated[bool | None, typer.Option("--strict", help="An answer never depends on its neighbours.")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="What runs the model: auto (fast), plain (the model itself, one token at a time); on a CPU also int8 and "
        "ctranslate2 (CTranslate2 in 8 bits and in float32) and onnx (onnxruntime)."
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of decode, such as alpha=1.")
]
Terms = Annotated[
    list[str] | None,
    typer.Option("--term", help="Must appear in the answer; WORD=TERM: where the text has WORD. Repeatable."),
]
Prefix = Annotated[str, typer.Option(help="The answer begins so.")]
Banned = Annotated[list[str] | None, typer.Option("--ban", help="Must not appear. Repeatable.")]
Stops = Annotated[list[str] | None, typer.Option("--stop", help="The answer ends before this. Repeatable.")]
