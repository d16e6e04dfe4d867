"""What is not installed is named with a command that can be had: the package is on no index."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import install_hint, packages_of

ROOT = Path(__file__).parents[1]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as a wheel leaves it: no pyproject beside it, and the metadata of our extras and of one more."""
    facts = tmp_path / "glassformer-0.1.0.dist-info" / "METADATA"
    facts.parent.mkdir()
    more = EXTRAS | {"odd": ["numpy>=1", "no_such.package-1>=2,<3"], "both": ["glassformer[zh, odd]"]}
    asked = [f'{one}; extra == "{extra}"' for extra, own in more.items() for one in own if ";" not in one]
    lines = ["Metadata-Version: 2.1", "Name: glassformer", "Version: 0.1.0", *(f"Requires-Dist: {a}" for a in asked)]
    facts.write_text("\n".join(lines) + "\n")
    path = tmp_path / "glassformer" / "errors.py"
    path.parent.mkdir()
    path.write_bytes((ROOT / "glassformer" / "errors.py").read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("errors_of_a_wheel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_checkout_is_installed_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From its own folder and from another; both are what pip reads."""
    monkeypatch.chdir(ROOT)
    assert install_hint("serve") == "pip install -c constraints.txt -e '.[serve]'"
    monkeypatch.chdir(tmp_path)
    assert install_hint("zh") == f"pip install -c {ROOT}/constraints.txt -e '{ROOT}[zh]'"


def test_beside_a_wheel_the_missing_packages_are_named(installed: Any) -> None:
    """Broken variants: our own name, a version left in, what is there already, an extra of extras."""
    assert installed.install_hint("odd") == "pip install no_such.package-1"
    assert installed.packages_of("serve") == [re.split("[>=]", one)[0] for one in EXTRAS["serve"]]
    assert installed.packages_of("both") == ["jieba", "numpy", "no_such.package-1"]
    assert installed.packages_of("no-such-extra") == []


def test_every_hint_names_an_extra_that_is_there() -> None:
    """And nobody writes a hint of his own."""
    for path in [*(ROOT / "glassformer").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("README*.md")]:
        text = path.read_text(encoding="utf-8")
        assert "install 'glassformer[" not in text, path
        named = re.findall(r"install_hint\(['\"](\w+)['\"]\)", text) + re.findall(r"-e '\.\[(\w+)\]'", text)
        assert set(named) <= EXTRAS.keys(), path
    assert set(packages_of("serve")) <= {re.split("[>=]", one)[0] for one in EXTRAS["serve"]}
