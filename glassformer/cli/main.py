"""The door of the command line. What a person can put right becomes one line on stderr and exit code 2; whatever else slips
through is a defect of this package, and says so in one line: its trace is in a file, and the exit code is 70."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import warnings
from typing import Any

from glassformer.cli.verbs import run_command
from glassformer.config import VERSION
from glassformer.errors import Notice, UserError
from glassformer.files.streams import open_standard_streams
from glassformer.language import _, localized
from glassformer.screen import rank_of_several, warn

DEFECT = 70  # EX_SOFTWARE
INTERRUPTED = 130  # as a shell tells of a Ctrl-C
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG)
AS_PYTHON_DOES = warnings.showwarning
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # torch's words: Linux, ARM, CUDA


def show_warning(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **more: Any) -> None:
    """What our own code warns of is a sentence for the person; what a library warns of is shown as Python shows it."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) in os.path.abspath(filename)
    if ours or isinstance(message, Notice):
        warn(f"glassformer: {localized(message.args[0] if isinstance(message, Notice) else str(message))}")
    else:
        AS_PYTHON_DOES(message, category, filename, *rest, **more)


def use_any_encoding() -> None:
    """A letter that the terminal's encoding does not have is shown as a question mark; it is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def give_up_stdout() -> None:
    """What is still waiting to be written goes nowhere, so that nothing fails a second time on the way out."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def keep_trace(error: BaseException) -> str | None:
    """The trace of a defect in a file of its own, by its name; None where no file can be made."""
    import platform
    import tempfile
    import traceback

    with contextlib.suppress(OSError, ValueError):
        handle, name = tempfile.mkstemp(prefix="glassformer-defect-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"glassformer {VERSION}, Python {platform.python_version()}, {platform.platform()}\n")
            file.write(f"{sys.argv!r}\n\n")
            file.write("".join(traceback.format_exception(error)))
        return name
    return None


def speaker() -> str:
    """Who says it: one of several processes tells its rank."""
    rank = rank_of_several()
    return "glassformer" if rank is None else f"glassformer, rank {rank}"


def tell(error: BaseException) -> int:
    """One sentence for whatever ended a command, and its exit code."""
    if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps a Ctrl-C that comes while a class is made
        return INTERRUPTED
    if isinstance(error, UserError):
        warn(f"{speaker()}: {localized(str(error))}")
        return error.exit_code
    sentence, code = None, 2
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is not None:
            path = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
            sentence = _("{path} cannot be used: {reason}", path, error.strerror)
        else:
            give_up_stdout()
            if error.errno in FULL:
                sentence = _("{filename} cannot be written: {reason}", "stdout", error.strerror)
    if sentence is None and (isinstance(error, MemoryError) or any(sign in str(error) for sign in OUT_OF_MEMORY)):
        sentence = _("out of memory; ask for less at a time (a smaller model, batch, beam or text)")
    if sentence is None:
        code, trace = DEFECT, keep_trace(error)
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        sentence = _("this is a defect of glassformer, not of yours ({what})", what)
        sentence = _("{defect}; what happened is written in {path}", sentence, trace) if trace else sentence
    warn(f"{speaker()}: {localized(sentence)}")
    return code


def main() -> None:
    """`glassformer …`, as the shell calls it. Whatever happens is an exit code and at most one sentence."""
    open_standard_streams()
    use_any_encoding()
    warnings.showwarning = show_warning
    try:
        code = run_command()
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:
        # Whoever was reading has had enough (`… | head`); that is no error.
        give_up_stdout()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        sys.exit(tell(error))
