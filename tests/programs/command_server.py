"""Orders on stdin, a line of JSON each: a command of glassformer in a fork of this process, its exit code on stdout."""

import importlib
import json
import os
import sys

import glassformer.cli.main as cli

# What commands import is imported here, once, and not in every fork.
for name in ("glassformer.runs", "glassformer.runs.plan", "glassformer.api.evaluation", "matplotlib.figure"):
    importlib.import_module(name)
for name in ("matplotlib.backends.backend_agg", "rich.table", "sacrebleu", "safetensors.torch"):
    importlib.import_module(name)

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
