"""Orders on stdin, a line of JSON each: a command of glassformer, or a program of this folder, in a fork of this process, its
exit code on stdout; where it is only to be begun, the number of its process, whose end is asked for by orders of their own."""

import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import sys

import glassformer.cli.main as cli
import glassformer.cli.verbs as verbs
from glassformer.runs import metrics_log

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
    if "ended" in order:
        found, status = os.waitpid(order["ended"], os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if found else None), flush=True)
        continue
    child = os.fork()
    if child == 0:
        os.chdir(order["cwd"])
        os.dup2(os.open(order.get("in", os.devnull), os.O_RDONLY), 0)
        for descriptor, name in ((1, order["out"]), (2, order["err"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), descriptor)
        if not order.get("drawn", True):
            metrics_log.draw_curves = lambda run: []
        program = order.get("program")
        sys.argv = [program or "glassformer", *order["arguments"]]
        os.environ.update(order.get("environment", {}))
        code = 0
        try:
            runpy.run_path(program, run_name="__main__") if program else cli.main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(child if order.get("begin") else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
