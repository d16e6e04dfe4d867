"""The data doctor: each illness alone is found, named with its line, and graded; healthy data passes."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import DataConfig
from glassformer.data import doctor
from glassformer.data.doctor import DoctorReport, check
from glassformer.data.prepare import labels_of
from glassformer.errors import UserError
from tests.commands import call

pytestmark = pytest.mark.slow

WORDS = [
    *("the", "a", "red", "blue", "small", "dog", "cat", "house", "tree", "river"),
    *("walks", "sleeps", "sees", "over", "under", "near", "old", "new", "and", "with"),
]


def sentence(generator: random.Random, n: int = 8) -> str:
    return " ".join(generator.choice(WORDS) for _ in range(n))


def pairs(n: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [f"{sentence(generator)}\t{sentence(generator)} ja" for _ in range(n)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def healthy(tmp_path: Path) -> dict[str, Path]:
    sizes = {"train": 400, "val": 100, "test": 100}
    return {name: write(tmp_path / f"{name}.tsv", pairs(n, i)) for i, (name, n) in enumerate(sizes.items())}


def kinds(report: DoctorReport, level: str | None = None) -> set[tuple[str, str]]:
    return {(f.split, f.kind) for f in report.findings if level in (None, f.level)}


def found(report: DoctorReport, kind: str) -> Any:
    return next(f for f in report.findings if f.kind == kind)


def test_healthy_data_passes(healthy: dict[str, Path]) -> None:
    report = check(list(healthy.values()))
    assert report.findings == [] and not report.mistake
    assert {name: facts.examples for name, facts in report.splits.items()} == {"train": 400, "val": 100, "test": 100}


# (split to spoil, lines to put in, finding, its level, lines it names); 400 training and 100 test pairs are healthy.
ILLNESSES: list[tuple[str, list[str], str, str, tuple[int, ...]]] = [
    ("train", ["only one column"], "columns", "error", (401,)),
    ("train", ["a dog\t", "\ta cat"], "empty", "warning", (401, 402)),
    ("train", [f"same {i}\tsame {i}" for i in range(10)], "identical", "warning", (401, 402, 403, 404, 405)),
    ("train", [f"same {i}\tsame {i}" for i in range(500)], "identical", "error", (401, 402, 403, 404, 405)),
    ("train", ["a new dog\tja", "a new dog\tja", "a new dog\tja"], "duplicates", "warning", (402, 403)),
    ("train", ["a dog\t" + "ja " * 100], "ratio", "warning", (401,)),
    ("train", ["a dog " * 40 + "\tja"], "ratio", "warning", (401,)),
    ("test", pairs(400, 0)[:1], "leaked", "warning", (101,)),
    ("test", pairs(400, 0)[:20], "leaked", "error", (101, 102, 103, 104, 105)),
    ("test", [pairs(400, 0)[0].split("\t")[0] + "\tanders"], "known sources", "warning", (101,)),
]


@pytest.mark.parametrize(("split", "lines", "kind", "level", "numbers"), ILLNESSES)
def test_each_illness_is_found_and_graded(
    healthy: dict[str, Path], split: str, lines: list[str], kind: str, level: str, numbers: tuple[int, ...]
) -> None:
    """A check that never fires, fires on healthy data, counts lines wrongly or grades wrongly fails here."""
    write(healthy[split], healthy[split].read_text().splitlines() + lines)
    report = check(list(healthy.values()))
    finding = found(report, kind)
    assert (finding.split, finding.level, finding.lines) == (split, level, numbers)
    assert report.mistake == (level == "error")


def test_invalid_utf8_is_named_and_reading_goes_on(healthy: dict[str, Path]) -> None:
    content = healthy["train"].read_bytes().split(b"\n")
    content[6] = b"\xff" + content[6]
    content[9] = b"\xfe" + content[9]
    healthy["train"].write_bytes(b"\n".join(content))
    report = check(list(healthy.values()))
    finding = found(report, "encoding")
    assert finding.lines == (7, 10) and "line 7" in finding.message and finding.level == "error"
    assert report.splits["train"].examples == 398


def test_line_counts_that_disagree(tmp_path: Path) -> None:
    source = write(tmp_path / "train.en", [f"the dog {i}" for i in range(20)])
    target = write(tmp_path / "train.de", [f"der Hund {i}" for i in range(19)])
    report = check([source, target])
    assert report.mistake and "20 lines, but" in found(report, "counts").message
    write(target, [f"der Hund {i}" for i in range(20)])
    assert not check([source, target]).findings
    write(target, [])
    assert ("train", "nothing") in kinds(check([source, target]), "error")


def test_an_empty_and_a_torn_file(tmp_path: Path) -> None:
    assert kinds(check([write(tmp_path / "train.tsv", [])], "pairs"), "error") == {("train", "nothing")}
    torn = tmp_path / "train.tsv.gz"
    torn.write_bytes(gzip.compress("\n".join(pairs(2000, 1)).encode())[:-300])
    assert ("train", "unreadable") in kinds(check([torn], "pairs"), "error")


def test_labels(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", [f"{'good' if i % 2 else 'bad'}\tthe film {i} was" for i in range(100)])
    test = write(tmp_path / "test.tsv", ["good\tthe film was", "ugly\tthe film was not"])
    report = check([train, test], "classify")
    assert found(report, "labels").message.endswith("ugly") and report.mistake
    assert report.splits["train"].labels == {"good": 50, "bad": 50}
    write(train, [f"good\tthe film {i} was" for i in range(100)])
    assert ("train", "labels") in kinds(check([train], "classify"), "error")
    tagged = write(tmp_path / "tagged.txt", ["the\tDET", "dog\tNOUN", "", "a\tDET", "cat\tNOUN"])
    report = check([tagged], "tag")
    assert not report.findings and report.splits["train"].labels == {"DET": 2, "NOUN": 2}


def test_text_as_documents(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for i in range(4):
        write(folder / f"{i}.txt", [f"document {i % 3}", "ends"])  # the last is the first again
    test = write(tmp_path / "test.txt", ["document 1", "ends"])
    report = check([folder, test])
    assert report.task == "text" and report.splits["train"].examples == 4
    assert found(report, "duplicates").lines == (4,)
    assert found(report, "leaked").level == "error"


def test_records_with_named_fields(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write(path, [json.dumps({"en": a, "de": b}) for a, b in (line.split("\t") for line in pairs(50, 1))] + ["{"])
    report = check([path], source_field="en", target_field="de")
    assert report.splits["train"].examples == 50 and found(report, "json").lines == (51,)


@pytest.mark.parametrize(
    ("names", "content", "task", "expected"),
    [
        (["a.tsv"], "x\ty", "pairs", {"train": "a.tsv"}),
        (["a.tsv"], "no tab where one should be", "pairs", {"train": "a.tsv"}),
        (["a.txt"], "x", "text", {"train": "a.txt"}),
        (["a.en", "a.de"], "x", "pairs", {"train": "a.en", "train_target": "a.de"}),
        (
            ["train.tsv", "dev.tsv", "test.tsv"],
            "x\ty",
            "pairs",
            {"train": "train.tsv", "val": "dev.tsv", "test": "test.tsv"},
        ),
        (["test.tsv", "mine.tsv"], "x\ty", "pairs", {"train": "mine.tsv", "test": "test.tsv"}),
        (["one.tsv", "two.tsv"], "x\ty", "pairs", {"train": "one.tsv", "val": "two.tsv"}),
        (
            ["train.en", "train.de", "val.en", "val.de"],
            "x",
            "pairs",
            {"train": "train.en", "train_target": "train.de", "val": "val.en", "val_target": "val.de"},
        ),
        (["constraint.tsv"], "x\ty", "pairs", {"train": "constraint.tsv"}),
    ],
)
def test_roles_by_name_or_place(
    tmp_path: Path, names: list[str], content: str, task: str, expected: dict[str, str]
) -> None:
    files = [write(tmp_path / name, [content]) for name in names]
    config = doctor.arrange(files, None, {})
    keys = ("train", "val", "test", "train_target", "val_target", "test_target")
    assert config.task == task
    assert {key: Path(value).name for key in keys if (value := getattr(config, key))} == expected


def test_files_that_cannot_be_told_apart(tmp_path: Path) -> None:
    files = [write(tmp_path / f"train{x}.tsv", ["a\tb"]) for x in (".1", ".2", ".3")]
    with pytest.raises(UserError, match="cannot be told apart"):
        check(files)
    with pytest.raises(UserError, match="there is no file"):
        check([tmp_path / "none.tsv"])
    with pytest.raises(UserError, match="one by one"):
        check([write(tmp_path / "train.a", ["x"]), write(tmp_path / "train.b", ["y"])], "text")


def test_lengths_are_those_of_the_file(healthy: dict[str, Path]) -> None:
    lengths = sorted(len(line.split("\t")[0]) for line in healthy["train"].read_text().splitlines())
    facts = check([healthy["train"]]).to_dict()["splits"]["train"]
    assert facts["examples"] == 400
    assert facts["source_length"]["max"] == lengths[-1]
    assert lengths[199] <= facts["source_length"]["median"] <= lengths[200]


def test_the_verb(healthy: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 for healthy data and for mere warnings, 1 where training would be a mistake."""
    monkeypatch.setenv("COLUMNS", "120")
    result = call("data", "check", tmp_path / "train.tsv", tmp_path / "val.tsv", tmp_path / "test.tsv")
    assert result.returncode == 0 and "Nothing stands out" in result.stdout and "400" in result.stdout, result.stderr
    (tmp_path / "mine.toml").write_text('[data]\ntrain = "train.tsv"\nval = "val.tsv"\n')
    result = call("data", "check", tmp_path / "mine.toml", "--json")
    assert result.returncode == 0 and set(json.loads(result.stdout)["splits"]) == {"train", "val"}
    write(healthy["train"], [*pairs(400, 0), pairs(400, 0)[0], "[bold]only one column[/]"])
    result = call("data", "check", tmp_path / "train.tsv", "--task", "pairs")
    assert result.returncode == 1 and "line 402" in result.stdout and "would be a mistake" in result.stdout
    assert "warning" in result.stdout and "duplicates" not in result.stdout
    told = json.loads(call("data", "check", tmp_path / "train.tsv", "--json").stdout)
    assert told["mistake"] and {f["kind"] for f in told["findings"]} == {"columns", "duplicates"}
    assert call("data", "check", tmp_path / "none.tsv").returncode == 2
    result = call("data", "get", "tatoeba:en-xx")
    assert result.returncode == 2 and "did you mean" in result.stderr


GERMAN = "der die das Hund Katze Haus Baum Fluss geht schläft sieht über unter neben alt neu und mit rot blau"


def translated(n: int, seed: int) -> list[tuple[str, str]]:
    """Sides of two languages whose lengths go together, with a number now and then."""
    draw = random.Random(seed)
    found = []
    for i in range(n):
        places = [draw.randrange(20) for _ in range(draw.randint(3, 20))]
        end = f" {i}" if i % 3 == 0 else ""
        found.append((" ".join(WORDS[p] for p in places) + end, " ".join(GERMAN.split()[p] for p in places) + end))
    return found


def test_shifted_and_exchanged_sides(tmp_path: Path) -> None:
    """Clean data passes. Broken variants: a shift by one line unseen; a language told from itself."""
    clean = translated(600, 1)
    file = write(tmp_path / "train.tsv", ["\t".join(pair) for pair in clean])
    assert not check([file]).findings
    targets = [b for _, b in clean]
    moved = [*clean[:300], *((a, b) for (a, _), b in zip(clean[300:], targets[301:], strict=False))]
    write(file, ["\t".join(pair) for pair in moved])
    finding = found(check([file]), "shifted")
    assert finding.level == "error" and 200 <= finding.lines[0] <= 402
    write(file, ["\t".join(pair[::-1] if i in (17, 400) else pair) for i, pair in enumerate(clean)])
    assert found(check([file]), "exchanged").lines == (18, 401)
    same = [f"{sentence(random.Random(i))}\t{sentence(random.Random(i + 10_000))}" for i in range(600)]
    write(file, same)
    assert not {"exchanged", "shifted"} & {f.kind for f in check([file]).findings}


def test_what_a_text_should_not_hold(healthy: dict[str, Path]) -> None:
    bad = ["a dog\0s\tja", "a dog\ufffds\tja", "<p>a dog</p>\tja", "a &amp; b\tja", "a small dog\tja\tCC-BY 2.0"]
    write(healthy["train"], healthy["train"].read_text().splitlines() + bad)
    report = check(list(healthy.values()))
    lines = {f.kind: (f.level, f.lines) for f in report.findings}
    assert lines["NUL"] == ("error", (401,)) and lines["replacement characters"] == ("warning", (402,))
    assert lines["HTML"] == ("warning", (403, 404)) and lines["third column"] == ("warning", (405,))


def test_case_and_spacing_do_not_hide_a_leak(healthy: dict[str, Path]) -> None:
    spoilt = [line.upper().replace(" ", "  ") for line in pairs(400, 0)[:20]]
    write(healthy["test"], healthy["test"].read_text().splitlines() + spoilt)
    assert found(check(list(healthy.values())), "leaked").level == "error"


def test_columns_exchanged_in_all_of_val(tmp_path: Path) -> None:
    """Only train knows which side is which; broken variant: val held against itself."""
    clean = translated(600, 1)
    train = write(tmp_path / "train.tsv", ["\t".join(pair) for pair in clean])
    val = write(tmp_path / "val.tsv", ["\t".join(pair) for pair in translated(80, 2)])
    assert "exchanged" not in {f.kind for f in check([train, val]).findings}
    write(val, ["\t".join(pair[::-1]) for pair in translated(80, 2)])
    finding = found(check([train, val]), "exchanged")
    assert (finding.split, finding.level) == ("val", "error") and finding.count > 40


def mojibake(text: str, encoding: str) -> str:
    return text.encode("utf-8").decode(encoding, errors="ignore")


def test_what_was_read_in_a_wrong_way(healthy: dict[str, Path]) -> None:
    """Mojibake of Western and Chinese code pages, invisible blanks, CR inside a line, a line without end; and none of them in
    text that merely has accents, typographic signs and Chinese."""
    good = ["déjà vu, Ärger; «LIBERTÉ» – “x”…\tja", "你好吗，今天天气很好\tПривет", "می\u200cخواهم\tja"]
    spoilt = [
        ("mojibake", mojibake("déjà vu", "cp1252") + "\tja"),
        ("mojibake", "a dog\t" + mojibake("don’t", "cp1252")),
        ("mojibake", mojibake("今天天气很好", "gbk") + "\tja"),
        ("zero-width", "a\u200b dog\tja"),
        ("empty", "\u200b \ufeff\tja"),
        ("CR alone", "a dog\rand a cat\tja"),
        ("more than 10,000", "a dog " * 14_800 + "\tja"),
    ]
    lines = healthy["train"].read_text().splitlines()
    write(healthy["train"], lines + good)
    odd = {f.kind for f in check(list(healthy.values())).findings}
    assert not odd - {"ratio"}, odd
    healthy["train"].write_bytes("".join(line + "\n" for line in [*lines, *(bad for _, bad in spoilt)]).encode())
    findings = check(list(healthy.values())).findings
    for number, (name, _) in enumerate(spoilt, 401):
        assert any(name in f.kind and number in f.lines for f in findings), (name, number, findings)


def test_labels_that_stand_where_texts_should(tmp_path: Path) -> None:
    """Exchanged columns, and labels alone; training refuses what cannot be learned."""
    draw = random.Random(4)
    lines = [(draw.choice(["good", "bad"]), sentence(draw, 5)) for _ in range(60)]
    file = write(tmp_path / "train.tsv", ["\t".join(line) for line in lines])
    assert not check([file], "classify").mistake
    write(file, ["\t".join(line[::-1]) for line in lines])
    assert found(check([file], "classify"), "exchanged").level == "error"
    with pytest.raises(UserError, match="are labels and texts exchanged"):
        labels_of(DataConfig(task="classify"), lines)
    assert labels_of(DataConfig(task="classify"), [line[::-1] for line in lines]) == ["bad", "good"]


def test_a_file_of_carriage_returns_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    file.write_bytes(b"\r".join(line.encode() for line in pairs(30, 1)))
    assert "lines end in CR alone" in found(check([file]), "line ends").message
