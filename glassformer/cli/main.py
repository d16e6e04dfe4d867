"""The door of the command line: what a person can put right becomes one line on stderr and exit code 2."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from glassformer.cli.verbs import run_command
from glassformer.errors import UserError
from glassformer.screen import warn


def use_any_encoding() -> None:
    """A letter that the terminal's encoding does not have is shown as a question mark; it is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def give_up_stdout() -> None:
    """What is still waiting to be written goes nowhere, so that nothing fails a second time on the way out."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """`glassformer …`, as the shell calls it."""
    use_any_encoding()
    try:
        code = run_command()
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(code)
    except UserError as error:
        warn(f"glassformer: {error}")
        sys.exit(2)
    except BrokenPipeError:
        # Whoever was reading has had enough (`… | head`); that is no error.
        give_up_stdout()
        sys.exit(0)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF):
            raise
        give_up_stdout()
        warn(f"glassformer: stdout cannot be written: {error.strerror}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
