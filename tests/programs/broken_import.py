"""`glassformer import …` that breaks off in its comparison: tests/programs/broken_import.py kill|interrupt import …"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from glassformer.cli.main import main
from glassformer.formats.huggingface import import_parity


def break_off(*_: Any, **__: Any) -> None:
    """In the way that the command line names."""
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    HOW = sys.argv.pop(1)
    import_parity.compare = break_off  # type: ignore[assignment]
    main()
