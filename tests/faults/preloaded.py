"""What the server of forks has done once for all that are forked from it: everything imported, and the command line built."""

import contextlib
import gc
import io

import tests.faults.driver  # noqa: F401
from glassformer.cli import verbs

app = verbs.make_app()
verbs.make_app = lambda: app
with contextlib.redirect_stdout(io.StringIO()):
    verbs.run_command(["recipes"])  # typer and rich import half of themselves when they are first used
gc.collect()
gc.freeze()
