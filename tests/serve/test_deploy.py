"""The Dockerfile and the systemd unit, as far as they can be tried without a daemon of either."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from glassformer.serve.limits import Limits
from glassformer.serve.middleware import OPEN
from tests.commands import ROOT

pytestmark = pytest.mark.slow

DOCKERFILE = (ROOT / "Dockerfile").read_text()
UNIT = ROOT / "deploy" / "glassformer.service"


def test_the_image_is_made_by_our_own_target_from_files_that_are_there() -> None:
    taken = {name.removeprefix("!") for name in (ROOT / ".dockerignore").read_text().split() if name.startswith("!")}
    copied = [name for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.M) for name in line.split()[:-1]]
    assert copied and all((ROOT / name).exists() and name in taken for name in copied)
    (target,) = re.findall(r"^RUN make (\w+)$", DOCKERFILE, re.M)
    dry = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--constraint constraints.txt" in dry and "'.[serve]'" in dry
    assert re.search(r"^USER (?!root)\w+", DOCKERFILE, re.M) and "STOPSIGNAL SIGTERM" in DOCKERFILE
    (probe,) = re.findall(r"http://127\.0\.0\.1:5000(/\w+)", DOCKERFILE)
    assert probe in OPEN


def test_the_command_of_the_image_is_one() -> None:
    """Its options are understood: what is missing is a key, as it must be on such an address."""
    entry = json.loads(re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.M)[0])
    command = [sys.executable, "-m", "glassformer", *entry[1:], "no-run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2 and "--key-file" in done.stderr and "Traceback" not in done.stderr


def test_the_unit(tmp_path: Path) -> None:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    service = parser["Service"]
    assert float(service["TimeoutStopSec"]) > Limits().drain_seconds and service["NoNewPrivileges"] == "yes"
    options = re.findall(r"--[\w-]+", service["ExecStart"])
    shown = subprocess.run(
        [sys.executable, "-m", "glassformer", "serve", "--help"], capture_output=True, text=True, cwd=ROOT, timeout=120
    ).stdout
    assert options and all(option in shown for option in options)
    if (analyze := shutil.which("systemd-analyze")) is not None:
        # The program is not installed here; one that is stands in for it.
        unit = tmp_path / "glassformer.service"
        unit.write_text(
            UNIT.read_text().replace("/opt/glassformer/.venv/bin/glassformer", shutil.which("true") or "/bin/true")
        )
        done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
        assert done.returncode == 0 and not (done.stdout + done.stderr).strip()
