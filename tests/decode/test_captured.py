"""The driver that captures its steps, without a device: its steps run as they are, and it writes what the plain model writes.
Requests join and leave while it runs ahead of what it knows; memory and graphs are used again by the next call."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from glassformer.accel.decoding.block import decoding_copy
from glassformer.accel.decoding.operations import TorchOps
from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode import captured, generate
from glassformer.decode.generate import translate_batch
from glassformer.decode.request import SpecialTokens, TokenConstraints
from glassformer.models import build_model
from tests.counts import count

SPECIAL = SpecialTokens(bos=1, eos=2, unknown=3, never=(0,))


@pytest.fixture
def by_capture(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """`engine=auto` goes through the captured driver, on torch's own operations."""
    copies: dict[int, Any] = {}

    def copied(model: Any, config: DecodeConfig, rows: int) -> Any:
        if id(model) not in copies:
            copies[id(model)] = decoding_copy(model, TorchOps())
        return copies[id(model)]

    def make(model: Any, config: DecodeConfig, *given: Any, **named: Any) -> Any:
        kind = captured.Driver if config.engine == "plain" else captured.CapturedDriver
        return kind(model, config, *given, **named)

    monkeypatch.setattr(captured, "decoding_model", copied)
    monkeypatch.setattr(generate, "make_driver", make)
    return copies


def lively(trial: int) -> tuple[Any, list[list[int]]]:
    """A model that ends its texts at different lengths, and texts for it."""
    torch.manual_seed(trial)
    draw = random.Random(trial)
    config = ModelConfig(
        family=("gpt", "transformer", "transformer")[trial % 3], vocab_size=120, n_layer=2, n_head=2, n_embd=16, n_hidden=32,
        block_size=64, dropout=0.0, pre_norm=trial % 2 == 0, norm=draw.choice(["layer", "rms"]), n_kv_head=draw.choice([1, 2]),
        positions=draw.choice(["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]), tie_output=False,
    )  # fmt: skip
    model = build_model(config).eval()
    for p in model.parameters():
        p.data.mul_(2.5)
    model.output_weight.data[2] = model.output_weight.data[draw.randrange(5, 120)] * 0.98
    return model, [
        [draw.randrange(5, 120) for _ in range(draw.randrange(1, 9))] for _ in range(draw.choice([1, 7, 12]))
    ]


def assert_same(plain: Any, ours: Any) -> None:
    for wanted, got in zip(plain, ours, strict=True):
        assert [(h.ids, h.ended) for h in got] == [(h.ids, h.ended) for h in wanted]
        assert [h.score for h in got] == pytest.approx([h.score for h in wanted], abs=1e-4)
        for one, other in zip(got, wanted, strict=True):
            assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-4)


@pytest.mark.parametrize("trial", range(count(fast=14, soak=300)))
def test_captured_steps_write_what_the_plain_model_writes(trial: int, by_capture: dict[int, Any]) -> None:
    """Caught: a slot that is over and goes on writing into its answer; flags of one numbering of the slots read under another;
    a second call on memory that the first one left as it was."""
    model, texts = lively(trial)
    draw = random.Random(trial)
    beam, most = (1, 4, 2, 1, 3, 5)[trial % 6], draw.choice([2, 5, 9])
    how: dict[str, Any] = {
        "beam": beam, "n_best": draw.randrange(1, beam + 1), "batch_size": draw.choice([2, 3, 16]), "max_new_tokens": most,
        "min_new_tokens": draw.choice([0, min(2, most)]), "alpha": draw.choice([0.0, 0.6, 1.0, -1.0, 2.0]),
        "length_rule": draw.choice(["gnmt", "power", "power-no-eos"]), "stop_rule": draw.choice(["exact", "first-k"]),
    }  # fmt: skip
    if trial % 7 == 3:
        how = {
            "temperature": 1.0,
            "num_samples": 2,
            "top_p": 0.9,
            "max_new_tokens": most,
            "batch_size": how["batch_size"],
        }
    plain = translate_batch(model, texts, DecodeConfig(engine="plain", **how), special=SPECIAL)
    for _ in range(2):
        assert_same(plain, translate_batch(model, texts, DecodeConfig(**how), special=SPECIAL))
    assert captured.runner_pool(by_capture[id(model)]).free


@pytest.mark.slow
@pytest.mark.parametrize("trial", [1, 3])
def test_memory_of_a_larger_call_serves_a_smaller_one(trial: int, by_capture: dict[int, Any]) -> None:
    """Caught: sizes of the call taken for those of the memory; what the larger call left there; a runner for each size."""
    model, _ = lively(trial)
    draw = random.Random(trial)
    texts = [[draw.randrange(5, 120) for _ in range(n)] for n in (20, 3, 11, 7, 1, 18, 2, 5)]
    how: dict[str, Any] = {"beam": 3, "max_ratio": 1.5, "max_extra": 3}
    for some in (texts, texts[1:2], texts[3:], texts[4:5], texts):
        plain, ours = (
            translate_batch(model, some, DecodeConfig(engine=engine, **how), special=SPECIAL)
            for engine in ("plain", "auto")
        )
        assert_same(plain, ours)
    assert len(captured.runner_pool(by_capture[id(model)]).free) == 1


def test_what_a_graph_cannot_do_is_done_among_others(by_capture: dict[int, Any]) -> None:
    """Requests with constraints come after requests without. Caught: an answer that was sent for and is collected again."""
    model, _ = lively(1)
    draw = random.Random(1)
    texts = [[draw.randrange(5, 120) for _ in range(9 - i // 4)] for i in range(20)]  # the longest go first
    wishes = [TokenConstraints(prefix=(7, 8)) if i >= 12 else TokenConstraints() for i in range(20)]
    how: dict[str, Any] = {"beam": 2, "batch_size": 8, "max_new_tokens": 12}
    plain, ours = (
        translate_batch(model, texts, DecodeConfig(engine=engine, **how), constraints=wishes, special=SPECIAL)
        for engine in ("plain", "auto")
    )
    assert_same(plain, ours)
    assert all(h[0].ids[:2] == [7, 8] for h in ours[12:])


def test_wide_buckets_change_no_answer(by_capture: dict[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where attention reads only what is there, buckets are powers of two. Caught: columns behind a slot's own that are seen."""
    monkeypatch.setattr(TorchOps, "skips_empty_columns", lambda *given, **named: True)
    for trial in (1, 5):
        model, texts = lively(trial)
        how: dict[str, Any] = {"beam": 3, "max_new_tokens": 12, "batch_size": 4}
        plain, ours = (
            translate_batch(model, texts, DecodeConfig(engine=engine, **how), special=SPECIAL)
            for engine in ("plain", "auto")
        )
        assert_same(plain, ours)


def test_buckets_are_few_and_wide_enough() -> None:
    assert len({captured.slot_bucket(number) for number in range(1, 2049)}) < 20
    for number in range(1, 3000):
        assert captured.slot_bucket(number) >= number
        assert number <= captured.next_power_of_2(number) < 2 * max(16, number)
        assert number <= captured.width_bucket(number) <= max(8, 1.25 * number + 8)
    assert len({captured.width_bucket(number) for number in range(1, 2000)}) < 70
