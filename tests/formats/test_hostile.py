"""Files made to do harm: no code is run, nothing outside the folder is opened, each ends in one sentence."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.dialect import labels_of
from glassformer.formats.untrusted import inside, read_json, read_tensors

TENSOR = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
NUMBERS = bytes(24)


def whole(header: Any, numbers: bytes = NUMBERS, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + numbers


def changed(**facts: Any) -> bytes:
    return whole({"w": TENSOR | facts})


FILES: dict[str, bytes] = {
    "empty": b"",
    "a header of 2^63 bytes": whole({"w": TENSOR}, length=2**63),
    "a header that is no JSON": whole(b"{not json"),
    "a header that is a list": whole([1, 2]),
    "a header nested without end": whole(b"[" * 100_000),
    "a header that is not UTF-8": whole(b'{"\xff": 1}'),
    "an entry that is a text": whole({"w": "F32"}),
    "no type": whole({"w": {"shape": [2, 3], "data_offsets": [0, 24]}}),
    "an unknown type": changed(dtype="PICKLE"),
    "a negative shape": changed(shape=[-2, -3]),
    "a shape whose product overflows": changed(shape=[2**40, 2**40]),
    "a shape of a thousand dimensions": changed(shape=[1] * 1000),
    "a shape that is not its bytes": changed(shape=[3, 3]),
    "places the other way round": changed(data_offsets=[24, 0]),
    "places beyond the file": changed(shape=[2, 300], data_offsets=[0, 2400]),
    "tensors that overlap": whole({"a": TENSOR, "b": TENSOR}),
    "tensors with a gap": whole({"a": TENSOR, "b": TENSOR | {"data_offsets": [30, 54]}}, bytes(54)),
    "numbers left over": whole({"w": TENSOR}, bytes(30)),
    "numbers cut off": whole({"w": TENSOR}, bytes(10)),
    "a pickle under the name": pickle.dumps({"w": [1, 2]}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(FILES[name])
    with pytest.raises(UserError, match="safetensors"):
        read_tensors(tmp_path)


INDEXES: dict[str, Any] = {
    "climbs out": {"weight_map": {"w": "../secret.safetensors"}},
    "climbs out deeper": {"weight_map": {"w": "a/../../secret.safetensors"}},
    "is absolute": {"weight_map": {"w": "/etc/passwd"}},
    "names a folder below": {"weight_map": {"w": "sub/model.safetensors"}},
    "names itself with a dot": {"weight_map": {"w": "."}},
    "looks like a prefix": {"weight_map": {"w": "..model-evil/x.safetensors"}},
    "has a backslash": {"weight_map": {"w": "..\\secret.safetensors"}},
    "has a zero byte": {"weight_map": {"w": "model\0.safetensors"}},
    "follows a link": {"weight_map": {"w": "link.safetensors"}},
    "names a pipe": {"weight_map": {"w": "pipe"}},
    "names what is not there": {"weight_map": {"w": "gone.safetensors"}},
    "maps to a number": {"weight_map": {"w": 7}},
    "has no map": {},
    "is a list": [1],
}


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_reaches_nothing_outside(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variants: `folder / name` taken as it is; a prefix test by text, which a look-alike folder passes."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "model-evil").mkdir()
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(save({"w": torch.zeros(2)}))
    (tmp_path / "model-evil" / "x.safetensors").write_bytes(secret.read_bytes())
    (folder / "link.safetensors").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    (folder / "model.safetensors.index.json").write_text(json.dumps(INDEXES[name]))
    opened: list[str] = []
    real = builtins.open

    def watched(file: Any, *args: Any, **kwargs: Any) -> Any:
        opened.append(str(file))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", watched)
    with pytest.raises(UserError):
        read_tensors(folder)
    assert not [path for path in opened if "secret" in path or "evil" in path or path.startswith("/etc")]


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "ckpt.pt"])
def test_a_pickle_is_refused_and_not_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(UserError, match="safe_serialization=True"):
        read_tensors(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_good_file_is_read(tmp_path: Path) -> None:
    """The same checks let through what is right, in one file or in two."""
    tensors = {"w": torch.randn(2, 3), "half": torch.randn(4).half(), "ids": torch.arange(3)}
    (tmp_path / "model.safetensors").write_bytes(save(tensors))
    found = read_tensors(tmp_path)
    assert found.keys() == {"w", "half"}
    assert torch.equal(found["w"], tensors["w"])
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").write_bytes(save({"v": torch.ones(1)}))
    index = {"weight_map": {"w": "a.safetensors", "half": "a.safetensors", "v": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_tensors(tmp_path).keys() == {"w", "half", "v"}


def test_json_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": "' + "x" * 2_000_000 + '"}')
    with pytest.raises(UserError, match="at most"):
        read_json(tmp_path, "config.json")
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="not JSON"):
        read_json(tmp_path, "config.json")
    with pytest.raises(UserError, match="plain name"):
        inside(tmp_path, "../config.json")


def test_numbers_of_labels_that_are_none_are_no_defect() -> None:
    """Broken variant: whatever is a digit is read as a number; Python takes no ², and no number of 5,000 digits."""
    assert labels_of({"id2label": {"1": "good", "0": "bad"}}) == ["bad", "good"]
    assert sorted(labels_of({"id2label": {"²": "a", "9" * 5000: "b"}})) == ["a", "b"]
