"""`glassformer serve`: runs behind HTTP, for clients of LibreTranslate and of OpenAI, and for a browser; `glassformer open`: the
live page of runs, on one's own machine."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli import options
from glassformer.language import _
from glassformer.screen import say


def serve(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders; each is loaded and has to answer once.")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but a loopback one needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 5000,
    languages: Annotated[
        list[str] | None,
        typer.Option(
            help="What a run translates, where its recipe does not say: de:en, or NAME=de,fr:en for one of several."
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="A file whose first line is the API key (more lines: more keys); or set GLASSFORMER_API_KEY."
        ),
    ] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="A host name this server is known by.")] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A site whose pages may ask, such as https://example.org.")
    ] = None,
    batch_invariant: Annotated[
        bool, typer.Option("--batch-invariant", help="An answer never depends on its neighbours in the batch; slower.")
    ] = False,
    learn: Annotated[
        bool,
        typer.Option(
            "--learn", help="Take corrections, and learn each while answering; see docs/how-to/corrections.md."
        ),
    ] = False,
    processes: Annotated[
        int, typer.Option(help="So many processes, each with the runs in memory: for thousands of requests a second.")
    ] = 1,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change a limit, such as queue=64 or seconds=30.")
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto (CUDA where there is one), cpu or cuda; or several, as cuda:0,cuda:1: a worker on each."
        ),
    ] = "auto",
) -> None:
    """Answer over HTTP: LibreTranslate's /translate, OpenAI's /v1/completions, and a page at /.

    Requests are decoded side by side. SIGTERM ends in good order: nothing new is taken, what is under way is answered. Limits
    (`--limit`) are queue, body, file, text, batch, total, rows, alternatives, choices, logprobs, new_tokens, seconds,
    read_seconds, connections, drain_seconds, memory and a few more; see docs/how-to/serve.md.
    """
    run_server = server_or_hint()
    run_server(
        runs,
        (host, port),
        languages=languages or [],
        key_file=key_file,
        names=(allow_host or [], allow_origin or []),
        batch_invariant=batch_invariant,
        learn=learn,
        processes=processes,
        limits=limit or [],
        device=device,
    )


def open_page(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or a folder in which there are some.")
    ],
    port: Annotated[int, typer.Option(help="The port on this machine; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only say the address; open it yourself.")] = False,
    device: options.Device = "auto",
) -> None:
    """Type, and see inside with every key; cut parts, force a token, and see what the answer becomes; watch runs learn.

    A page in the browser, served by this machine for itself alone, until Ctrl-C. Its address holds the text, the cuts, the
    forced tokens and the view. A guided walk leads through the machine. A run may still be in training, by any process: its
    curves, samples and newest weights are followed.
    """
    run_server = server_or_hint()
    from glassformer.runs.folder import RunFolder

    found = [run for path in runs for run in ([path] if RunFolder.is_run(path) else runs_in(path))]
    # Those without weights are watched until they have some; what is no run is told so.
    found = [path for path in found if RunFolder.open(path).has_weights]
    has_screen = sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())

    def show(address: str) -> None:
        say(_("open {address} in a browser; Ctrl-C ends it", address))
        if has_screen and not no_browser:
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    run_server(found, ("127.0.0.1", port), device=device, opened=show, watched=runs)


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder, by name, also those that are being trained; where there are none the folder itself, so that the
    reason is told."""
    from glassformer.runs.folder import RunFolder

    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if RunFolder.is_run(path)] or [folder]


def server_or_hint() -> Any:
    """The function that serves; where its packages are missing, a sentence that names the one to install."""
    try:
        from glassformer.serve.command import run_server

        return run_server
    except ModuleNotFoundError as error:
        from glassformer.errors import UserError, install_hint

        if (error.name or "").startswith("glassformer"):
            raise
        raise UserError(
            "serving needs the package {name}; install it with: {command}", error.name, install_hint("serve")
        ) from None
