"""`glassformer evaluate` for every task and on later files, and `glassformer score`, against independent sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer import load, runs
from glassformer.api.evaluation import evaluate_run, pairs_of_files
from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.evaluation.metrics import entities, entity_scores, text_scores
from glassformer.runs.folder import RunFolder
from glassformer.tasks import score
from glassformer.text.tokenizer import BOS, EOS
from tests.commands import call

pytestmark = pytest.mark.slow

WORDS = ["red", "green", "blue", "white", "black"]
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 24}
STEPS = {"steps": 4, "validate_every": 4, "save_every": 4, "device": "cpu", "validate_examples": 4}


def trained(folder: Path, task: str, rows: list[str], name: str, **model: Any) -> RunFolder:
    (folder / name).write_text("".join(rows), encoding="utf-8")
    data = {"task": task, "train": str(folder / name), "tokenizer": "word", "val_fraction": 0.1, "batch_tokens": 128}
    short = {"max_ratio": 1.0, "max_extra": 4}
    recipe = Recipe.from_dict({"model": {**TINY, **model}, "data": data, "train": STEPS, "decode": short})
    return runs.train(recipe, folder / f"{task}-run")


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    folder = tmp_path_factory.mktemp("scored")
    numbers = range(150)
    pairs = [f"{WORDS[i % 5]} {i}\t{i} {WORDS[i // 5 % 5]}\n" for i in numbers]
    labelled = [f"{'warm' if i % 2 else 'cold'}\t{WORDS[i % 5]} {i}\n" for i in numbers]
    tagged = [f"{WORDS[i % 5]}\tB-COLOUR\n{WORDS[i % 3]}\tI-COLOUR\n{i}\tO\n\n" for i in numbers]
    text = [f"{WORDS[i % 5]} and {WORDS[i // 5 % 5]}\n" for i in numbers]
    return {
        "pairs": trained(folder, "pairs", pairs, "pairs.tsv"),
        "classify": trained(folder, "classify", labelled, "labelled.tsv", family="bert", head="classify"),
        "tag": trained(folder, "tag", tagged, "tagged.tsv", family="bert", head="tag"),
        "text": trained(folder, "text", text, "text.txt", family="gpt"),
    }


@pytest.mark.parametrize("task", ["pairs", "classify", "tag", "text"])
def test_a_file_scores_as_the_split_it_was_written_from(
    task: str, all_runs: dict[str, RunFolder], tmp_path: Path
) -> None:
    """Every task, on later files. Broken variants: files for pairs alone; other settings for files than for splits."""
    from glassformer.data.store import run_examples

    run = all_runs[task]
    own = list(run_examples(run.recipe.data, "val", run.path / "data"))
    file = tmp_path / {"text": "later.txt"}.get(task, "later.tsv")
    match task:
        case "pairs":
            rows = [f"{a}\t{b}\n" for a, b in own]
        case "classify":
            rows = [f"{label}\t{text}\n" for text, label in own]
        case "tag":
            rows = ["".join(f"{w}\t{t}\n" for w, t in zip(words, tags, strict=True)) + "\n" for words, tags in own]
        case _:
            rows = [document.text for document in own]
    file.write_text("".join(rows), encoding="utf-8")
    on_split, on_file = evaluate_run(run.path, split="val"), evaluate_run(run.path, files=[file])
    assert on_file.scores.values == pytest.approx(on_split.scores.values) and on_file.examples == on_split.examples
    expected = {
        "pairs": {"exact_match", "bleu", "chrf", "ter"},
        "classify": {"accuracy", "f1"},
        "tag": {"accuracy", "f1", "entity_f1"},
        "text": set[str](),
    }[task]
    assert expected | {"loss", "perplexity", "token_accuracy"} == set(on_file.scores.values)
    assert set(on_file.scores.signatures) == set(on_file.scores.values)


def test_the_split_there_is(all_runs: dict[str, RunFolder]) -> None:
    """Where there is no test: val, and that is said. Asked for by name, it is refused."""
    found = evaluate_run(all_runs["text"].path)
    assert found.on == "val" and "no test split" in found.notes[0]
    with pytest.raises(UserError, match="no test split"):
        evaluate_run(all_runs["text"].path, split="test")
    assert evaluate_run(all_runs["pairs"].path, limit=3).on == "test"


def test_a_limit_counts_what_it_limits(all_runs: dict[str, RunFolder], tmp_path: Path) -> None:
    """Broken variant: what is too long is counted over the whole file."""
    long = "red " * 40 + "\tred\n"
    (tmp_path / "a.tsv").write_text("red 1\t1 red\n" + long + "blue 2\t2 blue\n" + 20 * long)
    found = evaluate_run(all_runs["pairs"].path, files=[tmp_path / "a.tsv"], limit=3)
    assert found.examples == 3 and found.notes == ("1 of 3 examples have more than 24 tokens and no loss",)
    (tmp_path / "b.tsv").write_text(long)
    only_long = evaluate_run(all_runs["pairs"].path, files=[tmp_path / "b.tsv"])
    assert "loss" not in only_long.scores.values and "bleu" in only_long.scores.values


def test_the_command_writes_answers_and_takes_other_fields(all_runs: dict[str, RunFolder], tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text("en,fr\nred 1,1 red\nblue 2,2 blue\n")
    run = all_runs["pairs"].path
    how = ["data.source_field=en", "data.target_field=fr", "decode.beam=1"]
    done = call("evaluate", run, *how, "--file", tmp_path / "later.csv", "--out", tmp_path / "said.txt", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["examples"] == 2 and (tmp_path / "said.txt").read_text().count("\n") == 2
    before = (tmp_path / "said.txt").read_bytes()
    again = call("evaluate", run, *how, "--file", tmp_path / "later.csv", "--out", tmp_path / "said.txt")
    assert again.returncode == 2 and "is there already" in again.stderr
    assert (tmp_path / "said.txt").read_bytes() == before
    done = call("score", run, *how[:2], "--file", tmp_path / "later.csv")
    lines = done.stdout.splitlines()
    expected = score(load(run, device="cpu"), [("red 1", "1 red"), ("blue 2", "2 blue")])
    assert [float(line.split("\t")[0]) for line in lines] == pytest.approx(
        [own.log_probability for own in expected if own is not None], abs=1e-5
    )


def test_scores_of_pairs_are_sums_of_log_probabilities(all_runs: dict[str, RunFolder]) -> None:
    """One pair at a time, without padding, by the model's own forward. Broken variants: EOS left out; padding that counts."""
    from glassformer import Rows

    model = load(all_runs["pairs"].path, device="cpu")
    pairs = [("red 1", "1 red"), ("blue", "2 blue black"), ("white " * 30, "too long")]
    found = score(model, pairs)
    assert found[2] is None
    for (source, target), own in zip(pairs[:2], found, strict=False):
        ids, wanted = model.tokenizers.source.encode(source), model.tokenizers.target.encode(target)
        with torch.no_grad():
            logits = model.model(Rows.whole(torch.tensor([[*ids, EOS]])), Rows.whole(torch.tensor([[BOS, *wanted]])))
        each = logits[0].log_softmax(-1)[range(len(wanted) + 1), [*wanted, EOS]]
        assert own is not None and own.tokens == len(wanted) + 1
        assert own.log_probability == pytest.approx(float(each.sum()), rel=1e-5)


def test_scores_of_a_text_are_its_loss(all_runs: dict[str, RunFolder], tmp_path: Path) -> None:
    model = load(all_runs["text"].path, device="cpu")
    text = "red and blue and green"
    (own,) = score(model, [text])
    (tmp_path / "a.txt").write_text(text + "\n")
    assert list(pairs_of_files(model, [tmp_path / "a.txt"], [])) == [text]
    ids = torch.tensor([model.tokenizers.target.encode(text)])
    from glassformer import Rows

    with torch.no_grad():
        logits = model.model(Rows.whole(ids[:, :-1]))
    each = logits[0].log_softmax(-1)[range(ids.shape[1] - 1), ids[0, 1:]]
    assert own is not None and own.log_probability == pytest.approx(float(each.sum()), rel=1e-5)
    with pytest.raises(UserError, match="no probability of a text"):
        score(load(all_runs["tag"].path, device="cpu"), ["red"])


def test_entities_by_hand() -> None:
    """IOB2, IOB1 and BIOES; an I after another kind begins anew. Broken variant: F1 of single tags."""
    assert entities(["B-X", "I-X", "O", "B-X", "B-X"]) == {(0, 2, "X"), (3, 4, "X"), (4, 5, "X")}
    assert entities(["I-X", "I-X", "I-Y"]) == {(0, 2, "X"), (2, 3, "Y")}
    assert entities(["S-X", "B-Y", "I-Y", "E-Y", "O"]) == {(0, 1, "X"), (1, 4, "Y")}
    wanted = [["B-X", "I-X", "O"], ["B-Y", "O", "O"]]
    found = [["B-X", "O", "O"], ["B-Y", "O", "B-X"]]
    assert entity_scores(found, wanted).values["entity_f1"] == pytest.approx(100 * 2 * 1 / (3 + 2))
    assert entity_scores([["DAY", "O"]], [["DAY", "O"]]).values == {}


def test_ter_is_the_share_of_edits() -> None:
    """One word of four replaced; one moved is one edit."""
    assert text_scores(["a b c x"], ["a b c d"], edits=True).values["ter"] == pytest.approx(25)
    assert text_scores(["d a b c"], ["a b c d"], edits=True).values["ter"] == pytest.approx(25)


def test_links_of_words_are_those_of_their_tokens() -> None:
    """Pieces of one word are one word; blanks alone belong to none; each link once. Broken variant: numbers of tokens."""
    from glassformer.decode import Hypothesis
    from glassformer.tasks.results import Answer, DecodedPart, word_links, words_of_pieces
    from glassformer.text.tokenizer import Tokenizer
    from glassformer.text.tokenizers import Tokenizers

    assert words_of_pieces(["Das", " Ha", "us", " ", "steht", "."]) == [0, 1, 1, None, 2, 2]
    assert words_of_pieces(["我", "喜欢", "你 a", "b"]) == [0, 1, 3, 4]
    letters = Tokenizer.train("char", ["ab c x yz"], 30)
    looks = [[float(at == best) for at in range(5)] for best in (0, 2, 3, 3)]  # of x, blank, y, z
    answer = Hypothesis(letters.encode("x yz"), 0.0, 0.0, [0.0] * 5, "eos", alignment=looks)
    part = DecodedPart(letters.encode("ab c"), answer, Tokenizers(letters, letters, []))
    assert part.links == [(0, 0), (2, 1), (3, 2), (3, 3)]
    assert word_links(Answer("x yz", [part, part])) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert word_links(Answer("x yz", [part]), tokens_are_words=True) == part.links
