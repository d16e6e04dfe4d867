"""The verbs that talk to a run: lines in, lines out. What concerns pipes, signals and exit codes runs in processes of its
own; the rest calls the verb."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glassformer.api import load
from glassformer.cli import generate, lines, translate
from glassformer.decode import driver
from glassformer.errors import ConfigError, UserError
from tests import commands
from tests.talking import SENTENCES, make_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXTS = ["the cat", "", "Anna lives in Rome", "a dog ran to the river", "  ", "3 mai 1979"]


def arguments(verb: str, *given: Any) -> list[str]:
    return [sys.executable, "-m", "glassformer", verb, *map(str, given)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def call(verb: str, *given: Any, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = commands.call(verb, *given, stdin=stdin, drawn=False)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.encode(), done.stderr.encode())


RECIPE = """
[model]
n_layer = 1
n_head = 2
n_embd = 32
block_size = 48
dropout = 0.0
[data]
train = "pairs.tsv"
path = "{folder}"
val_fraction = 0.1
tokenizer = "char"
batch_tokens = 512
[train]
steps = 20
validate_every = 20
warmup = 5
learning_rate = 5e-3
device = "cpu"
[decode]
max_new_tokens = 12
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, trained for a moment."""
    folder = tmp_path_factory.mktemp("trained")
    words = " ".join(SENTENCES).split()
    draw = random.Random(1)
    pairs = [draw.choices(words, k=draw.randint(1, 4)) for _ in range(300)]
    lines_of_pairs = [f"{' '.join(pair)}\t{' '.join(pair[::-1])}\n" for pair in pairs]
    (folder / "pairs.tsv").write_text("".join(lines_of_pairs), encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE.format(folder=folder), encoding="utf-8")
    done = call("train", folder / "recipe.toml", "--out", folder / "run")
    assert done.returncode == 0, done.stderr.decode()
    return folder / "run"


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that was never trained."""
    return make_run(tmp_path_factory.mktemp("random") / "run")


# ---- translate


def test_arguments_stdin_and_file_give_the_same_answers(run: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    by_argument = call("translate", run, *TEXTS)
    by_pipe = call("translate", run, stdin=source.read_bytes())
    by_file = call("translate", run, "--file", source, "--out", tmp_path / "out.txt")
    expected = load(run).translate(TEXTS)
    assert by_argument.returncode == by_pipe.returncode == by_file.returncode == 0
    assert by_argument.stdout.decode().split("\n")[:-1] == expected
    assert by_argument.stdout == by_pipe.stdout == (tmp_path / "out.txt").read_bytes()
    assert by_file.stdout == b"" and by_file.stderr == b""


def test_a_bad_line_costs_a_sentence_and_not_its_neighbours(run: Path, tmp_path: Path) -> None:
    """Not UTF-8, half a character, a NUL, a megabyte, a glossary term that cannot be written."""
    glossary = tmp_path / "glossary.tsv"
    glossary.write_text("cat\t1979\nriver\t丂\n", encoding="utf-8")
    bad = [b"\xff\xfe", "\ud800".encode("utf-8", "surrogatepass"), b"a\0b", b"x" * 1_000_000, b"the river"]
    stdin = b"Anna\n" + b"\n".join(bad) + b"\n\nthe cat\n"
    done = call("translate", run, "--glossary", glossary, stdin=stdin)
    out, said = done.stdout.decode().split("\n"), done.stderr.decode().splitlines()
    model = load(run)
    assert out == [
        *model.translate(["Anna"]),
        *[""] * 6,
        *model.translate(["the cat"], glossary={"cat": "1979"}),
        "",
    ]
    assert "1979" in out[7] and done.returncode == 1
    assert [line.split(":")[1] for line in said] == [f" line {n}" for n in range(2, 7)]
    for line, word in zip(said, ["UTF-8", "UTF-8", "NUL", "bytes", "丂"], strict=True):
        assert word in line


def test_a_reader_who_leaves_and_one_who_waits_for_each_line(run: Path) -> None:
    """`yes | translate | head` ends; a line is answered before the next is typed. Caught: answers held until stdin ends."""
    script = f"yes 'the cat' | '{sys.executable}' -m glassformer translate '{run}' | head -n 3"
    shell = ["bash", "-c", script + '; echo "${PIPESTATUS[1]}"']
    done = subprocess.run(shell, capture_output=True, cwd=ROOT, env=environment(), timeout=120, check=True)
    answer = load(run).translate(["the cat"])[0]
    assert done.stdout.decode().splitlines() == [answer] * 3 + ["0"] and done.stderr == b""
    talking = subprocess.Popen(
        arguments("translate", run), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment()
    )
    assert talking.stdin is not None and talking.stdout is not None
    for _ in range(2):
        talking.stdin.write(b"the cat\n")
        talking.stdin.flush()
        assert talking.stdout.readline().decode() == answer + "\n"
    talking.stdin.close()
    assert talking.wait(timeout=60) == 0


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return capfd.readouterr().out.split("\n")[:-1]


def test_n_best_has_as_many_lines_for_every_text(quick_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    translate.translate(quick_run, ["the cat", "", "Anna"], n_best=3, scores=True, align=True)
    out = said(capfd)
    assert len(out) == 9 and out[3:6] == ["", "", ""]
    answers = [found.answers for found in load(quick_run).translate(["the cat", "Anna"], n_best=3, align=True)]
    for line, answer in zip(out[:3] + out[6:], [a for own in answers for a in own], strict=True):
        score, text, links = line.split("\t")
        assert float(score) == pytest.approx(answer.score, abs=1e-3) and text == answer.text
        assert [tuple(map(int, link.split("-"))) for link in links.split()] == answer.links
    translate.translate(quick_run, ["the cat"], temperature=1.5, num_samples=4, seed=9)
    drawn = said(capfd)
    assert len(drawn) == 4 and len(set(drawn)) > 1
    translate.translate(quick_run, ["Anna", "the cat"], temperature=1.5, num_samples=4, seed=9)
    assert said(capfd)[4:] == drawn


def test_alignment_by_words_is_that_of_their_letters(quick_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Pharaoh's form, against words counted by `split`. Caught: links of letters, words counted from 1, sides exchanged."""
    texts, options = ["the cat", "a dog sat"], {"temperature": 1.5, "num_samples": 8, "seed": 9}
    translate.translate(quick_run, texts, settings=["align_words=true"], **options)
    out = said(capfd)
    translate.translate(quick_run, texts, settings=["align_words=true"], as_json=True, **options)
    facts = [answer["word_links"] for line in said(capfd) for answer in json.loads(line)["answers"]]

    def word_at(text: str, place: int) -> int | None:
        return None if place >= len(text) or text[place].isspace() else len(text[: place + 1].split()) - 1

    answers = [
        (t, a) for t, f in zip(texts, load(quick_run).translate(texts, align=True, **options)) for a in f.answers
    ]
    seen = set()
    for line, own, (text, answer) in zip(out, facts, answers, strict=True):
        pairs = {(word_at(text, s), word_at(answer.text, t)) for s, t in answer.links}
        wanted = sorted(pair for pair in pairs if None not in pair)
        written, links = line.split("\t")
        assert written == answer.text
        assert [tuple(map(int, link.split("-"))) for link in links.split()] == wanted == [tuple(pair) for pair in own]
        seen |= set(wanted)
    assert len({s for s, _ in seen}) > 1 and len({t for _, t in seen}) > 1 and any(s != t for s, t in seen)


def test_json_has_everything_and_one_object_a_text(quick_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        translate.translate(
            quick_run,
            ["the cat", "", "a\0", "x\ny"],
            n_best=2,
            as_json=True,
            align=True,
            trace=True,
            settings=["alpha=1"],
        )
    assert ended.value.code == 1
    first, blank, bad, two = map(json.loads, said(capfd))
    assert blank == {"source": "", "answers": []} and set(bad) == {"error"}
    assert first["source"] == "the cat" and len(first["answers"]) == 2
    for answer in first["answers"]:
        (part,) = answer["parts"]
        assert answer["text"] == "".join(part["tokens"]) and part["source_tokens"] == [*"the cat", "<eos>"]
        assert len(part["ids"]) == len(part["alignment"]) and sum(part["token_logprobs"]) == pytest.approx(
            answer["logprob"]
        )
        kept = [c for step in part["trace"] for c in step if c["fate"] in ("kept", "ended")]
        assert kept and {"parent", "token", "logprob", "total", "score"} <= set(kept[0])
    assert len(two["answers"][0]["parts"]) == 2 and "\n" in two["answers"][0]["text"]


def test_every_engine_answers_and_the_same_but_for_rounding(
    quick_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--engine` reaches the search of every verb that writes: the answers of exact engines are the plain model's, and the
    engine that was asked for is the one that was made. Caught: an option that is read and dropped."""
    gpt = make_run(tmp_path / "gpt", model={"family": "gpt"}, data={"task": "text"})
    made: list[str] = []
    keep = driver.decoding_model
    monkeypatch.setattr(
        driver, "decoding_model", lambda model, config, rows: made.append(config.engine) or keep(model, config, rows)
    )
    for verb, given in (
        (translate.translate, (quick_run, ["the cat", "a dog ran"])),
        (generate.generate, (gpt, ["the "])),
    ):
        said_by = {}
        for engine in ("plain", "fast"):
            made.clear()
            verb(*given, engine=engine, beam=2)
            said_by[engine] = capfd.readouterr().out
            assert made[:1] == [engine]
        assert said_by["fast"] == said_by["plain"] != ""


# ---- the others


def test_generate_and_its_stream(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The stream comes in pieces and is the same text; a wrong verb costs one line and exit code 2."""
    gpt = make_run(tmp_path / "gpt", model={"family": "gpt"}, data={"task": "text"})
    generate.generate(gpt, prompt="the ", seed=3)
    expected = capfd.readouterr().out
    assert expected == "the " + load(gpt).generate("the ", seed=3) + "\n"
    streamed = call("generate", gpt, "--prompt", "the ", "--seed", 3, "--stream")
    assert streamed.stdout.decode() == expected and streamed.returncode == 0
    generate.generate(gpt, prompt="the ", seed=3, num_samples=2, as_json=True)
    (facts,) = map(json.loads, said(capfd))
    both = facts["answers"]
    assert facts["prompt"] == "the "
    assert [found["text"] for found in both] == load(gpt).generate("the ", seed=3, num_samples=2).texts
    generate.generate(gpt, prompt="the ", seed=3, num_samples=2, only_new=True)
    assert capfd.readouterr().out.split(f"\n{generate.BETWEEN}\n") == [both[0]["text"], both[1]["text"] + "\n"]
    generate.generate(gpt, prompt="the ", term=["cat"], only_new=True)
    assert "cat" in capfd.readouterr().out
    by_line = call("generate", gpt, "--seed", 3, stdin=b"the \n\nthe cat\n")
    assert by_line.stdout.decode().split("\n") == [
        lines.escaped(expected[:-1]),
        "",
        by_line.stdout.decode().split("\n")[2],
        "",
    ]
    nothing_given = call("generate", gpt, "--seed", 3)
    assert nothing_given.stdout.decode().rstrip("\n") == lines.escaped(load(gpt).generate("", seed=3))
    for options in ({"stream": True, "as_json": True}, {"stream": True, "beam": 3}, {"stream": True, "term": ["a"]}):
        with pytest.raises(ConfigError):
            generate.generate(gpt, prompt="the ", **options)
    with pytest.raises(UserError, match="NUL"):
        generate.generate(gpt, prompt="a\0")
    assert capfd.readouterr().out == ""
    wrong = call("translate", gpt, "the cat")
    assert wrong.returncode == 2 and wrong.stdout == b"" and len(wrong.stderr.decode().splitlines()) == 1


def test_fill_classify_and_tag(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    labels = ["NAME", "OTHER"]
    mlm = make_run(tmp_path / "mlm", tokenizer="bpe", model={"family": "bert"}, data={"task": "text"})
    with pytest.raises(SystemExit) as ended:
        generate.fill(mlm, ["the ___ sat", "", "no mask", "___ and ___"], top=2)
    assert ended.value.code == 1
    out = capfd.readouterr()
    rows = [line.split("\t") for line in out.out.split("\n")[:-1]]
    assert [len(row) for row in rows] == [2, 1, 1, 3] and rows[1] == rows[2] == [""]
    assert rows[0][0] == load(mlm).fill("the ___ sat") and out.err.startswith("glassformer: text 3: ")

    run = make_run(
        tmp_path / "classify", labels=labels, model={"family": "bert", "head": "classify"}, data={"task": "classify"}
    )
    generate.classify(run, ["the cat", "", "Anna"], top=2)
    first, blank, _ = said(capfd)
    best, second = load(run).classify("the cat").labels
    assert first == f"{best.label}\t{best.probability:.4f}\t{second.label}\t{second.probability:.4f}" and blank == ""
    generate.classify(run, ["the cat"], as_json=True)
    assert json.loads(said(capfd)[0])["labels"][0]["label"] == best.label

    run = make_run(tmp_path / "tag", labels=labels, model={"family": "bert", "head": "tag"}, data={"task": "tag"})
    generate.tag(run, ["Anna lives", ""])
    expected = " ".join(f"{t.word}/{t.label}" for t in load(run).tag(["Anna lives"])[0])
    assert said(capfd) == [expected, ""]
    generate.tag(run, ["Anna lives"], as_json=True)
    assert [word["word"] for word in json.loads(said(capfd)[0])["words"]] == ["Anna", "lives"]
