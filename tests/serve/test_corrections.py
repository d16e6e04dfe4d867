"""`serve --suggestions`: a correction is kept, answered from then on, taken back; by whom it may, and whatever the disk does."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from glassformer.api.loading import load
from glassformer.errors import UserError
from glassformer.runs.corrections import correction_problems, read_corrections
from glassformer.serve import corrections
from glassformer.serve.auth import Auth
from glassformer.serve.corrections import Corrections
from glassformer.serve.requests import APIError
from glassformer.tasks import translate
from tests.commands import call
from tests.serve.harness import Running, events_of, make_runs, running
from tests.small_runs import small_run

OWNER, GUEST = "the-owner-has-this-key", "a-guest-has-this-one"
ASKED = {"source": "en", "target": "de"}
TEXT, RIGHT = "the cat sat.", "die Katze saß."


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_runs(tmp_path, "translator")[0]


def suggest(server: Running, text: str = TEXT, right: str = RIGHT, **more: Any) -> tuple[int, Any]:
    status, _, content = server.ask("POST", "/suggest", {**ASKED, "q": text, "s": right, **more})
    return status, content


def test_a_correction_is_answered_until_it_is_undone(run: Path) -> None:
    """In every dialect, streamed too; other texts are answered as before, and a server that starts later has it, too."""
    with running([run], corrections=True) as server:
        assert server.ask("GET", "/frontend/settings")[2]["suggestions"] is True
        former = server.post("/translate", {**ASKED, "q": [TEXT, "a dog"]})["translatedText"]
        assert suggest(server)[1] == {"success": True, "model": "translator", "id": 1}
    with running([run], corrections=True) as server:
        asked = {**ASKED, "q": [TEXT, "a dog", f" {TEXT} "], "scores": True, "alignment": True, "alternatives": 1}
        found = server.post("/translate", asked)
        assert found["translatedText"] == [RIGHT, former[1], RIGHT] and found["alternatives"][0] == []
        events = events_of(server.ask("POST", "/translate", {**ASKED, "q": TEXT, "stream": True})[2])
        assert events == [{"delta": RIGHT}, {"translatedText": RIGHT}]
        asked = {"model": "translator", "prompt": TEXT}
        assert server.post("/v1/completions", asked)["choices"][0]["text"] == RIGHT
        assert suggest(server, right="die Katze sitzt.")[1]["id"] == 2
        assert server.ask("POST", "/undo", {"id": 1, "model": "translator"})[0] == 400
        assert server.post("/undo", {"id": 2, "model": "translator"}) == {"success": True}
        assert server.post("/translate", {**ASKED, "q": TEXT})["translatedText"] == former[0]


def test_without_the_option_nothing_is_taken_or_written(run: Path) -> None:
    with running([run]) as server:
        assert server.ask("GET", "/frontend/settings")[2]["suggestions"] is False
        assert suggest(server)[0] == 403
    assert not (run / "corrections").exists()


def test_by_key(run: Path) -> None:
    with running([run], auth=Auth({OWNER: "owner", GUEST: "a guest"}), corrections=True) as server:
        assert suggest(server)[0] == suggest(server, api_key="wrong")[0] == 403
        assert suggest(server, api_key=OWNER)[1]["id"] == 1
        undo = {"id": 1, "model": "translator"}
        assert server.ask("POST", "/undo", undo | {"api_key": GUEST})[0] == 403
        assert suggest(server, "a dog", "ein Hund", api_key=GUEST)[1]["id"] == 2
        assert "\ta guest\t" in (run / "corrections/corrections.tsv").read_text(encoding="utf-8")
        assert server.post("/undo", undo | {"id": 2, "api_key": OWNER})
        assert not any(secret in "\n".join(server.log) for secret in (OWNER, GUEST, RIGHT))
        for text, right in ((TEXT, ""), ("eins\tzwei", "one"), (TEXT, "one\ntwo")):
            status, content = suggest(server, text, right, api_key=OWNER)
            assert status == 400 and content["error"], (text, right)


STRANGE = {
    "a number that is a superscript": "vier\tfour\t²\towner\tnow".encode(),
    "a number of 5,000 digits": b"vier\tfour\t" + b"9" * 5000 + b"\towner\tnow",
    "no UTF-8": b"vier\tfo\xffur\t2\towner\tnow",
    "a torn end": b"vier\tfour\t2",
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE.keys())
def test_lines_that_are_none_are_passed_over_and_kept(line: bytes, tmp_path: Path) -> None:
    """Broken variants: `isdigit`, which a superscript is, and a server that does not start."""
    store = Corrections(tmp_path)
    store.add("eins", "one", "owner")
    assert not any(wrong for _name, wrong in correction_problems(tmp_path))
    store.path.write_bytes(store.path.read_bytes() + line)
    assert any(wrong for _name, wrong in correction_problems(tmp_path))
    assert store.by_source() == {"eins": "one"}
    assert store.add("drei", "three", "owner") == 2 and line + b"\n" in store.path.read_bytes()


def test_lines_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """They say what became of each when it was learned."""
    Corrections(tmp_path).path.write_text(f"eins\tone\t7\towner\tnow\t{'0' * 64}\n")
    assert Corrections(tmp_path).by_source() == {"eins": "one"} and Corrections(tmp_path).add("a", "b", "c") == 8


def test_a_full_disk_tears_nothing(tmp_path: Path) -> None:
    """By the kernel's own limit: the one that was sent is refused in a sentence, and the others are there."""
    store = Corrections(tmp_path)
    store.add("eins", "one", "owner")
    size, limits = store.path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    for most in range(size, 2 * size, 7):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        try:
            with pytest.raises(APIError, match="cannot be written here now") as refused:
                store.add("zwei", "two", "owner")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert refused.value.status == 507
        assert store.by_source() == {"eins": "one"} and read_corrections(store.path)[1] == []
    assert store.add("zwei", "two", "owner") == 2


def test_how_many_are_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the place of another is none more; and servers that share a run share its corrections."""
    monkeypatch.setattr(corrections, "MOST", 2)
    store, other = Corrections(tmp_path), Corrections(tmp_path)
    store.add("a", "x", "Anna")
    other.add("b", "x", "Bert")
    with pytest.raises(APIError, match="take some back"):
        store.add("c", "x", "Anna")
    other.add("b", "y", "Anna")
    assert store.by_source() == {"a": "x", "b": "y"}


def test_a_folder_or_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "corrections").mkdir()
    (tmp_path / "corrections/corrections.tsv").write_text("mine\n")
    with pytest.raises(UserError, match="was not written by this command"):
        Corrections(tmp_path)
    assert (tmp_path / "corrections/corrections.tsv").read_text() == "mine\n"


@pytest.mark.slow
def test_the_file_can_be_trained_on(tmp_path: Path) -> None:
    """By all weights, from the columns that the file has, beside the pairs that the run keeps."""
    run = small_run(tmp_path / "data", "pairs", name="numbers").path
    store = Corrections(run)
    store.add("eins zwei", "nine nine", "owner")
    out = tmp_path / "permanent"
    settings = ["train.steps=100", "train.warmup=5", "train.learning_rate=5e-3", "train.device=cpu"]
    done = call("train", store.path, *settings, "--from", run, "--out", out)
    assert done.returncode == 0, done.stderr
    assert translate(load(out, device="cpu"), ["eins zwei"])[0][0].text == "nine nine"
