"""The Dockerfile, the systemd unit, compose and Kubernetes, as far as they can be tried without a daemon of theirs."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from glassformer.serve.middleware import OPEN
from glassformer.serve.requests import Limits
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


def checked_options(words: list[str]) -> None:
    """The words that follow the image's entry point are a run and options that the command understands: the run is missing."""
    entry = json.loads(re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.M)[0])
    command = [sys.executable, "-m", "glassformer", *entry[1:], *words]
    environment = {**os.environ, "GLASSFORMER_API_KEY": "x" * 40}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, env=environment)
    assert done.returncode == 2 and words[0] in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_compose_and_its_proxy() -> None:
    """Broken variants: a service the proxy does not reach by its name, a secret or volume that nobody declares, less time to stop
    than answers are given, another port than the image's."""
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    server, proxy = compose["services"]["glassformer"], compose["services"]["proxy"]
    assert (ROOT / "deploy" / server["build"] / "Dockerfile").exists()
    assert set(server["secrets"]) <= set(compose["secrets"])
    named = {volume.split(":")[0] for volume in proxy["volumes"] if not volume.startswith(".")}
    assert named == set(compose["volumes"]) and set(proxy["depends_on"]) == {"glassformer"}
    assert float(server["stop_grace_period"].removesuffix("s")) > Limits().drain_seconds
    words = server["command"]
    host = words[words.index("--allow-host") + 1]
    caddy = (ROOT / "deploy" / "Caddyfile").read_text()
    (port,) = re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.M)
    hosts = [after for word, after in itertools.pairwise(words) if word == "--allow-host"]
    assert "glassformer" in hosts, "the proxy asks for health by the name of the service"
    assert f"\n{host} {{" in caddy and f"reverse_proxy glassformer:{port} " in caddy
    (probe,) = re.findall(r"health_uri (\S+)", caddy)
    (seconds,) = re.findall(r"response_header_timeout (\d+)s", caddy)
    assert probe in OPEN and float(seconds) > Limits().seconds
    checked_options([word for word in words if word not in ("--key-file", "/run/secrets/key")])


def test_the_manifest_of_the_server() -> None:
    """Broken variants: a probe that needs the key, a mount without its volume, labels that select no pod, a host name that
    the server does not answer to."""
    deployment, service = yaml.safe_load_all((ROOT / "deploy" / "kubernetes-serve.yaml").read_text())
    template = deployment["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    (container,) = pod["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    (port,) = container["ports"]
    assert f"EXPOSE {port['containerPort']}\n" in DOCKERFILE
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[kind]["httpGet"]
        assert get["path"] in OPEN and get["port"] == port["name"]
    assert pod["terminationGracePeriodSeconds"] > Limits().drain_seconds
    assert f"--uid {pod['securityContext']['runAsUser']} " in DOCKERFILE
    words = container["args"]
    assert words[words.index("--allow-host") + 1] == service["metadata"]["name"]
    checked_options([word for word in words if word not in ("--key-file", "/key/key")])
