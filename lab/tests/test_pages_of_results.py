"""The pages of claims, of the paper and of ablations are written from what the verbs of the laboratory left in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_claims import CALLS, made_up

from glassformer_lab.claims.claim import QUICK
from glassformer_lab.claims.report import run
from tests.test_pages import loaded


@pytest.mark.slow
def test_each_claim_that_was_measured_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both languages, with its verdict in its colour and a figure in its language; the page of all leads to it. Broken
    variants: the Chinese figure written over the English one; a page of a claim that has changed since left behind."""
    tool, study = loaded("make_claims"), made_up()
    docs = tmp_path / "docs"
    (docs / "claims").mkdir(parents=True)
    (docs / "claims" / "gone.md").write_text("of a claim that has changed", encoding="utf-8")
    names = {"DEFAULT": QUICK, "DOCS": docs, "KEPT": docs / "figures" / "claims", "MEASURED": tmp_path / "m.json"}
    for name, value in {**names, "all_claims": lambda: [study]}.items():
        monkeypatch.setattr(tool, name, value)
    monkeypatch.setitem(tool.CHINESE, "values", "数值")
    CALLS[:] = range(9)  # of its trials none is broken off
    run(study, QUICK, tmp_path / "study", jobs=1)
    tool.main([tmp_path / "study"])
    assert sorted(path.name for path in (docs / "claims").iterdir()) == ["made-up.md", "made-up.zh.md"]
    for ending, words in (("", "holds"), (".zh", "成立")):
        page = (docs / "claims" / f"made-up{ending}.md").read_text(encoding="utf-8")
        assert f'<span class="verdict holds">{words}' in page and f"(../figures/claims/made-up{ending}.svg)" in page
        assert f"(claims/made-up{ending}.md)" in (docs / f"claims{ending}.md").read_text(encoding="utf-8")
    english, chinese = ((docs / "figures" / "claims" / f"made-up{e}.svg").read_bytes() for e in ("", ".zh"))
    assert english != chinese and b"<svg" in english and b"<svg" in chinese
    assert tool.said("16, training of 8 blocks", "zh") == "16，8 层的训练" and tool.said("with", "en") == "with"


def test_the_page_of_the_paper_is_that_of_its_numbers(tmp_path: Path) -> None:
    """In both languages. Broken variant: a page that was changed by hand, and is lost when it is written anew."""
    tool = loaded("make_paper")
    tool.main(tmp_path)
    for name in ("paper.md", "paper.zh.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (tool.DOCS / name).read_text(encoding="utf-8")


def test_the_page_of_ablations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table and a figure for each in both languages, from the JSON that `sweep` writes. Every ready variant but those that
    are spelled as settings has Chinese words. Broken variant: a group without its Chinese."""
    from glassformer.evaluation.significance import Interval, Paired
    from glassformer_lab.sweep.variants import find_ready

    tool, docs, made = loaded("make_ablations"), tmp_path / "docs", tmp_path / "made"
    monkeypatch.setattr(tool, "DOCS", docs)
    monkeypatch.setattr(tool, "KEPT", docs / "figures" / "ablations")
    made.mkdir()
    (made / "curves.svg").write_text("<svg/>", encoding="utf-8")
    test = Paired(*[Interval(-1.5, -2.0, -1.0)] * 3, p=0.01).to_dict() | {"verdict": "worse"}
    rows: list[dict[str, Any]] = [
        {"name": "base", "group": "", "settings": [], "parameters": 1200, "tests": {}, "steps": 2500},
        {"name": "rotary", "group": "positions", "settings": ["model.positions=rotary"], "parameters": 1200},
    ]
    rows[0]["scores"] = {"loss": {"mean": 1.25, "spread": 0.1}}
    rows[1] |= {"scores": {}, "tests": {"loss": test}}
    facts = {"about": "of a test", "command": "glassformer sweep x", "machine": "M", "date": "2026-11-18", "seeds": 3}
    found = {"name": "x", "metric": "loss", "rows": rows, **facts}
    (made / "ablation.json").write_text(json.dumps(found), encoding="utf-8")
    tool.main([made])
    english, chinese = ((docs / f"ablations{ending}.md").read_text(encoding="utf-8") for ending in ("", ".zh"))
    assert "| base |  | 1,200 | 1.25 ± 0.1 |" in english and "| rotary | `model.positions=rotary` |" in english
    assert "| -1.5 [-2, -1] | worse |" in english and "| **位置** |" in chinese and "| 更差 |" in chinese
    assert all("(figures/ablations/x.svg)" in page for page in (english, chinese))
    assert "3 seeds, 2,500 steps, M" in english and "2,500 步，M" in chinese
    for name in ("parts", "gpt-ablation"):
        ready = find_ready(name)
        assert ready is not None and {ready.about, *(one.group for one in ready.variants)} <= tool.CHINESE.keys()
