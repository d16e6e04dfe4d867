"""`--nproc` where the process that forks the ranks is killed while it starts: by itself, at the import of this module."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    from glassformer.cli import nproc
    from glassformer.errors import UserError

    nproc.PRELOAD = ["tests.programs.killed_fork_server"]
    try:
        nproc.launch(["train", "copy", "--out", sys.argv[1]], 2, Path(sys.argv[1]))
    except UserError as error:
        print(error.exit_code, error)
else:
    os.kill(os.getpid(), signal.SIGKILL)
