"""A server with a thread that never ends, which is told to end itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from glassformer.serve.server import run_server


def hang(address: str) -> None:
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run_server([Path(sys.argv[1])], ("127.0.0.1", 0), device="cpu", opened=hang)
