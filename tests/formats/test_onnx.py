"""Our models as ONNX graphs in onnxruntime: the same scores, token by token and all at once, for every kind of layer; and
engine=onnx, which searches over them as over the model.

Broken variants these catch: a past that is not joined, positions counted over padding, a window off by one, beams that ask
another sentence's source, a context that is not cut at the block's edge.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode import TokenConstraints, translate_batch
from glassformer.errors import ConfigError
from glassformer.formats.onnx import spec as conversion
from glassformer.formats.onnx.engine import OnnxNet, session
from glassformer.models import build_model
from glassformer.nn.rows import Rows

SMALL: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 16, "vocab_size": 37, "block_size": 24, "n_hidden": 40}
WRITERS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm, untied, no biases": {"pre_norm": False, "final_norm": False, "tie_output": False, "bias": False},
    "alibi, rms, geglu, qk-norm": {"positions": "alibi", "norm": "rms", "activation": "geglu", "qk_norm": True},
    "rotary, shared keys, window, two vocabularies": {
        "positions": "rotary",
        "n_kv_head": 2,
        "window": 4,
        "activation": "silu",
        "source_vocab_size": 29,
        "share_source_target": False,
        "output_bias": True,
    },
    "gpt, learned": {"family": "gpt", "positions": "learned"},
    "gpt, llama": {
        "family": "gpt",
        "positions": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "bias": False,
        "n_kv_head": 2,
        "qk_norm": True,
    },
    "gpt, alibi, window, narrow values": {
        "family": "gpt",
        "positions": "alibi",
        "window": 3,
        "activation": "relu2",
        "value_size": 6,
    },
    "gpt, pruned": {
        "family": "gpt",
        "positions": "alibi",
        "n_kv_head": 2,
        "pruned_heads": ("decoder.0.attention:0", "decoder.1.attention:3"),
    },
    "gpt, classifier": {"family": "gpt", "head": "classify", "n_label": 3},
    "batch norm": {"norm": "batch"},
}
READERS: dict[str, dict[str, Any]] = {
    "bert": {
        "pre_norm": False,
        "final_norm": False,
        "positions": "learned",
        "embedding_norm": True,
        "activation": "gelu",
        "n_token_type": 2,
    },
    "bert, mean": {"head": "classify", "n_label": 3, "pool": "mean"},
    "bert, tags": {"head": "tag", "n_label": 3, "positions": "rotary"},
}


def made(settings: dict[str, Any], size: float = 0.3) -> Any:
    torch.manual_seed(0)
    model = build_model(ModelConfig(**(SMALL | settings))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return model


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5 * max(1.0, float(wanted.abs().max())), rtol=0)


@pytest.mark.parametrize("case", WRITERS)
@torch.no_grad()
def test_the_same_scores_step_by_step(case: str, tmp_path: Path) -> None:
    """A prompt at once, then tokens one by one, rows changing places on the way: as the model says all at once."""
    model = made(WRITERS[case])
    conversion.save(model, tmp_path, n_positions=32)
    net, tokens = OnnxNet(tmp_path, model.config), torch.randint(5, 29, (4, 7))
    if model.config.family == "transformer":
        source = Rows.from_lists([[5, 6, 7, 2], [8, 2]])
        state = net.start(source, beams=2)
        twice = Rows(
            *(t.repeat_interleave(2, 0) for t in (source.tokens, source.segments, source.positions)), source.layout
        )
        wanted = model(twice, Rows.whole(tokens))
    else:
        state, wanted = net.start(4), model(Rows.whole(tokens))
    parts = [net.step(tokens[:, :3], state), net.step(tokens[:, 3:4], state)]
    order = torch.tensor([1, 0, 3, 2])
    state.reorder(order)
    parts.append(net.step(tokens[order][:, 4:], state)[order])
    close(torch.cat(parts, 1), wanted)


@pytest.mark.parametrize("case", [case for case in WRITERS if case.startswith("gpt")])
@torch.no_grad()
def test_prompts_of_different_lengths(case: str, tmp_path: Path) -> None:
    """Padding on the right, as we pad, and on the left, as others do, changes nothing."""
    model, prompts = made(WRITERS[case]), [[5, 6, 7, 8, 9], [7, 8]]
    conversion.save(model, tmp_path, n_positions=32)
    net = OnnxNet(tmp_path, model.config)
    wanted = torch.stack([model(Rows.whole(torch.tensor([[*p, 11]])))[0, -1] for p in prompts])
    state, last = net.start(2), torch.tensor([[11], [11]])
    net.step(torch.tensor([[5, 6, 7, 8, 9], [7, 8, 0, 0, 0]]), state, [5, 2])
    close(net.step(last, state)[:, -1], wanted)
    left, mask = torch.tensor([[5, 6, 7, 8, 9, 11], [0, 0, 0, 7, 8, 11]]), torch.tensor([[1] * 6, [0, 0, 0, 1, 1, 1]])
    given = {"input_ids": left.numpy(), "attention_mask": mask.numpy()} | net.start(2).past
    close(torch.from_numpy(net.decoder.run(["logits"], given)[0])[:, -1], wanted)


@pytest.mark.parametrize("case", READERS)
@torch.no_grad()
def test_a_bert(case: str, tmp_path: Path) -> None:
    model, rows = made({"family": "bert"} | READERS[case]), Rows.from_lists([[5, 6, 7, 8], [9, 10]])
    conversion.save(model, tmp_path, n_positions=32)
    given = {"input_ids": rows.tokens.numpy(), "attention_mask": rows.real.long().numpy()}
    found = torch.from_numpy(session(tmp_path / "model.onnx", 1).run(["logits"], given)[0])
    wanted = model(rows)
    close(found[0], wanted[0])
    close(found[1, :2], wanted[1, :2])


HOW = {
    "greedy": DecodeConfig(beam=1),
    "beam": DecodeConfig(beam=4, n_best=3, no_repeat_ngram=2),
    "drawn": DecodeConfig(temperature=1.0, top_k=9, num_samples=2, seed=3),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "case", ["pre-norm", "rotary, shared keys, window, two vocabularies", "gpt, learned", "gpt, llama"]
)
def test_the_engine_answers_as_the_model_does(case: str, how: str) -> None:
    """Token for token, also past the block's edge, with a beginning that is asked for and a word that is banned."""
    model = made(WRITERS[case], 0.15)
    texts = [[5, 6, 7, 8, 2], [9, 2], [11, 12, 13, 14, 15, 16, 17, 2], [6, 6, 2]]
    asked = TokenConstraints(prefix=(7,), banned=((9,),))
    config = replace(HOW[how], batch_size=3, max_new_tokens=30 if model.config.family == "gpt" else 12)
    plain, found = (
        translate_batch(model, texts, replace(config, engine=engine), constraints=asked) for engine in ("plain", "onnx")
    )
    assert [[h.ids for h in own] for own in found] == [[h.ids for h in own] for own in plain]
    for own, other in zip(found, plain, strict=True):
        assert [h.score for h in own] == pytest.approx([h.score for h in other], abs=1e-4)


def test_the_graphs_follow_the_weights_and_the_length() -> None:
    model, how = made(WRITERS["gpt, llama"]), DecodeConfig(beam=1, max_new_tokens=4, engine="onnx")
    first = translate_batch(model, [[5, 6]], how)[0][0].ids
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    plain = replace(how, engine="plain")
    assert translate_batch(model, [[5, 6]], how)[0][0].ids == translate_batch(model, [[5, 6]], plain)[0][0].ids != first
    longer = [[5] * 600]
    assert translate_batch(model, longer, how)[0][0].ids == translate_batch(model, longer, plain)[0][0].ids


def test_what_it_cannot_do_is_said() -> None:
    gone = tuple(f"decoder.0.attention:{i}" for i in range(4))
    model = made({"family": "gpt", "pruned_heads": gone})
    with pytest.raises(ConfigError, match=r"engine=onnx has nothing for an attention that has lost all its heads"):
        translate_batch(model, [[5]], DecodeConfig(beam=1, engine="onnx"))
