"""Everything that needs no torch, in a process that must not import it: help, tables, mistakes in a recipe."""

import contextlib
import io
import sys

from glassformer.cli.verbs import groups, run_command
from glassformer.errors import UserError

asked = [["--help"], ["--version"], ["recipes"], ["data", "check", "--help"], ["reproduce"]]
asked += [["info", "--settings"]]
asked += [[verb, "--help"] for verbs in groups().values() for verb in verbs]
for arguments in asked:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run_command(arguments)
    assert out.getvalue().strip(), arguments
    heavy = [name for name in ("torch", "numpy", "tokenizers", "matplotlib", "sacrebleu") if name in sys.modules]
    if heavy:
        sys.exit(f"{arguments} imported {heavy}")
for arguments in (
    ["train", "nothing.toml"],
    ["train", "dates", "train.stepz=3"],
    ["plan", "nothing"],
    ["reproduce", "nothing"],
):
    try:
        run_command(arguments)
    except UserError:
        assert "torch" not in sys.modules, arguments
