"""The file of corrections and the updates beside it, damaged, full, crafted: what is whole is used, and nothing is lost."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from glassformer.formats.adapter import BESIDE, fingerprint
from glassformer.models.weights import model_tensors
from glassformer.runs.corrections import correction_problems, read_corrections
from glassformer.serve import corrections
from glassformer.serve.corrections import Corrections
from glassformer.serve.requests import APIError


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.ModuleDict({"layer": nn.Linear(4, 4, bias=False)})


def adapter(scale: float = 1.0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(2)
    return {
        "layer.lora_a": torch.randn(2, 4, generator=draw),
        "layer.lora_b": scale * torch.randn(4, 2, generator=draw),
        "layer.lora_scale": torch.tensor(1.0),
    }


def learned(run: Path) -> tuple[Corrections, Path]:
    """One correction that was learned, and the file of its update."""
    store = Corrections(run)
    store.append("eins", "one", "owner")
    store.keep(1, adapter(), network())
    return store, run / "corrections/000001.safetensors"


STRANGE = {
    "a number that is a superscript": "vier\tfour\t²\towner\tnow\n".encode(),
    "a number of 5,000 digits": b"vier\tfour\t" + b"9" * 5000 + b"\towner\tnow\n",
    "no UTF-8": b"vier\tfo\xffur\t2\towner\tnow\n",
    "two lines in one": b"vier\tfour\t2\towner\t2026-11vier\tfour\t3\towner\tnow\n",
    "a torn end": b"vier\tfour\t2\towner\t20",
    "too few columns": b"vier\tfour\n",
    "an empty line": b"\n",
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE.keys())
def test_lines_that_are_none_are_set_aside(line: bytes, tmp_path: Path) -> None:
    """And the others are served, learned and taught beside. Broken variants: `isdigit`, which a superscript is, and a server
    that does not start."""
    first = Corrections(tmp_path)
    first.append("eins", "one", "owner")
    first.close()
    before = first.path.read_bytes()
    first.path.write_bytes(before + line)
    assert any(wrong is not None for _name, wrong in correction_problems(tmp_path))
    told: list[str] = []
    again = Corrections(tmp_path, told.append)
    assert [one.pair for one in again.read()] == [("eins", "one")] and "no corrections" in told[0]
    assert (tmp_path / "corrections/set-aside.tsv").read_bytes() == line.rstrip(b"\n") + b"\n"
    assert first.path.read_bytes() == before
    assert again.append("drei", "three", "owner").number == 2
    again.close()
    assert not read_corrections(first.path)[1] and not any(wrong for _name, wrong in correction_problems(tmp_path))


def test_a_full_disk_tears_nothing(tmp_path: Path) -> None:
    """By the kernel's own limit, at each byte: the one that was sent is refused in a sentence, and the others are there, now
    and at the next start. Broken variant: a line that is appended in one call, of which a part is written."""
    store = Corrections(tmp_path)
    store.append("eins", "one", "owner")
    size, limits = store.path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    for most in range(size, 2 * size, 7):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        try:
            with pytest.raises(APIError, match="cannot be written here now") as refused:
                store.append("zwei", "two", "owner")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert refused.value.status == 507
        assert read_corrections(store.path) == (store.read(), []) and len(store.read()) == 1
    assert store.append("zwei", "two", "owner").number == 2
    store.close()
    assert [one.source for one in Corrections(tmp_path).read()] == ["eins", "zwei"]


def test_it_starts_on_a_full_disk(tmp_path: Path) -> None:
    """Lines that are none stay where they are until there is room, and are lost in no case."""
    Corrections(tmp_path).close()
    path = tmp_path / "corrections/corrections.tsv"
    path.write_bytes(b"eins\tone\t1\towner\tnow\nnone\n")
    limits, told = resource.getrlimit(resource.RLIMIT_FSIZE), list[str]()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        store = Corrections(tmp_path, told.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [one.source for one in store.read()] == ["eins"] and "passed over" in told[0]
    assert path.read_bytes().endswith(b"none\n")
    store.append("zwei", "two", "owner")
    assert (tmp_path / "corrections/set-aside.tsv").read_bytes() == b"none\n"


def test_an_update_goes_with_its_correction(tmp_path: Path) -> None:
    """Taken back or replaced; and no number is given twice. Broken variant: updates that stay, as many as there ever were."""
    store, path = learned(tmp_path)
    store.remove(1)
    assert not path.exists()
    store.close()
    store = Corrections(tmp_path)
    for number in range(2, 6):
        assert store.append("eins", f"one {number}", "owner").number == number
        store.keep(number, adapter(), network())
    assert [p.name for p in path.parent.glob("*.safetensors")] == ["000005.safetensors"]
    assert store.updates() == {"000005.safetensors"}


def test_how_many_are_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one key, and in all; one that takes the place of another is none more."""
    monkeypatch.setattr(corrections, "MOST", 3)
    monkeypatch.setattr(corrections, "MOST_OF_ONE", 2)
    store = Corrections(tmp_path)
    for source in ("a", "b"):
        store.append(source, "x", "Anna")
    with pytest.raises(APIError, match="take some back"):
        store.append("c", "x", "Anna")
    store.append("b", "y", "Anna")
    store.append("c", "x", "Bert")
    with pytest.raises(APIError):
        store.append("d", "x", "Carl")
    assert [one.pair for one in store.read()] == [("a", "x"), ("b", "y"), ("c", "x")]


def test_an_update_that_is_not_what_was_learned_is_learned_again(tmp_path: Path) -> None:
    """Broken variant: an update that is applied whatever it holds, if it names the weights."""
    store, path = learned(tmp_path)
    right, net = network(), network()
    assert store.apply(right) == [1] and fingerprint(model_tensors(right)) != fingerprint(model_tensors(net))
    changed = load_file(path) | {"layer.lora_b": adapter(-6.0)["layer.lora_b"]}
    save_file(changed, path, {BESIDE: fingerprint(model_tensors(net))})
    assert store.apply(net) == [] and [one.number for one in store.to_learn([], net)] == [1]
    assert fingerprint(model_tensors(net)) == fingerprint(model_tensors(network()))
    wrong = dict(correction_problems(tmp_path))
    assert wrong["corrections/corrections.tsv"] is None and wrong["corrections/000001.safetensors"] is not None
    store.keep(1, adapter(), net)
    assert store.apply(net) == [1] and not any(wrong for _name, wrong in correction_problems(tmp_path))


def test_updates_of_earlier_versions_are_used_if_they_are_numbers(tmp_path: Path) -> None:
    """They have no digest in the file."""
    store, path = learned(tmp_path)
    store.settle(1, "")
    store.close()
    assert store.path.read_text().count("\t") == 4
    store = Corrections(tmp_path)
    assert store.apply(network()) == [1]
    broken = load_file(path)
    broken["layer.lora_a"][0, 0] = torch.nan
    save_file(broken, path, {BESIDE: fingerprint(model_tensors(network()))})
    assert store.apply(network()) == []
    path.write_bytes(os.urandom(100))
    assert store.apply(network()) == []


def test_what_cannot_be_learned_is_tried_once(tmp_path: Path) -> None:
    """And again with other weights. Broken variant: 100 steps for each of them at every start, before which nobody is taught."""
    store = Corrections(tmp_path)
    store.append("eins", "one", "owner")
    store.refuse(1, network())
    store.close()
    store, other = Corrections(tmp_path), network()
    assert store.to_learn([], other) == []
    with torch.no_grad():
        other["layer"].weight.add_(1)  # type: ignore[index]
    assert [one.number for one in store.to_learn([], other)] == [1]
    assert store.apply(network()) == []
