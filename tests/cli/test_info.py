"""What a model costs: the accounting beside the built model, and beside torch's own counting of FLOPs."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from glassformer.cli.info import find_recipe, info
from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models import PRESETS, build_model, preset
from glassformer.models.costs import ParameterTensor, costs, keys_seen, parts
from glassformer.nn import Rows, record, self_mask
from glassformer.text.tokenizer import Tokenizer
from tests.commands import call
from tests.laws.zoo import FAMILIES, SMALL, VARIANTS, VOCABULARY, run

TEXTS = ["der Hund sieht die Katze", "die Katze\tsieht 我们", "Hund und Hund"]
WHOLE: list[tuple[str, dict[str, Any]]] = [
    *((family, VARIANTS["modern"] | {"window": 3}) for family in FAMILIES),
    ("transformer", {"n_encoder_layer": 1, "n_encoder_hidden": 12, "value_size": 5, "share_layers": True}),
    ("transformer", {"source_vocab_size": VOCABULARY + 3, "share_source_target": False, "tie_output": False}),
    ("bert", {"head": "classify", "n_label": 5, "n_token_type": 2}),
]
"""What the accounts take apart: stacks, sides, tables, heads, layers that are one, keys that are shared or hidden."""


def built(config: ModelConfig) -> tuple[Any, dict[str, tuple[tuple[int, ...], int, int]]]:
    """The model on the meta device, and for each part: the weight's shape, the bias, and how many layers own one."""
    with torch.device("meta"):
        model = build_model(config)
    found: dict[str, list[Any]] = defaultdict(lambda: [(), 0, 0])
    for name, parameter in model.named_parameters():
        path, _, last = re.sub(r"\.\d+\.", ".*.", name).rpartition(".")
        if last == "weight":
            found[path][0] = tuple(parameter.shape)
            found[path][2] += 1
        elif path == "head":
            found[f"{path}.{last}"] = [tuple(parameter.shape), 0, 1]
        else:
            found[path][1] = parameter.numel()
    return model, {name: (shape, bias, times) for name, (shape, bias, times) in found.items()}


def check_parts(config: ModelConfig, listed: list[ParameterTensor]) -> None:
    """Every name, shape and number. Tables and matrices, and nothing that is not there."""
    model, found = built(config)
    assert {p.name: (p.shape, p.bias, p.copies) for p in listed if p.copies} == found
    assert sum(p.parameters for p in listed) == model.num_params() == costs(config).parameters
    assert costs(config).non_embedding == model.num_params(non_embedding=True)


def test_the_parts_are_the_models() -> None:
    for family, changes in WHOLE:
        config = ModelConfig(**{**SMALL, "family": family, **changes})
        check_parts(config, parts(config))


def test_counting_takes_no_memory_and_draws_nothing() -> None:
    """The largest model that a config can describe. Caught: weights that are drawn before those of the model that is asked for;
    layers that are built one by one."""
    largest = ModelConfig(vocab_size=10**8, n_layer=10**4, n_head=10**4, n_embd=10**6, n_hidden=10**7, block_size=10**9)
    state = torch.get_rng_state()
    assert costs(largest).parameters > 10**16
    assert torch.equal(torch.get_rng_state(), state)


def test_keys_seen_are_those_of_the_mask() -> None:
    for context, window, causal in product((1, 2, 7, 12), (None, 1, 2, 5, 30), (False, True)):
        attention_mask = self_mask(Rows.whole(torch.zeros(1, context, dtype=torch.long)), causal=causal, window=window)
        mask = attention_mask.to_tensor(context, context, torch.device("cpu"))
        seen = float(torch.ones(context, context).sum() if mask is None else mask.sum()) / context
        assert keys_seen(context, causal=causal, window=window) == pytest.approx(seen)


@pytest.mark.parametrize(("family", "changes"), WHOLE)
def test_flops_are_those_torch_counts(family: str, changes: dict[str, Any]) -> None:
    """torch counts the products of a pass through the explicit path, hidden keys included: so the matrices must agree
    exactly, and attention after the hidden keys are put back."""
    config = ModelConfig(**{**SMALL, "family": family, **changes})
    model: Any = build_model(config).eval()
    rows = Rows.whole(torch.randint(0, VOCABULARY, (2, 9)))
    with record(model, "*.weights"), FlopCounterMode(display=False) as counter:
        run(model, rows, rows)
    found = costs(config, 9)
    a_key = 2 * config.n_head * (config.key_size + config.val_size)
    layers = {"gpt": config.n_layer, "bert": config.n_layer, "transformer": config.encoder_layers + 2 * config.n_layer}
    matrices = found.forward_flops - found.attention_flops
    assert counter.get_total_flops() == 2 * 9 * (matrices + layers[family] * a_key * 9)
    assert found.training_flops == 3 * found.forward_flops


def test_attention_is_counted_for_what_is_seen() -> None:
    """One layer, by hand: 4 heads of 8, 10 tokens."""
    small: dict[str, Any] = {"vocab_size": 5, "n_layer": 1, "n_head": 4, "n_embd": 32, "block_size": 10}
    a_key = 2 * 4 * (8 + 8)
    assert costs(ModelConfig(family="bert", **small)).attention_flops == 10 * a_key
    assert costs(ModelConfig(family="gpt", **small)).attention_flops == 5.5 * a_key
    assert costs(ModelConfig(family="gpt", window=1, **small)).attention_flops == a_key
    assert costs(ModelConfig(family="transformer", **small)).attention_flops == (10 + 5.5 + 10) * a_key


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_cache_bytes_are_those_of_the_cache(dtype: str) -> None:
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    sizes: list[dict[str, int]] = [{}, {"n_kv_head": 2}, {"head_size": 6, "value_size": 5}]
    for family, changes in product(("gpt", "transformer"), sizes):
        config = ModelConfig(**{**SMALL, "family": family, **changes})
        model: Any = build_model(config).to(kinds[dtype])
        source = Rows.whole(torch.zeros(2, 3, dtype=torch.long))
        cache = model.start(source, 7) if family == "transformer" else model.start(2, 7)
        held = sum(t.nbytes for pair in cache.past for t in pair)
        assert costs(config).cache_bytes(dtype) * 2 * 7 == held
        assert costs(config).source_bytes(dtype) * 2 * 3 == sum(t.nbytes for pair in cache.source for t in pair)
    assert costs(ModelConfig(**{**SMALL, "family": "bert"})).cache_bytes(dtype) == 0


def printed(capsys: pytest.CaptureFixture[str], name: str, *overrides: str, **options: Any) -> str:
    info(name, list(overrides), **options)
    return capsys.readouterr().out


def test_every_preset_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for name in PRESETS:
        text = printed(capsys, name)
        found = costs(preset(name))
        assert f"{found.parameters:,}" in text and f"{found.non_embedding:,}" in text
        assert f"× {preset(name).n_layer}" in text


def test_layers_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "gpt2")
    assert text.count("attention.query") == 1
    assert "73,728 bytes in fp32, 36,864 bytes in bf16" in text
    assert "(shared)" in printed(capsys, "gpt2", "model.share_layers=true")
    assert "KV cache" not in printed(capsys, "bert-base")


def test_overrides_and_context(capsys: pytest.CaptureFixture[str]) -> None:
    assert "× 3" in printed(capsys, "gpt2", "model.n_layer=3")
    assert printed(capsys, "gpt2", context=8) != printed(capsys, "gpt2")
    with pytest.raises(ConfigError, match="--context must be at least 1"):
        info("gpt2", [], context=0)


def test_a_recipe_whose_words_are_not_known_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[data]\nvocab_size = 1234\n", encoding="utf-8")
    text = printed(capsys, str(path))
    assert "1,234 × 512" in text and "not known before the data is read" in text
    apart = printed(capsys, str(path), "data.separate_vocabularies=true")
    assert "source_embedding" in apart and "target_embedding" in apart
    known = printed(capsys, str(path), "model.vocab_size=99")
    assert "99 × 512" in known and "not known" not in known
    tagging = printed(capsys, str(path), "model.family=bert", "model.head=tag")
    assert "labels are not known" in " ".join(tagging.split())


def test_a_name_nobody_knows() -> None:
    for wrong, right in {"gpt-2": "gpt2", "transformer-bse": "transformer-base", "date": "dates"}.items():
        with pytest.raises(ConfigError, match=f"did you mean '{right}'") as error:
            find_recipe(wrong, [])
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="did you mean 'n_layer'"):
        find_recipe("gpt2", ["model.n_layers=2"])


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_the_pieces_and_ids_are_the_tokenizers(kind: str, tmp_path: Path) -> None:
    """Broken variants: ids with BOS and EOS; pieces of another text's ids; a tab of the text taken for the one before the ids."""
    tokenizer = Tokenizer.train(kind, TEXTS, 300)
    tokenizer.save(tmp_path / "tokenizer.json")
    done = call("info", "tokenizer.json", *(word for text in TEXTS for word in ("--tokenize", text)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    ids = [tokenizer.encode(text) for text in TEXTS]
    assert [[int(i) for i in row[1].split()] for row in rows] == ids
    assert [row[0] for row in rows] == ["|".join(tokenizer.pieces(i)).replace("\t", "\\t") for i in ids]
