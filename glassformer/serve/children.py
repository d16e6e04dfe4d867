"""Work that a stranger's bytes can make endless, done by a program in a process of its own: nobody waits for it beyond what was
given to it, and nothing of it is left when the request or the server ends."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE


async def output_of(module: str, given: bytes) -> tuple[int, bytes]:
    """The exit code of a module that is run as a program with these bytes on its stdin, and its stdout. It is killed when this
    is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    try:
        out, _nothing = await process.communicate(given)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out
