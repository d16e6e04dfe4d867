"""`glassformer serve`: runs behind HTTP, for clients of LibreTranslate and of OpenAI, and for a browser; `glassformer open`: the
live page of runs, on one's own machine."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.cli import options
from glassformer.language import _
from glassformer.screen import say


@options.documented
def serve(
    runs: list[Path],
    host: str = "127.0.0.1",
    port: int = 5000,
    languages: list[str] | None = None,
    key_file: Path | None = None,
    allow_host: list[str] | None = None,
    allow_origin: list[str] | None = None,
    batch_invariant: bool = False,
    learn: bool = False,
    limit: list[str] | None = None,
    device: str = "auto",
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
        limits=limit or [],
        device=device,
    )


@options.documented
def open_page(runs: list[Path], port: int = 0, no_browser: bool = False, device: options.Device = "auto") -> None:
    """Type, and see inside with every key; cut parts, force a token, and see what the answer becomes; watch runs learn.

    A page in the browser, served on this machine until Ctrl-C, to whoever has the token of the printed address. The address
    holds the text, the cuts, the forced tokens and the view. A guided walk leads through the machine. A run may still be in
    training, by any process: its curves, samples and newest weights are followed.
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
            # Everyone on the machine sees what a program is called with; the token stands in a file that is the owner's alone.
            page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
            threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()

    with TemporaryDirectory(prefix="glassformer-open-") as folder:
        page = Path(folder) / "open.html"
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
