"""What every pinned package asks for and where it can be had, as a public index tells it:  python3 tools/pins.py URL_OF_INDEX

Writes tests/fixtures/pins.json from the index's pages (URL/simple/NAME/) and the metadata beside each wheel. By that file
tests/test_pins.py holds constraints.txt to the requirements of those who ask, without a network, for each Python and platform.
The environment at hand would not do: a CPU build of torch asks for less than the public one, and other platforms' packages
ask for other things.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from email import message_from_string
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[1]
CONSTRAINTS, FIXTURE = ROOT / "constraints.txt", ROOT / "tests" / "fixtures" / "pins.json"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("linux-x86_64", "linux-aarch64", "macos-arm64")
SOURCES = ("jieba",)  # has no wheel; its source is plain Python, which pip builds anywhere
OLDEST_GLIBC, OLDEST_MACOS = 34, 15  # glibc 2.34 is of 2021, macOS 15 of 2024


def pins() -> list[Requirement]:
    """The lines of constraints.txt."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def version_of(pin: Requirement) -> str:
    """The one version that a pin names."""
    (exact,) = pin.specifier
    assert exact.operator == "==", f"{pin} is no pin"
    return exact.version


def environment(python: str, platform: str) -> dict[str, str]:
    """What a requirement's marker is evaluated with on a machine of that kind."""
    system, _, machine = platform.partition("-")
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "darwin" if system == "macos" else system,
        "platform_system": "Darwin" if system == "macos" else "Linux",
        "platform_machine": machine,
    }


def suits(tag_platform: str, platform: str) -> bool:
    """Does a wheel of this platform tag run on such a machine?"""
    system, _, machine = platform.partition("-")
    if tag_platform == "any":
        return True
    if system == "linux":
        named, _, oldest = tag_platform.removesuffix(f"_{machine}").rpartition("_")
        is_old = tag_platform.startswith(("manylinux1_", "manylinux2010_", "manylinux2014_"))
        return tag_platform.endswith(machine) and (is_old or (named == "manylinux_2" and int(oldest) <= OLDEST_GLIBC))
    return (
        tag_platform.startswith("macosx_")
        and tag_platform.endswith(("arm64", "universal2"))
        and (int(tag_platform.split("_")[1]) <= OLDEST_MACOS)
    )


def runs_on(files: Iterable[str], python: str, platform: str) -> bool:
    """Is one of a release's files a wheel for this Python on such a machine?"""
    minor = int(python.partition(".")[2])
    for name in files:
        if not name.endswith(".whl"):
            continue
        for tag in parse_wheel_filename(name)[3]:
            stable = tag.abi == "abi3" and tag.interpreter.startswith("cp3") and int(tag.interpreter[3:]) <= minor
            plain = tag.abi == "none" and tag.interpreter in ("py3", f"py3{minor}", f"cp3{minor}")
            own = tag.interpreter == tag.abi == f"cp3{minor}"
            if (stable or plain or own) and suits(tag.platform, platform):
                return True
    return False


def read_metadata(wheel: str) -> str:
    """A wheel's METADATA: the file beside it, or, where an index has none of an old one, out of the wheel itself."""
    try:
        with urlopen(f"{wheel}.metadata", timeout=60) as page:
            return str(page.read().decode())
    except HTTPError:
        with urlopen(wheel, timeout=300) as page, zipfile.ZipFile(io.BytesIO(page.read())) as archive:
            # A wheel may have others within it, of what it brings along.
            (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+[.]dist-info/METADATA", name))
            return archive.read(name).decode()


def read_pin(index: str, pin: Requirement) -> tuple[str, dict]:
    """A pin's requirements, the Python it wants, and the machines that it can be had for."""
    name, version = canonicalize_name(pin.name), version_of(pin)
    with urlopen(f"{index.rstrip('/')}/simple/{name}/", timeout=60) as page:
        addresses = re.findall(r'href="([^"#]+[.]whl)[#"]', page.read().decode())
    wheels = {address.rpartition("/")[2]: address for address in addresses if f"-{version}-" in address}
    on = [f"{python} {platform}" for python in PYTHONS for platform in PLATFORMS if runs_on(wheels, python, platform)]
    asked: dict[str, list[str]] = {"Requires-Python": [], "Requires-Dist": []}
    if wheels:
        metadata = message_from_string(read_metadata(next(iter(wheels.values()))))
        asked = {field: metadata.get_all(field, []) for field in asked}
    return f"{name}=={version}", {
        "requires_python": "".join(asked["Requires-Python"]), "requires_dist": asked["Requires-Dist"], "on": on,
    }  # fmt: skip


if __name__ == "__main__":
    with ThreadPoolExecutor(8) as pool:
        rows = dict(pool.map(lambda pin: read_pin(sys.argv[1], pin), pins()))
    FIXTURE.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")
