"""What a config.json says of a model, and what its tensors say: each setting that changes the numbers is honoured, or refused
by its name before anything is written. Nothing of this needs transformers; here it is the reference.

Rows of ids are as long as a model's block, so that windows, positions and padding ids show. Broken variants these catch: a
window that is not read, positions that begin at row 2 whatever id pads, a causal encoder taken for one that sees all, an output
layer taken for the embedding because config.json ties them, a sigmoid for each label taken for a softmax.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import glassformer
from glassformer.cli.verbs import run_command
from glassformer.errors import UserError
from glassformer.formats.huggingface.importing import Imported, Languages
from glassformer.formats.huggingface.writer import export_folder
from glassformer.formats.import_run import read_source, write_run
from glassformer.nn.rows import Rows
from glassformer.tasks.text_model import WrongVerb
from tests.external_models import (
    LABELS,
    SIZES,
    TEXTS,
    bart,
    bert,
    byte_level,
    gpt2,
    in_our_ids,
    llama,
    marian,
    roberta,
    saved,
    t5,
)

Made = Callable[[Path], Any]
WINDOW = {"use_sliding_window": True, "sliding_window": 4, "head_dim": 8}
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}


def opt(folder: Path, **more: Any) -> tuple[Any, Any]:
    roles = {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "frame": "</s> $A"}
    tokenizer = byte_level(folder, ["<s>", "<pad>", "</s>", "<unk>"], **roles)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24}
    config = transformers.OPTConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes, **more)
    return saved(transformers.OPTForCausalLM(config), folder), tokenizer


def again(made: Made, folder: Path, **changes: Any) -> tuple[Any, Any]:
    """The same model with another config, its weights made anew."""
    model, words = made(folder)
    for name, value in changes.items():
        setattr(model.config, name, value)
    return saved(type(model)(model.config), folder), words


def edited(made: Made, folder: Path, **facts: Any) -> tuple[Any, Any]:
    """The same files with another config.json."""
    found = made(folder)
    old = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(old | facts))
    return found


HONOURED: dict[str, Made] = {
    "qwen3, a window": lambda f: llama(f, "Qwen3", **WINDOW, max_window_layers=0),
    "qwen3, a window by layer_types": lambda f: llama(f, "Qwen3", **WINDOW, layer_types=["sliding_attention"] * 2),
    "qwen3, a window for no layer": lambda f: llama(f, "Qwen3", **WINDOW, max_window_layers=2),
    "qwen2, a window": lambda f: llama(f, "Qwen2", **WINDOW, max_window_layers=0),
    "qwen3, biases of attention": lambda f: llama(f, "Qwen3", head_dim=8, attention_bias=True),
    "mistral, a window": lambda f: llama(f, "Mistral", sliding_window=4),
    "llama, biases of attention": lambda f: llama(f, attention_bias=True),
    "llama, biases of the rest": lambda f: llama(f, mlp_bias=True),
    "llama, linear": lambda f: llama(f, rope_parameters=LINEAR),
    "gpt2, unscaled": lambda f: gpt2(f, scale_attn_weights=False, layer_norm_epsilon=1e-2, activation_function="relu"),
    "opt, post-norm": lambda f: opt(f, do_layer_norm_before=False),
    "opt, embeddings of another width": lambda f: opt(f, do_layer_norm_before=False, word_embed_proj_dim=8),
    "opt, no biases": lambda f: opt(f, enable_bias=False),
    "opt, norms without weights": lambda f: opt(f, layer_norm_elementwise_affine=False),
    "opt, no last norm": lambda f: opt(f, _remove_final_layer_norm=True),
    "bert, untied": lambda f: bert(f, tie_word_embeddings=False),
    "bert, other norms": lambda f: bert(f, hidden_act="gelu_new", layer_norm_eps=1e-3),
    "bert, labels without names": lambda f: bert(f, "ForSequenceClassification"),
    "bert, no class named": lambda f: edited(bert, f, architectures=None),
    "roberta, another padding": lambda f: roberta(f, pad_token_id=4),
    "roberta, untied": lambda f: roberta(f, tie_word_embeddings=False),
    "roberta classify, relu": lambda f: roberta(f, "ForSequenceClassification", hidden_act="relu", **LABELS),
    "bart, untied": lambda f: again(bart, f, tie_word_embeddings=False),
    "bart, another padding": lambda f: again(bart, f, pad_token_id=3),
    "marian, untied": lambda f: again(marian, f, tie_word_embeddings=False),
    "marian, two vocabularies, untied": lambda f: again(
        lambda g: marian(g, separate=True), f, tie_word_embeddings=False
    ),
    "m2m_100, another padding": lambda f: again(lambda g: bart(g, "M2M100"), f, pad_token_id=3),
    "m2m_100, untied": lambda f: again(lambda g: bart(g, "M2M100"), f, tie_word_embeddings=False),
    "t5, scaled and gated": lambda f: t5(f, feed_forward_proj="gated-silu", num_decoder_layers=3),
    "bert, no head": lambda f: bert(f, "Model"),
    "bert, no head, no class named": lambda f: edited(lambda g: bert(g, "Model"), f, architectures=None),
    "roberta, no head": lambda f: roberta(f, "Model"),
}
REFUSED: dict[str, tuple[str, Made]] = {
    "qwen3, a window for some": ("use_sliding_window", lambda f: llama(f, "Qwen3", **WINDOW, max_window_layers=1)),
    "qwen2, a window for some": ("use_sliding_window", lambda f: llama(f, "Qwen2", **WINDOW, max_window_layers=1)),
    "llama, dynamic": ("rope_type 'dynamic'", lambda f: llama(f, rope_parameters=LINEAR | {"rope_type": "dynamic"})),
    "llama, a part of heads": (
        "partial_rotary_factor",
        lambda f: llama(f, rope_parameters=LINEAR | {"partial_rotary_factor": 0.5}),
    ),
    "llama, another gate": ("hidden_act 'gelu'", lambda f: llama(f, hidden_act="gelu")),
    "llama, untied without a layer": ("no lm_head.weight", lambda f: edited(tied_llama, f, tie_word_embeddings=False)),
    "llama, fewer bits": ("quantization_config", lambda f: edited(llama, f, quantization_config={"bits": 4})),
    "gpt2 with a source": ("add_cross_attention", lambda f: gpt2(f, add_cross_attention=True)),
    "bert that writes": ("is_decoder", lambda f: bert(f, "LMHeadModel", is_decoder=True)),
    "bert for masks, causal": ("is_decoder", lambda f: bert(f, is_decoder=True)),
    "roberta that writes": ("is_decoder", lambda f: roberta(f, "ForCausalLM", is_decoder=True)),
    "roberta, relu": ("hidden_act is relu", lambda f: roberta(f, hidden_act="relu")),
    "bert, relative": ("relative_key", lambda f: edited(bert, f, position_embedding_type="relative_key")),
    "bert, heads pruned": ("pruned_heads", lambda f: edited(bert, f, pruned_heads={"0": [1]})),
    "bert, questions": ("names a BertForQuestionAnswering", lambda f: bert(f, "ForQuestionAnswering")),
    "roberta, choices": ("names a RobertaForMultipleChoice", lambda f: roberta(f, "ForMultipleChoice")),
    "bert, next sentences": ("names a BertForNextSentencePrediction", lambda f: bert(f, "ForNextSentencePrediction")),
    "bert, many labels": (
        "multi_label_classification",
        lambda f: bert(f, "ForSequenceClassification", problem_type="multi_label_classification", **LABELS),
    ),
    "bert, one label": ("one label", lambda f: bert(f, "ForSequenceClassification", num_labels=1)),
    "t5, other buckets": ("relative_attention_max_distance", lambda f: t5(f, relative_attention_max_distance=64)),
    "t5, a gate of another kind": ("feed_forward_proj is gated-relu", lambda f: t5(f, feed_forward_proj="gated-relu")),
    "t5, its encoder": ("names a T5EncoderModel", lambda f: edited(t5, f, architectures=["T5EncoderModel"])),
    "mbart-25": ("mBART-25", lambda f: again(lambda g: bart(g, "MBart"), f, decoder_start_token_id=5)),
}


@pytest.mark.parametrize("made", [marian, gpt2, bart], ids=["marian", "gpt2", "bart"])
def test_a_vocabulary_of_another_size_is_one_sentence(made: Made, tmp_path: Path) -> None:
    """Broken variant: a shared table of `decoder_vocab_size` rows, which transformers then cannot load."""
    model, _ = edited(made, tmp_path / "theirs", vocab_size=300_000)
    assert model.config.vocab_size < 300_000
    with pytest.raises(UserError, match="by the model's config it should be"):
        run_command(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run")])
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_a_folder_that_transformers_cannot_load_is_one_sentence(tmp_path: Path) -> None:
    bert(tmp_path / "theirs")
    run = write_run(read_source(str(tmp_path / "theirs")), tmp_path / "run")
    (tmp_path / "hf").mkdir()
    export_folder(run.load_model(), run.tokenizers, run.recipe, tmp_path / "hf")
    facts = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(facts | {"vocab_size": 300_000}))
    with pytest.raises(UserError, match="transformers cannot load"):
        run_command(["import", str(tmp_path / "hf"), "--out", str(tmp_path / "again")])
    assert not (tmp_path / "again").exists()


def tied_llama(folder: Path) -> tuple[Any, Any]:
    return llama(folder, tie_word_embeddings=True)


def languages(name: str) -> Languages | None:
    return Languages("en_XX", "de_DE") if name.startswith(("m2m", "mbart")) else None


def drawn(vocabulary: Any, theirs: Any, length: int) -> torch.Tensor:
    """A row of ids that they have, of which none pads."""
    known = torch.tensor([i for i in vocabulary.ours if i != theirs.config.pad_token_id])
    return known[torch.randint(len(known), (1, length))]


@torch.no_grad()
def largest_difference(theirs: Any, found: Imported, ours: Any) -> float:
    """Of two scores, or of two numbers of a last hidden state, over a row as long as the block."""
    torch.manual_seed(0)
    target, length = found.theirs["target"], ours.config.block_size
    ids = drawn(target, theirs, length)
    if ours.config.family == "transformer":
        source = found.theirs["source"]
        read = drawn(source, theirs, length)
        there = theirs(input_ids=read, decoder_input_ids=ids).logits
        here = ours.model(Rows.whole(in_our_ids(source, read)), Rows.whole(in_our_ids(target, ids)))
    else:
        told = theirs(ids)
        there, here = (
            told.logits if hasattr(told, "logits") else told.last_hidden_state,
            ours.model(in_our_ids(target, ids)),
        )
    if ours.config.head == "mlm":
        order = torch.tensor(target.order)
        here, there = here[..., order >= 0], there[..., order[order >= 0]]
    return float(((here[:, 0] if ours.config.head == "classify" else here) - there).abs().max())


def without_transformers(monkeypatch: pytest.MonkeyPatch, folder: Path, out: Path, *options: str) -> int:
    """`glassformer import` where transformers cannot be imported."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        return run_command(["import", str(folder), "--out", str(out), *options])


@pytest.mark.slow
@pytest.mark.parametrize("name", HONOURED)
def test_what_a_config_says_is_honoured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HONOURED[name](tmp_path / "theirs")
    options = ("--source-language=en_XX", "--target-language=de_DE") if languages(name) else ()
    assert without_transformers(monkeypatch, tmp_path / "theirs", tmp_path / "run", *options) == 0
    class_name = json.loads((tmp_path / "theirs" / "config.json").read_text())["architectures"]
    kind = class_name[0] if class_name else "BertModel" if "no head" in name else "BertForMaskedLM"
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "theirs").eval()
    found = read_source(str(tmp_path / "theirs"), languages=languages(name))
    assert largest_difference(theirs, found, glassformer.load(tmp_path / "run", device="cpu")) < 2e-5


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_said_is_refused_by_its_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With transformers and without it, and nothing is written."""
    reason, made = REFUSED[name]
    made(tmp_path / "theirs")
    options = ("--source-language=en_XX", "--target-language=de_DE") if languages(name) else ()
    with pytest.raises(UserError, match=reason):
        without_transformers(monkeypatch, tmp_path / "theirs", tmp_path / "run", *options)
    with pytest.raises(UserError, match=reason):
        read_source(str(tmp_path / "theirs"), languages=languages(name))
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize(
    ("made", "output"),
    [
        (gpt2, "lm_head.weight"),
        (bert, "cls.predictions.decoder.weight"),
        (bart, "lm_head.weight"),
        (t5, "lm_head.weight"),
    ],
    ids=["gpt2", "bert", "bart", "t5"],
)
def test_an_output_layer_that_differs_is_one_of_its_own(made: Made, output: str, tmp_path: Path) -> None:
    """config.json ties it to the embedding; the file holds another. So does transformers take it."""
    made(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    table = next(
        n
        for n in (
            "transformer.wte.weight",
            "bert.embeddings.word_embeddings.weight",
            "model.shared.weight",
            "shared.weight",
        )
        if n in tensors
    )
    tensors[output] = tensors[table] + 0.1 * torch.randn_like(tensors[table])
    save_file(tensors, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    found = read_source(str(tmp_path / "theirs"))
    assert not found.recipe.model.tie_output
    kind = getattr(transformers, json.loads((tmp_path / "theirs" / "config.json").read_text())["architectures"][0])
    theirs = kind.from_pretrained(tmp_path / "theirs").eval()
    ours = glassformer.load(write_run(found, tmp_path / "run").path, device="cpu")
    assert largest_difference(theirs, found, ours) < 2e-5


def test_tables_of_positions_in_a_file_are_read(tmp_path: Path) -> None:
    """Those of a Marian are computed; where its file holds others, they are the model's."""
    model, _ = marian(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    for side in ("encoder", "decoder"):
        tensors[f"model.{side}.embed_positions.weight"] = torch.randn(
            SIZES["max_position_embeddings"], SIZES["d_model"]
        )
    save_file(tensors, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    found = read_source(str(tmp_path / "theirs"))
    assert found.recipe.model.positions == "learned"
    theirs = type(model).from_pretrained(tmp_path / "theirs").eval()
    ours = glassformer.load(write_run(found, tmp_path / "run").path, device="cpu")
    assert largest_difference(theirs, found, ours) < 2e-5


@torch.no_grad()
@pytest.mark.parametrize("made", [bert, roberta], ids=["bert", "roberta"])
def test_an_encoder_without_a_head_embeds_texts(made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text is the mean of its tokens' last hidden states, as in sentence encoders; what needs a head says there is none."""
    theirs, words = made(tmp_path / "theirs", "Model")
    assert run_command(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "same greedy answers" in said and ".embed(" in said
    model = glassformer.load(tmp_path / "run", device="cpu")
    assert isinstance(model, glassformer.Embedder)
    given = words(TEXTS[:4], return_tensors="pt", padding=True)
    hidden, real = theirs(**given).last_hidden_state, given["attention_mask"][..., None]
    wanted = (hidden * real).sum(1) / real.sum(1)
    torch.testing.assert_close(model.embed(TEXTS[:4]), wanted, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(model.embed(TEXTS[:4], pool="first"), hidden[:, 0], atol=2e-5, rtol=1e-4)
    assert model.export("hf", tmp_path / "hf", sample=TEXTS[:3]).passed
    back = read_source(str(tmp_path / "hf"))
    assert all(torch.equal(back.weights[n], p) for n, p in model.model.named_parameters())
    assert model.export("onnx", tmp_path / "onnx", sample=TEXTS[:3]).passed
    for verb in ("fill", "classify", "tag", "translate", "generate"):
        with pytest.raises(WrongVerb, match=f"without a head, which embeds texts; it cannot {verb}"):
            getattr(model, verb)
        with pytest.raises(UserError, match="without a head"):
            run_command([verb, str(tmp_path / "run"), "the ___ cat"])


def test_a_head_is_trained_on_an_encoder_without_one(tmp_path: Path) -> None:
    bert(tmp_path / "theirs", "Model")
    write_run(read_source(str(tmp_path / "theirs")), tmp_path / "run")
    lines = "".join(f"{label}\t{n} mice, or a {label}\n" for label in ("mat", "hat") for n in range(40))
    (tmp_path / "lines.tsv").write_text(lines)
    (tmp_path / "fine.toml").write_text(
        f'name = "fine"\n[data]\ntask = "classify"\ntrain = "{tmp_path / "lines.tsv"}"\nval_fraction = 0.2\n'
        "[train]\nsteps = 2\nsave_every = 2\nvalidate_every = 2\n"
    )
    given = ["train", str(tmp_path / "fine.toml"), "--from", str(tmp_path / "run"), "--out", str(tmp_path / "fine")]
    assert run_command(given) == 0
    assert glassformer.load(tmp_path / "fine").classify("the cat sat on the mat") in ("mat", "hat")
    with pytest.raises(UserError, match="does not learn from a text"):
        run_command([*given[:-1], str(tmp_path / "none"), "data.task=text", "model.head=none"])
