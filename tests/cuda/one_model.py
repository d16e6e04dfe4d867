"""On a CUDA device, too, what answers by default is the model that people look at:  python3 tests/cuda/one_model.py

The changes of tests/laws/test_one_model.py, each made to a small model there; auto must write what plain writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from tests.laws.test_decoding_cache import same
from tests.laws.test_one_model import CHANGES, decoded, same_ids
from tests.laws.zoo import small


def main() -> None:
    """Every change, both families, greedy and beam."""
    wrong = 0
    model = small("transformer", seed=1).cuda()
    model.handed_out = False
    before = decoded(model, "auto", {"beam": 1})
    model.handed_out = True  # somebody looks at a model that has answered before
    wrong += not same(decoded(model, "auto", {"beam": 1}), before)
    for family in ("transformer", "gpt"):
        for name, change in CHANGES.items():
            for search in ({"beam": 1}, {"beam": 3, "n_best": 3}):
                model = small(family, seed=1, tie_output=False).cuda()
                before = decoded(model, "auto", search)
                model.undo = lambda: None
                with torch.no_grad():
                    change(model)
                    model.cuda()
                try:
                    plain, auto = decoded(model, "plain", search), decoded(model, "auto", search)
                finally:
                    model.undo()
                right = same(auto, plain) and not same_ids(plain, before)
                wrong += not right
                print(f"{'ok' if right else 'WRONG':6}{family:12}{search['beam']}  {name}", flush=True)
    print(f"{wrong} of {4 * len(CHANGES) + 1} wrong")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
