"""`glassformer audit`: each planted mistake is found and named with its line, and nothing is found in what is right."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import audited_models as models
import pytest
import torch
from torch import nn

import glassformer
import glassformer_lab
from glassformer.classic import GPT, Config, Transformer
from glassformer.errors import UserError
from glassformer_lab.audit import AuditResult, audit, build, facts_of, find_subject, known, parse_args
from glassformer_lab.child import found_by
from tests.commands import call

FILE = Path(models.__file__)
SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 32, "vocab_size": 40, "block_size": 24}
pytestmark = pytest.mark.usefixtures("as_in_production")


def mistakes(model: nn.Module, **how: Any) -> dict[str, AuditResult]:
    """What is found in a model, by its mistake; a law that could not be asked is one."""
    torch.manual_seed(0)
    found = audit(find_subject(model, **how))
    assert len(found) > 4 or any(not one.holds for one in found)
    return {one.mistake or f"not asked: {one.measured}": one for one in found if not one.holds}


def also(mistake: str) -> set[str]:
    """What follows from a mistake, and may be found as well."""
    return {
        "neighbours": {"future", "padding read"},
        "batch norm": {"future", "neighbours"},
        "one ahead": {"future"},
        "tril added": {"future"},
        "positions ignored": {"no gradient"},
        "source unread": {"no gradient"},
        "alone": {"causal encoder"},
        "softmax over the queries": {"padding read"},
    }.get(mistake, set())


@pytest.mark.parametrize("mistake", models.PLANTED_GPT)
def test_each_mistake_planted_in_a_decoder_is_found(mistake: str) -> None:
    torch.manual_seed(0)
    found = mistakes(models.TinyGPT(mistake=mistake))
    named = {"one ahead": "future", "tril added": "future", "batch norm": "neighbours"}.get(mistake, mistake)
    assert named in found and found.keys() <= {named, *also(mistake)}, found
    assert re.fullmatch(r".*audited_models\.py:\d+", found[named].where)


@pytest.mark.parametrize("mistake", models.PLANTED_PAIRS)
def test_each_mistake_planted_in_an_encoder_decoder_is_found(mistake: str) -> None:
    torch.manual_seed(0)
    kind = models.WithoutLengths if mistake == "no padding mask" else models.TinyPairs
    found = mistakes(kind(mistake=mistake))
    assert mistake in found and found.keys() <= {mistake, *also(mistake)}, found


def test_the_tutorials_machine_and_the_line_that_shows_the_answer() -> None:
    """Broken variant: the decoder's mask is blamed, which is there."""
    found = mistakes(models.OneText(SimpleNamespace(vocab_size=40, n_embd=32, block_size=24, dropout=0.1)))
    assert found.keys() == {"encoder shows the answer", "dropout twice", "residual after the norm"}
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert "self.encoder(x)" in lines[int(found["encoder shows the answer"].where.rpartition(":")[2]) - 1]
    start = inspect.getsourcelines(models.Layer.forward)[1]
    assert start < int(found["residual after the norm"].where.rpartition(":")[2]) < start + 8


RIGHT: dict[str, Callable[[], nn.Module]] = {
    "nanoGPT's way": models.TinyGPT,
    "a lecture's way": models.LectureGPT,
    "pairs with lengths": models.TinyPairs,
    "masks that are required": models.Masked,
    "course": lambda: GPT(40, 24, 2, 32, 4, 64, 0.1),
    "classic": lambda: Transformer(Config(vocab_size=40, dropout=0.1)),
    "GPT": lambda: glassformer.GPT(**SIZES),
    "rotary": lambda: glassformer.GPT(**SIZES, positions="rotary"),
    "alibi": lambda: glassformer.GPT(**SIZES, positions="alibi"),
    "Transformer": lambda: glassformer.Transformer(**SIZES),
    "post-norm": lambda: glassformer.Transformer(**SIZES, pre_norm=False),
    "BERT": lambda: glassformer.BERT(**SIZES),
    "torch": lambda: nn.Transformer(32, 4, 2, 2, 64, batch_first=True),
    "torch, norm first": lambda: nn.Transformer(32, 4, 2, 2, 64, norm_first=True),
    "torch's encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2),
    "torch's decoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64), 2),
}


@pytest.mark.parametrize("name", RIGHT)
def test_no_false_alarm(name: str) -> None:
    torch.manual_seed(0)
    assert mistakes(RIGHT[name]()) == {}


class Padded(nn.Module):
    """torch's own Transformer with padding masks, and no causal one."""

    def __init__(self, vocab_size: int = 40, d_model: int = 32) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(24, d_model)
        self.layers = nn.Transformer(d_model, 4, 2, 2, 64, batch_first=True)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        x, y = (self.tokens(ids) + self.positions(torch.arange(ids.size(1))) for ids in (src, tgt))
        pad = {"src_key_padding_mask": src == 0, "memory_key_padding_mask": src == 0}
        return self.head(self.layers(x, y, tgt_key_padding_mask=tgt == 0, **pad))


@pytest.mark.filterwarnings("ignore")
def test_the_laws_are_asked_of_torchs_own_transformer_with_padding() -> None:
    """Broken variant: torch's fast path packs padded rows into a nested tensor, no hook can be asked, and a missing causal mask
    passes as "not asked"."""
    torch.manual_seed(0)
    assert mistakes(Padded()).keys() == {"future"}


class SmoothedLoss(models.TinyGPT):
    """No targets are given: its loss, with label smoothing and halved, asks for the tokens that are so many places on."""

    ahead = 1

    def forward(self, idx: torch.Tensor) -> Any:  # type: ignore[override]
        logits = super().forward(idx, idx)[0]
        asked = logits[:, : idx.size(1) - self.ahead].flatten(0, 1), idx[:, self.ahead :].flatten()
        return logits, nn.functional.cross_entropy(*asked, label_smoothing=0.1)


def test_the_loss_that_a_model_computes_by_itself_is_looked_at() -> None:
    """Broken variant: only a loss equal to the plain cross-entropy to the last digit is known."""
    torch.manual_seed(0)
    right, wrong = SmoothedLoss(), SmoothedLoss()
    wrong.ahead = 0
    assert mistakes(right) == {} and mistakes(wrong).keys() == {"targets not shifted"}
    assert any(one.law == "next token" and one.holds for one in audit(find_subject(right)))


@pytest.mark.parametrize("mistake", ["softmax over the queries", "masked after the softmax"])
def test_a_wrong_softmax_is_named_with_its_line(mistake: str) -> None:
    """Broken variant: "mask this attention", where a mask is."""
    torch.manual_seed(0)
    found = mistakes(models.TinyGPT(mistake=mistake))[mistake]
    line = FILE.read_text(encoding="utf-8").splitlines()[int(found.where.rpartition(":")[2]) - 1]
    assert ("softmax(scores, dim=axis)" in line) == (mistake == "softmax over the queries") and "softmax" in line


PRINTED = {
    "math.sqrt(8)": "the listing leaves this line out: import math",
    "torch.sqrt(8)": "math.sqrt (docs/errata.md#the-gpt-of-the-course)",
    "Decoder(1)": "from glassformer.classic import Decoder",
    "P[0]": "nothing in the file is called P",
}


@pytest.mark.parametrize("listing", PRINTED)
def test_a_listing_that_does_not_run_as_printed_gets_its_erratum(listing: str, tmp_path: Path) -> None:
    """Broken variant: "say its sizes by --arg"."""
    file = tmp_path / "printed.py"
    start = (
        "import torch\nfrom torch import nn\nclass M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    )
    file.write_text(f"{start}        {listing}\n")
    with pytest.raises(UserError, match="cannot be made") as refused:
        build(f"{file}:M", {})
    assert PRINTED[listing] in str(refused.value) and "--arg" not in str(refused.value)
    file.write_text(f"{start}    def forward(self, idx):\n        {listing}\n")
    with pytest.raises(UserError, match="cannot be called") as refused:
        find_subject(build(f"{file}:M", {}))
    assert PRINTED[listing] in str(refused.value)
    file.write_text(f"{start}  x = 1\n")
    with pytest.raises(UserError, match=r"cannot be imported: IndentationError.*docs/errata\.md#listings"):
        build(f"{file}:M", {})


ENDINGS = {
    "os._exit(0)": "ended the process (exit code 0) before it was looked through",
    "raise type('Own', (BaseException,), {})('mine')": "Own: mine",
    "print(json.dumps({'nonce': '', 'found': {'laws': []}})); os._exit(0)": "ended the process (exit code 0)",
    "while True: pass": "had not come to its end after 8 seconds; --seconds",
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_ends_its_process_has_held_no_law(ending: str, tmp_path: Path) -> None:
    """Broken variants: exit code 0 of the file taken for that of the audit; an endless loop that hangs it for ever."""
    imports = "import json, os, sys; from torch import nn"
    (tmp_path / "ending.py").write_text(f"{imports}\nclass M(nn.Module):\n    def __init__(self):\n        {ending}\n")
    done = call("audit", "ending.py:M", *(["--seconds", "8"] if "while" in ending else []), cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and ENDINGS[ending] in done.stderr, done
    assert "Traceback" not in done.stderr and done.stderr.splitlines()[-1].startswith("glassformer: ")


@pytest.mark.slow
def test_what_the_model_prints_is_not_in_the_json_and_what_is_not_asked_does_not_hold(tmp_path: Path) -> None:
    """Broken variants: a model's own prints before the JSON; exit code 0 where a law ended in an error."""
    (tmp_path / "talking.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from audited_models import TinyGPT\nprint('read')\nclass M(TinyGPT):\n"
        "    generate = None\n    def forward(self, idx):\n        assert not self.training, 'no training here'\n"
        "        print('called')\n"
        "        return super().forward(idx, idx)[0]\n"
    )
    done = call("audit", "talking.py:M", "--json", cwd=tmp_path)
    verdicts = {one["law"]: one["verdict"] for one in json.loads(done.stdout)["laws"]}
    assert "read" in done.stderr and "called" in done.stderr
    assert {law for law, verdict in verdicts.items() if verdict != "holds"} == {"dropout", "gradients"}
    assert verdicts["gradients"] == "not asked" and done.returncode == 1
    done = call("audit", "talking.py:M", cwd=tmp_path)
    assert done.returncode == 1 and "2 laws could not be asked: of these nothing is known" in done.stdout
    assert "not looked at: your loss and your training loop" in done.stdout


def test_time_before_batch() -> None:
    """A model that takes (T, B): right when it is said, and the neighbours' law speaks of it when it is not."""
    torch.manual_seed(0)
    model = models.TorchLM(40, 32, 4)
    assert mistakes(model, kind="decoder", time_first=True).keys() <= {"loss too high"}
    assert "--time-first" in facts_of(mistakes(model, kind="decoder")["neighbours"])["cure"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "marian", "t5"])
def test_no_false_alarm_on_hugging_faces(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    small: dict[str, Any] = {"vocab_size": 60, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    stacks = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
    }
    config, kind = {
        "gpt2": (transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, **small), transformers.GPT2LMHeadModel),
        "llama": (transformers.LlamaConfig(**sizes, **small), transformers.LlamaForCausalLM),
        "bert": (transformers.BertConfig(**sizes, **small), transformers.BertForMaskedLM),
        "marian": (
            transformers.MarianConfig(d_model=32, decoder_start_token_id=0, **stacks, **small),
            transformers.MarianMTModel,
        ),
        "t5": (
            transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, **small),
            transformers.T5ForConditionalGeneration,
        ),
    }[name]  # fmt: skip
    torch.manual_seed(0)
    assert mistakes(kind(config)) == {}
    if name == "bert":  # taken for a decoder, it sees the future
        assert mistakes(kind(config), kind="decoder").keys() == {"future"}


def test_what_is_said_of_laws_and_mistakes_is_whole() -> None:
    """Every mistake that a law can find is in the table with its cure, and its erratum is a heading of docs/errata.md."""
    errata = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in re.findall(r"^## (.*)$", errata, re.MULTILINE)
    }
    audit_files = (Path(glassformer_lab.__file__).parent / "audit").glob("*.py")
    source = "".join(file.read_text(encoding="utf-8") for file in audit_files)
    for name, one in known()["mistake"].items():
        assert f'"{name}"' in source and one["says"] and one["cure"]
        assert one.get("erratum", "scores") in anchors, (name, anchors)
    planted = {"one ahead", "tril added", "batch norm"}
    assert known()["mistake"].keys() - {*models.PLANTED_GPT, *models.PLANTED_PAIRS} == {
        "cache",
        "encoder shows the answer",
    }
    assert {*models.PLANTED_GPT, *models.PLANTED_PAIRS} - known()["mistake"].keys() == planted
    assert {one.law for one in audit(find_subject(models.TinyGPT()))} <= known()["law"].keys()


def test_a_cache_that_forgets_is_found() -> None:
    """As Hugging Face's models are called; the broken one loses the oldest key."""

    class Cached(models.TinyGPT):
        keep, generate = 99, None  # type: ignore[assignment]

        def forward(self, idx: Any, past_key_values: Any = None, use_cache: bool = False) -> Any:  # type: ignore[override]
            whole = idx if past_key_values is None else torch.cat([past_key_values, idx], 1)
            logits = super().forward(whole, whole)[0]
            return SimpleNamespace(logits=logits[:, -idx.size(1) :], past_key_values=whole[:, -self.keep :])

    assert mistakes(Cached()) == {}
    broken = Cached()
    broken.keep = 3
    assert mistakes(broken).keys() == {"cache"}


@pytest.mark.slow
def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit codes, a table and JSON; a mistake in the command, or in the file, is a sentence."""
    done = call("audit", f"{FILE}:OneText", "--json", cwd=tmp_path)
    facts = json.loads(done.stdout)
    assert done.returncode == 1 and facts["kind"] == "decoder" and facts["called"] == "OneText(idx, targets)"
    broken = {one["mistake"]: one for one in facts["laws"] if one["verdict"] == "broken"}
    shown = broken["encoder shows the answer"]
    assert shown["erratum"] == "docs/errata.md#the-encoder-decoder" and shown["where"] and shown["cure"]
    done = call("audit", f"{FILE}:TinyGPT", "--arg", "mistake=future", "--arg", "vocab_size=33", cwd=tmp_path)
    assert (
        done.returncode == 1 and "a token sees tokens after it" in done.stdout and "audited_models.py:" in done.stdout
    )
    assert call("audit", f"{FILE}:make_gpt", cwd=tmp_path).returncode == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "odd.py").write_text(
        "from torch import nn\nclass M(nn.Module):\n    def __init__(self, flavour): super().__init__()\nx = 3\n"
    )
    for words, sentence in (
        ([f"{FILE}"], "say which model"),
        (["nowhere.py:M"], "there is no file nowhere.py"),
        (["bad.py:M"], "cannot be imported: ModuleNotFoundError"),
        (["odd.py:N"], "has no N"),
        (["odd.py:x"], "is int, and no torch.nn.Module"),
        (["odd.py:M"], "needs flavour; say it by --arg flavour=VALUE"),
        (["odd.py:M", "flavour"], "--arg is NAME=VALUE"),
        ([f"{FILE}:TinyGPT", "depth=3"], "takes no depth"),
        ([f"{FILE}:TinyGPT", "n_embd=30"], "cannot be called"),
    ):
        facts = {"target": words[0], "args": words[1:], "vocab": 0, "kind": "auto", "time_first": False}
        assert sentence in found_by("audit", facts)["refused"], words
    for words, sentence in (
        (["bad.py:M"], "cannot be imported: ModuleNotFoundError"),
        ([f"{FILE}:TinyGPT", "--kind", "gpt"], "--kind is one of"),
    ):
        done = call("audit", *words, cwd=tmp_path)
        assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr, (words, done)


def test_arguments_are_read_as_python_writes_them() -> None:
    assert parse_args(["a=3", "b=True", "c=relu", "d=(1, 2)"]) == {"a": 3, "b": True, "c": "relu", "d": (1, 2)}
    assert isinstance(build(f"{FILE}:TorchLM", {"nhead": 2}), models.nn.Module)
    own = build(f"{FILE}:WithConfig", {"vocab_size": 77})  # its own class of configs, small
    assert own.wte.weight.shape == (77, 32)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="cannot be made"):
        build(f"{FILE}:TinyGPT", {"n_embd": "wide"})
