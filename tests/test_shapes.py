"""The shapes written in signatures hold while tests run: what `tests/shapes.py` puts above the package's functions."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.nn import block
from tests.shapes import FIRST, PACKAGES, THEN_EVERY, checked, modules_with_shapes

Ids = Int[Tensor, " n"]


@checked
def joined(one: Float[Tensor, "n m"], other: Float[Tensor, "n k"], more: int = 0) -> Float[Tensor, "n m+k"]:
    return torch.cat([one, other] + [other] * more, 1)


@checked
def doubled(ids: Ids) -> Ids:
    return torch.cat([ids, ids])


def test_a_shape_that_does_not_hold_is_an_error(as_in_production: None) -> None:
    """Between arguments, and from them to what is returned; the next call begins anew; by another name, too. Broken variants:
    no shapes in common for one call (`with decorate("context")`), names of shapes not followed."""
    import jaxtyping

    one = torch.ones
    assert joined(one(2, 3), one(2, 4), more=1).shape == (2, 11)  # unchecked, as the fixture says
    jaxtyping.config.update("jaxtyping_disable", False)
    assert joined(one(2, 3), one(2, 4)).shape == (2, 7) and joined(one(5, 3), one(5, 1)).shape == (5, 4)
    for wrong in (
        (one(2, 3), one(3, 4)),
        (one(2, 3), one(2, 4), 1),
        (one(2), one(2, 4)),
        (one(2, 3).long(), one(2, 4)),
    ):
        with pytest.raises(Exception, match="violates type hint"):
            joined(*wrong)
    with pytest.raises(Exception, match="violates type hint"):
        doubled(torch.ones(3, dtype=torch.long))


def test_later_calls_are_checked_now_and_then() -> None:
    """Broken variant: after the first ones none."""
    one = torch.ones
    for _call in range(FIRST):
        joined(one(2, 3), one(2, 4))
    found = 0
    for _call in range(10 * THEN_EVERY):
        try:
            joined(one(2).long()[None], one(1, 4))
        except Exception:
            found += 1
    assert found == 10


def test_every_function_that_writes_shapes_is_checked() -> None:
    """By the source: a function of a module, or a method, whose signature names a shape is not the function as written."""
    assert hasattr(block.Block.forward, "__wrapped__") and not hasattr(block.share_parameters, "__wrapped__")
    seen = 0
    for name in modules_with_shapes():
        if name.split(".")[1] not in ("nn", "models", "decode"):
            continue
        module = importlib.import_module(name)
        path = Path(PACKAGES[0].parent, *name.split(".")).with_suffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for owner, body in [(module, tree.body)] + [
            (getattr(module, node.name), node.body) for node in tree.body if isinstance(node, ast.ClassDef)
        ]:
            for node in body:
                if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                    written = [a.annotation for a in (*node.args.args, *node.args.kwonlyargs)] + [node.returns]
                    if any(a is not None and "[Tensor, '" in ast.unparse(a) for a in written):
                        assert hasattr(getattr(owner, node.name), "__wrapped__"), f"{name}.{node.name}"
                        seen += 1
    assert seen > 100
