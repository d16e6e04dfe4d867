"""`glassformer …` in processes of their own, without paying for the import of torch each time.

A helper process imports the package once and forks for every command: the child has its own folder, its own streams and
an exit code, exactly as if it had been started by hand. (`python -m glassformer` itself is called where that is the point.)
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "120"}

HELPER = """
import json, os, sys
import glassformer.cli.main as cli, glassformer.runs, glassformer.studies.plan, glassformer.studies.score
import matplotlib.figure, matplotlib.backends.backend_agg, rich.table, sacrebleu, safetensors.torch
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(order["cwd"])
        for descriptor, name in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), descriptor)
        sys.argv = ["glassformer", *order["arguments"]]
        code = 0
        try:
            cli.main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def helper() -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    atexit.register(started.kill)
    return started


def call(*arguments: Any, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`glassformer ARGUMENTS` in `cwd`, with nothing on its stdin and no terminal."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        words = [str(a) for a in arguments]
        order = {"cwd": str(cwd), "out": str(out), "err": str(err), "arguments": words}
        talk = helper()
        assert talk.stdin is not None and talk.stdout is not None
        talk.stdin.write(json.dumps(order) + "\n")
        talk.stdin.flush()
        code = int(talk.stdout.readline())
        return subprocess.CompletedProcess(
            words, code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )


def call_by_hand(*arguments: Any, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python -m glassformer ARGUMENTS`, with everything that belongs to it."""
    command = [sys.executable, "-m", "glassformer", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT, check=False, timeout=180, encoding="utf-8"
    )
