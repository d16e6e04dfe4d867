"""engine=int8 and ctranslate2 take the same requests and give the same results. In float32 the n-best lists are those of our
own search; what CTranslate2 cannot do is refused in a sentence."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.generate import stream, translate_batch
from glassformer.decode.request import SpecialTokens, TokenConstraints
from glassformer.errors import ConfigError
from glassformer.formats.ctranslate2 import engine
from glassformer.models import build_model
from tests.counts import count

FREE = SpecialTokens(
    bos=1, eos=2, unknown=3, never=()
)  # everything may be written: a softmax is then the same everywhere
KINDS: list[dict[str, Any]] = [
    {"family": "transformer"},
    {"family": "gpt", "positions": "learned", "n_kv_head": 2},
    {"family": "transformer", "pre_norm": False, "positions": "rotary", "activation": "swiglu"},
    {"family": "gpt", "positions": "alibi", "norm": "rms"},
]


def lively(seed: int) -> tuple[Any, list[list[int]]]:
    """A small model that likes to end now and then, and texts for it."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    config = ModelConfig(
        vocab_size=40,
        n_layer=2,
        n_head=4,
        n_embd=32,
        n_hidden=48,
        block_size=64,
        dropout=0.0,
        tie_output=False,
        **KINDS[seed % len(KINDS)],
    )
    model = build_model(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
        model.output_weight[2] += 0.9 * model.output_weight[draw.randrange(5, 40)]
    texts = [[1, *(draw.randrange(5, 40) for _ in range(draw.randrange(1, 9))), 2] for _ in range(5)]
    return model, texts


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.conversion, "compute_type", lambda: "float32")


@pytest.mark.parametrize("seed", range(count(fast=12, soak=200)))
def test_n_best_lists_are_those_of_our_own_search(seed: int) -> None:
    """Caught: an EOS not counted in the length; a limit that counts otherwise; scores left under CTranslate2's own rule; a
    batch whose longest limit is everyone's; prompts of different lengths in one call."""
    model, texts = lively(seed)
    draw = random.Random(seed)
    beam = draw.choice([1, 2, 4])
    how = DecodeConfig(
        beam=beam, n_best=draw.randrange(1, beam + 1), length_rule="power", alpha=draw.choice([0.0, 0.6, 1.0]),
        stop_rule="first-k", allow_unknown=True, batch_size=3, engine="plain",
    )  # fmt: skip
    limits = [(0, draw.choice([14, 30])) for _ in texts]
    # Greedy answers also with a beginning that is asked for.
    wishes = TokenConstraints(prefix=(7, 9)) if beam == 1 else TokenConstraints()
    plain, ours = (
        translate_batch(model, texts, replace(how, engine=e), constraints=wishes, special=FREE, limits=limits)
        for e in ("plain", "ctranslate2")
    )
    compared = 0  # texts whose beam did not come to its limit
    for wanted, got in zip(plain, ours, strict=True):
        if beam > 1 and any(h.ended == "length" for h in [*wanted, *got]):
            continue  # CTranslate2 may rank what was cut before what ended
        compared += 1
        assert [(h.ids, h.ended) for h in got] == [(h.ids, h.ended) for h in wanted]
        for one, other in zip(got, wanted, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-4)
    assert compared or beam > 1


def test_texts_and_log_probabilities_come_as_from_any_engine(in_float32: None) -> None:
    """What nobody looks at is not computed; what is looked at adds up."""
    model, texts = lively(0)
    found = translate_batch(
        model,
        [*texts, []],
        DecodeConfig(beam=2, engine="int8", max_new_tokens=9),
        text=lambda ids: " ".join(map(str, ids)),
    )
    assert found[-1][0].ids == []
    for best, *_ in found[:-1]:
        assert best.text == " ".join(map(str, best.ids))
        assert not set(best.ids) & {0, 1, 3, 4}
        assert len(best.token_logprobs) == len(best.ids) + (best.ended == "eos")
        assert best.logprob == pytest.approx(sum(best.token_logprobs))


def test_weights_that_change_are_seen(in_float32: None) -> None:
    """Caught: an engine that answers with the weights it was made with."""
    model, texts = lively(0)
    how = DecodeConfig(beam=1, engine="int8", max_new_tokens=9)
    before = translate_batch(model, texts, how)
    with torch.no_grad():
        model.output_weight.data.mul_(-1)
    after, plain = translate_batch(model, texts, how), translate_batch(model, texts, replace(how, engine="plain"))
    assert [h[0].ids for h in before] != [h[0].ids for h in after]
    assert [h[0].ids for h in after] == [h[0].ids for h in plain]


def test_a_stop_string_ends_a_greedy_text(in_float32: None) -> None:
    model, texts = lively(2)
    how = DecodeConfig(beam=1, engine="plain", max_new_tokens=12)
    words = lambda ids: "".join(f"<{i}>" for i in ids)  # noqa: E731
    plain = translate_batch(model, texts, how, text=words)
    stop = words([plain[0][0].ids[1]])
    wishes = TokenConstraints(stops=(stop,))
    answers = [
        translate_batch(model, texts, replace(how, engine=e), constraints=wishes, text=words) for e in ("plain", "int8")
    ]  # type: ignore[arg-type]
    assert [(h[0].ids, h[0].text, h[0].ended) for h in answers[0]] == [
        (h[0].ids, h[0].text, h[0].ended) for h in answers[1]
    ]
    assert answers[1][0][0].ended == "stop"


@pytest.mark.parametrize(
    ("settings", "wishes", "said"),
    [
        ({"temperature": 1.0}, {}, "draws"),
        ({"repetition_penalty": 1.2}, {}, "repetition"),
        ({"stop_rule": "exact"}, {}, "first-k"),
        ({}, {"terms": (((7,),),)}, "glossary"),
        ({}, {"stops": ("x",)}, "stop strings"),
    ],
)
def test_what_it_cannot_do_is_refused(settings: dict[str, Any], wishes: dict[str, Any], said: str) -> None:
    model, texts = lively(0)
    with pytest.raises(ConfigError, match=f"CTranslate2.*{said}.*engine=auto"):
        translate_batch(
            model,
            texts,
            DecodeConfig(engine="int8", **settings),
            constraints=TokenConstraints(**wishes),
            text=lambda ids: "",
        )


def test_a_trace_and_a_part_it_has_no_word_for_are_refused() -> None:
    model, texts = lively(0)
    with pytest.raises(ConfigError, match="trace"):
        translate_batch(model, texts, DecodeConfig(engine="int8"), trace=True)
    odd = build_model(ModelConfig(vocab_size=40, n_layer=1, n_head=2, n_embd=16, activation="relu2")).eval()
    with pytest.raises(ConfigError, match="activation=relu2"):
        translate_batch(odd, texts, DecodeConfig(engine="int8"))


def test_it_streams_what_it_answers(in_float32: None) -> None:
    model, texts = lively(0)
    how = DecodeConfig(beam=1, engine="int8", max_new_tokens=9)
    words = lambda ids: "".join(f"<{i}>" for i in ids)  # noqa: E731
    assert (
        "".join(piece.text for piece in stream(model, texts[0], how, text=words))
        == translate_batch(model, texts[:1], how, text=words)[0][0].text
    )
