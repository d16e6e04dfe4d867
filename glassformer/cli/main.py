"""The command line: one file a verb; here they are only listed, and errors that a person can put right become one line."""

from __future__ import annotations

import os
import sys

import typer

from glassformer.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train a Transformer on your own pairs or text, see through it, ship it.",
)


def add_verbs() -> None:
    from glassformer.cli import (
        classify,
        compare,
        data,
        demo,
        doctor,
        evaluate,
        figures,
        fill,
        generate,
        heads,
        info,
        look,
        plan,
        recipes,
        reproduce,
        tag,
        train,
        translate,
        verify_resume,
    )

    app.command("demo")(demo.demo)
    app.command("recipes")(recipes.recipes)
    app.command("train")(train.train)
    app.command("translate")(translate.translate)
    app.command("generate")(generate.generate)
    app.command("fill")(fill.fill)
    app.command("classify")(classify.classify)
    app.command("tag")(tag.tag)
    app.command("plan")(plan.plan)
    app.command("evaluate")(evaluate.evaluate)
    app.command("reproduce")(reproduce.reproduce)
    app.command("info")(info.info)
    app.command("look")(look.look)
    app.command("heads")(heads.heads)
    app.command("compare")(compare.compare)
    app.command("figures")(figures.figures)
    app.command("doctor")(doctor.doctor)
    app.command("verify-resume")(verify_resume.verify_resume)
    app.add_typer(data.app, name="data")


def main() -> None:
    add_verbs()
    try:
        app(prog_name="glassformer")
    except UserError as error:
        print(f"glassformer: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever was reading has had enough (`… | head`); that is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
