"""constraints.txt is held to the metadata of those who ask, for each Python and platform, as the public index tells it.

tools/pins.py made tests/fixtures/pins.json. A pin that was moved without it has no row there, so that no pin is believed unread;
the broken variant is a pin such as triton==3.5.1 beside a torch that asks for triton==3.7.1.
"""

from __future__ import annotations

import functools
import json
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.pins import FIXTURE, PLATFORMS, PYTHONS, ROOT, SOURCES, environment, pins, version_of

UNPINNED = (
    "nvidia-",
    "cuda-",
    "setuptools",
    "pip",
    "wheel",
)  # torch itself says which of CUDA's packages, to the version


@functools.cache
def metadata() -> dict[str, dict]:
    return json.loads(FIXTURE.read_text())  # type: ignore[no-any-return]


@functools.cache
def extras() -> dict[str, list[Requirement]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {"": project["dependencies"]} | project["optional-dependencies"]
    return {name: [Requirement(line) for line in lines] for name, lines in named.items()}


def complaints(extra: str, python: str, platform: str, held: list[Requirement], seen: dict[str, dict]) -> list[str]:
    """What pip would refuse of `torch '.[extra]'` there: a pin outside what is asked for, not to be had, or no pin at all."""
    kind = environment(python, platform)
    pinned = {
        canonicalize_name(pin.name): version_of(pin) for pin in held if pin.marker is None or pin.marker.evaluate(kind)
    }
    refused: list[str] = []
    waiting = [("glassformer", need, "") for need in extras()[""]]
    waiting += [("glassformer", need, "") for need in extras()[extra]]
    done: set[tuple[str, str]] = set()
    while waiting:
        asker, need, of_extra = waiting.pop()
        if need.marker is not None and not need.marker.evaluate(kind | {"extra": of_extra}):
            continue
        name = canonicalize_name(need.name)
        if name == "glassformer":
            waiting += [(f"glassformer[{part}]", each, "") for part in need.extras for each in extras()[part]]
            continue
        if name.startswith(UNPINNED):
            continue
        version = pinned.get(name)
        if version is None:
            refused.append(f"{asker} asks for {name}, which has no pin")
            continue
        if not need.specifier.contains(version, prereleases=True):
            refused.append(f"{asker} asks for {need}, the pin is {version}")
        wanted = {(name, part) for part in ("", *need.extras)} - done
        done |= wanted
        row = seen.get(f"{name}=={version}", {})
        if name in SOURCES:
            continue
        if f"{python} {platform}" not in row.get("on", ()):
            refused.append(f"{name}=={version} is not to be had")
        waiting += [
            (f"{name}=={version}", Requirement(line), part)
            for _, part in wanted
            for line in row.get("requires_dist", ())
        ]
    return refused


@pytest.mark.parametrize("extra", ["demo", "dev", "serve", "docs", "ray"])
def test_the_pins_agree_with_those_who_ask(extra: str) -> None:
    found = {
        (python, platform): refused
        for python in PYTHONS
        for platform in PLATFORMS
        if (refused := complaints(extra, python, platform, pins(), metadata()))
    }
    assert found == {}


def test_a_pin_that_torch_does_not_ask_for_is_seen() -> None:
    held = [Requirement("triton==3.5.1") if pin.name == "triton" else pin for pin in pins()]
    refused = complaints("demo", "3.12", "linux-x86_64", held, metadata())
    assert any("triton" in line and "the pin is 3.5.1" in line for line in refused)


def test_every_pin_has_been_read() -> None:
    read = {f"{canonicalize_name(pin.name)}=={version_of(pin)}" for pin in pins() if pin.name not in SOURCES}
    assert read <= set(metadata()), f"run tools/pins.py: {sorted(read - set(metadata()))}"


def test_the_oldest_python_of_the_package_can_have_them() -> None:
    """A package that wants a later 3.11 than 3.11.0 would stop people whose system has that one."""
    late = {
        name: row["requires_python"]
        for name, row in metadata().items()
        if "3.11 linux-x86_64" in row["on"]
        and not SpecifierSet(row.get("requires_python", "")).contains(Version("3.11.0"))
    }
    assert late == {}
