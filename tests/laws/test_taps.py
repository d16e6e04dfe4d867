"""Every activation worth seeing has a stable name; listening and interfering leave no trace; not listening is free."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.nn import Rows, record, replace, tap_names
from glassformer.nn.taps import Tapped
from tests.commands import call_program
from tests.laws.zoo import FAMILIES, VARIANTS, Model, gap, run, small

attention_module = importlib.import_module("glassformer.nn.attention")

ATTENTION = ("q", "k", "v", "scores", "weights", "heads", "out")
MLP = ("hidden", "activation", "out")
SOURCE, TARGET = Rows.from_lists([[1, 2, 3], [4]]), Rows.from_lists([[5, 6], [7, 8, 9, 10]])


def block_names(path: str, *, cross: bool) -> set[str]:
    names = {f"{path}.{n}" for n in ("in", "after_attention", "residual")}
    names |= {f"{path}.attention.{n}" for n in ATTENTION} | {f"{path}.mlp.{n}" for n in MLP}
    return names | ({f"{path}.after_cross"} | {f"{path}.cross.{n}" for n in ATTENTION} if cross else set())


NAMES: dict[str, set[str]] = {
    "transformer": {"source_embeddings", "target_embeddings", "logits"}.union(
        *(block_names(f"encoder.{i}", cross=False) for i in range(2)),
        *(block_names(f"decoder.{i}", cross=True) for i in range(2)),
    ),
    "gpt": {"embeddings", "logits"}.union(*(block_names(f"decoder.{i}", cross=False) for i in range(2))),
    "bert": {"embeddings", "logits"}.union(*(block_names(f"encoder.{i}", cross=False) for i in range(2))),
}


def installed(model: Model) -> int:
    return sum(len(m.hooks) for m in model.modules() if isinstance(m, Tapped))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_names_are_a_contract(family: str) -> None:
    """Written out here, so that renaming one is a decision; and each name listed is really visited by a run."""
    model = small(family)
    assert set(tap_names(model)) == NAMES[family]
    with record(model, "*") as seen:
        run(model, SOURCE, TARGET)
    assert set(seen) == NAMES[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_replacing_by_itself_changes_nothing_and_by_zero_something(family: str) -> None:
    """At every single tap: so each is on the path to the logits, and not a copy beside it."""
    model = small(family)
    with torch.no_grad():
        before = run(model, SOURCE, TARGET)
        for name in tap_names(model):
            with replace(model, name, lambda x: x):
                assert gap([before], [run(model, SOURCE, TARGET)]) <= 1e-12
            with replace(model, name, lambda x: x * 0.5):
                assert gap([before], [run(model, SOURCE, TARGET)]) > 1e-8, name  # rounding moves nothing above 1e-12


def test_what_is_recorded_is_what_is_there() -> None:
    """The residual stream adds up: after = before + what the part wrote; heads = weights times values; out is linear."""
    model = small("gpt", n_kv_head=2)
    with record(model, "*") as seen:
        logits = model(TARGET)
    assert torch.equal(seen["logits"], logits)
    block = "decoder.1"
    assert torch.equal(seen[f"{block}.in"], seen["decoder.0.residual"])
    torch.testing.assert_close(seen[f"{block}.after_attention"], seen[f"{block}.in"] + seen[f"{block}.attention.out"])
    torch.testing.assert_close(seen[f"{block}.residual"], seen[f"{block}.after_attention"] + seen[f"{block}.mlp.out"])
    values = seen[f"{block}.attention.v"].repeat_interleave(3, 1)
    torch.testing.assert_close(seen[f"{block}.attention.heads"], seen[f"{block}.attention.weights"] @ values)
    joined = seen[f"{block}.attention.heads"].transpose(1, 2).flatten(2)
    torch.testing.assert_close(seen[f"{block}.attention.out"], model.decoder.layers[1].attention.out(joined))
    assert not seen["logits"].requires_grad


def test_the_latest_run_is_kept() -> None:
    model = small("gpt")
    with record(model, "logits") as seen:
        model(SOURCE)
        second = model(TARGET)
    assert torch.equal(seen["logits"], second)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("part", ["attention", "cross"])
def test_ablating_a_head_is_zeroing_its_slice_of_the_output(family: str, part: str) -> None:
    """Caught: heads tapped after they are joined, or joined in another order than `out` reads them."""
    if part == "cross" and family != "transformer":
        return
    model = small(family, n_kv_head=2, value_size=5)
    stack = "encoder" if family == "bert" else "decoder"
    module = getattr(getattr(model, stack).layers[1], part)
    for head in range(6):

        def without(heads: Tensor, head: int = head) -> Tensor:
            heads = heads.clone()
            heads[:, head] = 0
            return heads

        with torch.no_grad():
            with replace(model, f"{stack}.1.{part}.heads", without):
                ablated = run(model, SOURCE, TARGET)
            kept = module.out.weight.clone()
            module.out.weight[:, head * 5 : head * 5 + 5] = 0
            zeroed = run(model, SOURCE, TARGET)
            module.out.weight.copy_(kept)
        assert gap([ablated], [zeroed]) <= 1e-12


def test_blocks_may_be_nested() -> None:
    """The same change twice, one inside the other, acts twice inside and once between; nothing stays behind.

    Caught: a block that removes the other's hook because both are the same function."""
    model = small("gpt")

    def double(x: Tensor) -> Tensor:
        return 2 * x

    with torch.no_grad(), record(model, "logits") as before:
        once = model(TARGET)
        with replace(model, "logits", double):
            assert torch.equal(model(TARGET), 2 * once)
            with replace(model, "logits", double), record(model, "logits") as after:
                assert torch.equal(model(TARGET), 4 * once)
                assert torch.equal(after["logits"], 4 * once)
                assert torch.equal(before["logits"], once)
            assert torch.equal(model(TARGET), 2 * once)
        assert torch.equal(model(TARGET), once)
    assert installed(model) == 0


def broken_change(x: Tensor) -> Tensor:
    raise ArithmeticError("the change went wrong")


@pytest.mark.parametrize("enter", [lambda m: replace(m, "*.out", broken_change), lambda m: record(m, "*")])
def test_an_exception_leaves_no_hook_behind(enter: Callable[[Model], Any]) -> None:
    model = small("gpt")
    before = model(TARGET)

    def fail() -> None:
        with enter(model):
            model(TARGET)
            raise ArithmeticError("after the run")

    with pytest.raises(ArithmeticError):
        fail()
    assert installed(model) == 0
    assert torch.equal(model(TARGET), before)


def test_a_misspelt_name_is_an_error() -> None:
    model = small("gpt")
    for enter in (lambda: record(model, "logits", "decoder.9.*"), lambda: replace(model, "decoder.0.wieghts", abs)):
        with pytest.raises(KeyError, match="matches no activation"), enter():
            pass
    assert installed(model) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_only_who_is_watched_takes_the_explicit_path(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: no hook, no softmax written out, and one fused call an attention; with a hook on one attention's
    weights, one of them is explicit. Listening elsewhere (queries, the residual stream) leaves all of them fused."""
    calls = {"explicit": 0, "fused": 0}
    softmax, fused = attention_module.masked_softmax, attention_module.F.scaled_dot_product_attention

    def counting(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def counted(*args: Any, **options: Any) -> Tensor:
            calls[name] += 1
            return function(*args, **options)

        return counted

    monkeypatch.setattr(attention_module, "masked_softmax", counting("explicit", softmax))
    monkeypatch.setattr(attention_module.F, "scaled_dot_product_attention", counting("fused", fused))
    model = small(family)
    stack = "encoder" if family == "bert" else "decoder"
    attentions = sum(name.endswith(".weights") for name in tap_names(model))

    def count(*patterns: str) -> tuple[int, int]:
        calls.update(explicit=0, fused=0)
        if patterns:
            with record(model, *patterns):
                run(model, SOURCE, TARGET)
        else:
            run(model, SOURCE, TARGET)
        return calls["explicit"], calls["fused"]

    assert count() == (0, attentions)
    assert count("*.q", "*.heads", "*.residual") == (0, attentions)
    assert count(f"{stack}.1.attention.weights") == (1, attentions - 1)
    assert count("*.scores") == (attentions, 0)
    assert count() == (0, attentions)


def operations(model: Model) -> tuple[list[str], Tensor]:
    """Every operation of the compiler's graph of a pass through the model, and its logits; the graph must be one, without
    a break."""
    found: list[str] = []

    def backend(graph: torch.fx.GraphModule, example: Any) -> Callable[..., Any]:
        assert not found, "the compiler should see the model as one graph"
        found.extend(f"{node.op} {node.target} {node.args}" for node in graph.graph.nodes)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(lambda tokens: run(model, Rows.whole(tokens), Rows.whole(tokens)), backend=backend)
    logits = compiled(TARGET.tokens)
    return found, logits.detach()


COMPILED: dict[str, dict[str, Any]] = {"transformer": {}, "gpt": VARIANTS["modern"], "bert": {}}


def compiled_with_and_without_taps() -> dict[str, list[bool]]:
    """For each family: is attention fused in the graph; is the graph the same with the taps cut out; is it the same with
    taps that copy; does it compute what the eager model computes?"""
    found = {}
    for family, changes in COMPILED.items():
        model = small(family, **changes)
        with_taps, logits = operations(model)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tapped, "tap", lambda self, name, value: value)
            without, _ = operations(model)
            patch.setattr(Tapped, "tap", lambda self, name, value: value.clone())
            copying, _ = operations(model)
        fused = any("scaled_dot_product_attention" in operation for operation in with_taps)
        whole = Rows.whole(TARGET.tokens)
        same = gap([logits], [run(model, whole, whole)]) <= 1e-12
        found[family] = [fused, without == with_taps, copying == with_taps, same]
    return found


@pytest.mark.slow
def test_a_tap_no_one_listens_to_is_no_operation() -> None:
    """The graph the compiler gets is, operation by operation, that of the model with its taps cut out. A tap that did as
    little as copy would be seen. And the compiled model is the eager one.

    In a process of its own: the shape checks of this one would break the graph."""
    done = call_program("taps_compiled")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {family: [True, True, False, True] for family in FAMILIES}
