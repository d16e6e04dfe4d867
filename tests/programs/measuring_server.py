"""Orders on stdin, a line of JSON each: a command of glassformer in a fork of this process, with a limit of processor
time; its exit code and what it took on stdout."""

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import signal
import sys
import time

import glassformer.cli.main as cli
import glassformer.cli.verbs as verbs
from glassformer.runs import metrics_log

# What commands import is imported here, once, and not in every fork.
for name in ("api", "runs", "runs.doctor", "api.evaluation", "runs.plan", "data.doctor", "data.download"):
    importlib.import_module(f"glassformer.{name}")
for name in ("rich.table", "sacrebleu", "safetensors.torch", "msgspec", "tokenizers", "torch._dynamo"):
    importlib.import_module(name)
metrics_log.draw_curves = lambda run: []  # a picture takes longer than everything else
app = verbs.make_app()
verbs.make_app = lambda: app
with contextlib.redirect_stdout(io.StringIO()):
    verbs.run_command(["recipes"])  # typer and rich import half of themselves when they are first used
gc.freeze()
for line in sys.stdin:
    order = json.loads(line)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        os.chdir(order["cwd"])
        for number, name in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
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
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    until = time.monotonic() + order["patience"]
    hung = False
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > until:
            hung = True
            os.kill(child, signal.SIGKILL)
            pid, status, usage = os.wait4(child, 0)
            break
        time.sleep(0.005)
    answer = {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": usage.ru_utime + usage.ru_stime,
        "memory": max(0, usage.ru_maxrss - held) * 1024,
        "hung": hung,
    }
    print(json.dumps(answer), flush=True)
