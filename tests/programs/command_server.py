"""Orders on stdin, a line of JSON each: a command of glassformer in a fork of this process, its exit code on stdout."""

import contextlib
import gc
import importlib
import io
import json
import os
import sys

import glassformer.cli.main as cli
import glassformer.cli.verbs as verbs

# What commands import is imported here, once, and not in every fork.
for name in ("api", "api.evaluation", "runs", "runs.doctor", "runs.plan", "data.doctor", "data.download", "formats"):
    importlib.import_module(f"glassformer.{name}")
for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "psutil", "rich.table", "sacrebleu"):
    importlib.import_module(name)
for name in ("msgspec", "safetensors.torch", "torch._dynamo", "torch.profiler"):
    importlib.import_module(name)
app = verbs.make_app()
verbs.make_app = lambda: app
with contextlib.redirect_stdout(io.StringIO()):
    verbs.run_command(["recipes"])  # typer and rich import half of themselves when they are first used
gc.freeze()
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
