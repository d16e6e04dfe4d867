"""Modules imported, and a small model run, where the packages of the first argument (with commas between) cannot be imported."""

import importlib
import sys

heavy = set(sys.argv[1].split(","))


class Blocker:
    """Says of these packages that they are not there."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in heavy:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)


sys.meta_path.insert(0, Blocker())
try:
    import rich  # noqa: F401
except ModuleNotFoundError:
    pass
else:
    sys.exit("the blocker lets everything through")

import torch

from glassformer import GPT, ModelConfig, Rows

model = GPT(ModelConfig(family="gpt", vocab_size=5, n_layer=1, n_head=1, n_embd=4))
assert model(Rows.whole(torch.tensor([[1, 2, 3]]))).shape == (1, 3, 5)
failed = []
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")
if failed:
    sys.exit("\n".join(failed))
