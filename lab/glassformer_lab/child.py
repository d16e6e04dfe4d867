"""Somebody's Python file, run in a process of its own, so that whatever it does to its process is no verdict of ours.

It has a time limit, what it prints goes to stderr, and only a report that carries this call's nonce counts: a file that ends the
process, or writes a report itself, has said nothing. It is no sandbox: the file runs with all the rights of whoever calls.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import secrets
import signal
import subprocess
import sys
from typing import Any

from glassformer.errors import UserError
from glassformer.language import _, localized

START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from glassformer_lab.child import main; main()"
"""Of an isolated Python, for which no file of the working directory is a module, until it has our path."""


def run_in_child(job: str, file: str, seconds: float, **words: Any) -> Any:
    """The report of "audit" or "homework" on a file; refused in a sentence where there is none."""
    nonce = secrets.token_hex(16)
    command = [sys.executable, "-I", "-c", START, json.dumps(sys.path)]
    order = json.dumps({"nonce": nonce, "job": job, "seconds": seconds, "words": words}).encode()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            written, _none = child.communicate(order, seconds)
        except BaseException as error:
            with contextlib.suppress(OSError, AttributeError):
                os.killpg(child.pid, signal.SIGKILL)  # and whatever it started
            child.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise UserError(
                "{path} had not come to its end after {seconds:g} seconds; --seconds gives it more", file, seconds
            ) from None
    for line in written.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            report = json.loads(line)
            if report["nonce"] == nonce:
                break
    else:
        raise UserError(
            "{path} ended the process (exit code {code}) before it was looked through to its end: nothing is known of it",
            file,
            child.returncode,
        )
    if "refused" in report:
        raise UserError(report["refused"])
    return report["found"]


def found_by(job: str, words: dict[str, Any]) -> dict[str, Any]:
    """What a job finds, or the sentence that says why it cannot be done."""
    from glassformer_lab import audit, homework
    from glassformer_lab.audit.making import one_line

    try:
        return {"found": audit.report(**words) if job == "audit" else homework.report(**words)}
    except UserError as error:
        return {"refused": localized(str(error))}
    except BaseException as error:  # whatever somebody's file raises, SystemExit among it
        return {"refused": localized(_("the file broke off what looks through it: {error}", one_line(error)))}


def main() -> None:
    """The child: reads an order on stdin, reports on the stdout that it was given, and ends."""
    order = json.loads(sys.stdin.buffer.read())
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.dump_traceback_later(order["seconds"] + 5, exit=True)  # should its parent be gone by then
    found = found_by(order["job"], order["words"])
    report.write(json.dumps({"nonce": order["nonce"], **found}) + "\n")
    report.flush()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(0)  # whatever threads the file has begun
