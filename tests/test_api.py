"""Talking to a run: what the methods of `glassformer.load(run)` promise, against models read by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer import tasks
from glassformer.api import load
from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis
from glassformer.errors import ConfigError, UserError
from glassformer.nn.rows import Rows
from glassformer.tasks import LONGEST_TEXT, check_text
from glassformer.tasks.constraints import occurs
from glassformer.tasks.fill import masked_ids
from glassformer.tasks.settings import changed
from glassformer.tasks.translate import combinations
from glassformer.text.tokenizer import BOS, CONTROL, EOS, MASK, UNK
from tests.talking import SENTENCES, make_run

LABELS = ["NAME", "OTHER", "PLACE"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "transformer": make_run(folder / "transformer"),
        "gpt": make_run(folder / "gpt", model={"family": "gpt"}, data={"task": "text"}),
        "pairs": make_run(folder / "pairs", model={"family": "gpt"}, data={"prompt_answer": True}),
        "mlm": make_run(folder / "mlm", tokenizer="bpe", model={"family": "bert"}, data={"task": "text"}),
        "classify": make_run(
            folder / "classify", labels=LABELS, model={"family": "bert", "head": "classify"}, data={"task": "classify"}
        ),
        "tag": make_run(folder / "tag", labels=LABELS, model={"family": "bert", "head": "tag"}, data={"task": "tag"}),
    }
    return {name: glassformer.load(path) for name, path in made.items()}


def chosen(logits: torch.Tensor) -> int:
    """The likeliest token that may be written."""
    scores = logits.clone()
    scores[[i for i in range(CONTROL) if i != EOS]] = -torch.inf
    return int(scores.argmax())


@torch.no_grad()
def greedy_by_hand(talk: Any, source: str, most: int) -> str:
    """Everything read again for each token, straight through the model."""
    ids = [*talk.tokenizers.source.encode(source), EOS]
    written: list[int] = []
    while len(written) < most:
        logits = talk.model(Rows.from_lists([ids]), Rows.from_lists([[BOS, *written]]))
        token = chosen(logits[0, -1])
        if token == EOS:
            break
        written.append(token)
    return talk.tokenizers.target.decode(written)


@torch.no_grad()
def continued_by_hand(talk: Any, prompt: list[int], most: int) -> str:
    written: list[int] = []
    while len(written) < most:
        token = chosen(talk.model(Rows.from_lists([[*prompt, *written]]))[0, -1])
        if token == EOS:
            break
        written.append(token)
    return talk.tokenizers.target.decode(written)


def test_a_translation_is_what_the_model_says_to_the_text_laid_as_in_training(runs: dict[str, Any]) -> None:
    """Caught: a source without its EOS, a target without BOS, answers out of order."""
    talk = runs["transformer"]
    texts = ["the cat", "Anna lives in Rome", "a", "3 mai 1979"]
    expected = [greedy_by_hand(talk, text, 12) for text in texts]
    assert len(set(expected)) > 1
    assert talk.translate(texts, beam=1, max_new_tokens=12) == expected


def test_blank_texts_stay_as_they_are_and_spacing_is_kept(runs: dict[str, Any]) -> None:
    talk = runs["transformer"]
    cat, dog = talk.translate(["the cat", "a dog"], strict=True)
    assert talk.translate(["", "  ", " the cat\n\n  a dog \n"], strict=True) == ["", "  ", f" {cat}\n\n  {dog} \n"]


def test_a_text_longer_than_the_block_is_the_answers_to_its_sentences(runs: dict[str, Any]) -> None:
    """Caught: a long text cut off, or read at a length the model was never built for."""
    talk = runs["transformer"]
    long = " ".join(SENTENCES)
    answer = tasks.translate(talk, [long], strict=True, align=True)[0][0]
    assert len(answer.parts) > 3
    assert all(len(part.source_tokens) <= talk.model.config.block_size for part in answer.parts)
    sources = ["".join(part.source_tokens[:-1]) for part in answer.parts]
    assert "".join(sources).replace(" ", "") == long.replace(" ", "")
    assert answer.text == " ".join(talk.translate(sources, strict=True))
    assert answer.ids == [token for part in answer.parts for token in part.hypothesis.ids]
    last = answer.parts[-1]
    before = sum(len(part.source_tokens) for part in answer.parts[:-1])
    assert answer.links[-len(last.links) :] == [
        (s + before, t + len(answer.ids) - len(last.tokens)) for s, t in last.links
    ]


def test_the_n_best_of_a_cut_text_are_the_best_choices_of_one_from_each_part() -> None:
    """Against all choices. Caught: pairing the second best of each part with one another."""
    torch.manual_seed(1)

    def part(size: int) -> list[Hypothesis]:
        scores = sorted((-torch.rand(size) * 5).tolist(), reverse=True)
        return [Hypothesis([i], s, s, [s], "eos" if i < size - 1 else "length") for i, s in enumerate(scores)]

    for n_best, sizes in product((1, 2, 3, 4), ([4], [4, 4], [4, 1, 3], [2, 4, 4, 2])):
        parts = [part(size) for size in sizes]
        everything = sorted(
            product(*parts),
            key=lambda choice: (sum(h.ended == "length" for h in choice), -sum(h.score for h in choice)),
        )
        found = combinations(parts, DecodeConfig(n_best=n_best))
        wanted = everything[:n_best]
        assert [[h.ids for h in choice] for choice in found] == [[h.ids for h in choice] for choice in wanted]


def test_full_answers_agree_with_themselves(runs: dict[str, Any]) -> None:
    talk = runs["transformer"]
    texts = ["the cat", "Anna"]
    for text, answers in zip(
        texts, tasks.translate(talk, texts, beam=4, n_best=3, align=True, trace=True), strict=True
    ):
        assert len(answers) == 3 == len({tuple(a.ids) for a in answers})
        assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
        for answer in answers:
            (part,) = answer.parts
            assert answer.text == talk.tokenizers.target.decode(answer.ids) == "".join(part.tokens)
            assert answer.logprob == pytest.approx(sum(answer.token_logprobs))
            assert part.source_tokens == [*text, "<eos>"]
            alignment = part.hypothesis.alignment
            assert alignment is not None and len(alignment) == len(answer.ids)
            for row in alignment:
                assert len(row) == len(text) + 1 and sum(row) == pytest.approx(1, abs=1e-4)
            assert answer.traces
    best = [found.best.text for found in talk.translate(texts, beam=4, n_best=3)]
    assert talk.translate(texts, beam=4) == best


def test_wishes_are_met(runs: dict[str, Any]) -> None:
    talk = runs["transformer"]
    texts = ["the cat", "a dog ran", "Anna lives in Rome"]
    free = talk.translate(texts)
    for answer in talk.translate(texts, terms=["river", "79"]):
        assert "river" in answer and "79" in answer
    for answer in talk.translate(texts, prefix="3 mai"):
        assert answer.startswith("3 mai")
    frequent = free[0][:2]
    assert all(frequent not in answer for answer in talk.translate(texts, banned=[frequent]))
    stopped = [found.answers for found in talk.translate(texts, stops=[frequent], beam=1)]
    assert stopped[0][0].text == "" and stopped[0][0].ended == "stop"


def test_glossary_terms_appear_where_their_word_does(runs: dict[str, Any]) -> None:
    """Also in the right part of a text that is cut. Caught: terms for all texts, or for none."""
    talk = runs["transformer"]
    long = " ".join(SENTENCES)
    texts = ["The Cat", "a category", long]
    with_cat, without, cut = (found.answers for found in talk.translate(texts, glossary={"cat": "1979"}, beam=2))
    assert "1979" not in without[0].text
    assert with_cat[0].text.count("1979") == 1
    holding = [i for i, part in enumerate(cut[0].parts) if "1979" in "".join(part.tokens)]
    assert holding == [i for i, part in enumerate(cut[0].parts) if "cat" in "".join(part.source_tokens)]


def test_where_a_word_occurs() -> None:
    assert occurs("cat", "The Cat.") and not occurs("cat", "category") and not occurs("cat", "a bobcat")
    assert occurs("猫", "小猫在") and occurs("C++", "in C++, of course") and not occurs(" ", "a b")


def test_what_cannot_be_written_is_refused(runs: dict[str, Any]) -> None:
    talk = runs["transformer"]
    for wishes in (
        {"terms": ["丂"]},
        {"terms": [" "]},
        {"glossary": {"cat": "丂"}},
        {"prefix": "丂"},
        {"banned": [""]},
        {"stops": [""]},
        {"terms": ["cat"], "banned": ["at"]},
        {"terms": ["cat"], "temperature": 0.5},
        {"terms": ["cat"], "stops": ["."]},
        {"glossary": {"cat": "dog"}, "temperature": 0.5},
    ):
        with pytest.raises(UserError) as error:
            talk.translate(["the cat"], **wishes)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        ({"beam": 6, "n_best": 2}, {"temperature": 0.7}, {"beam": None, "n_best": 1, "temperature": 0.7}),
        ({"temperature": 0.7, "top_k": 5, "num_samples": 3}, {"beam": 1}, {"temperature": 0, "top_k": None}),
        ({"temperature": 0.7, "top_k": 5}, {"temperature": 0.0}, {"top_k": None, "beam": None}),
        ({"temperature": 0.7, "top_k": 5}, {"top_k": 9}, {"temperature": 0.7, "top_k": 9}),
        ({"beam": 6, "n_best": 3}, {"beam": 1}, {"beam": 1, "n_best": 1}),
        ({}, {"n_best": 9}, {"beam": 9, "n_best": 9}),
        ({}, {"n_best": "2", "alpha": "1"}, {"n_best": 2, "alpha": 1.0}),
        ({"alpha": 2.0}, {"beam": 3}, {"alpha": 2.0, "beam": 3}),
    ],
)
def test_options_put_aside_what_they_contradict_in_the_recipe(
    recipe: dict[str, Any], options: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = changed(DecodeConfig(**recipe), options)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    "options",
    [{"beam": 4, "temperature": 0.5}, {"beem": 4}, {"beam": "four"}, {"beam": 2, "n_best": 3}, {"top_k": 5}],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        changed(DecodeConfig(), options)


def test_a_gpt_goes_on_after_the_prompt_and_begins_after_the_end_of_a_document(runs: dict[str, Any]) -> None:
    """Caught: a BOS that training on plain text has never shown."""
    talk = runs["gpt"]
    prompt = talk.tokenizers.source.encode("the cat")
    assert talk.generate("the cat", temperature=0, max_new_tokens=9) == continued_by_hand(talk, prompt, 9)
    assert talk.generate(temperature=0, max_new_tokens=9) == continued_by_hand(talk, [EOS], 9)


def test_a_gpt_draws_unless_it_is_told_to_search(runs: dict[str, Any]) -> None:
    talk = runs["gpt"]
    assert talk.settings().temperature > 0
    assert talk.settings(top_k=3).temperature > 0
    assert talk.settings(temperature=0).beams == 1
    assert talk.settings(beam=3).temperature == 0 == talk.settings(n_best=2).temperature
    three = talk.generate("a", num_samples=3, max_new_tokens=12, seed=4).texts
    assert len(set(three)) == 3
    assert talk.generate("a", num_samples=3, max_new_tokens=12, seed=4).texts == three
    assert talk.generate("a", num_samples=3, max_new_tokens=12, seed=5).texts != three


def test_what_is_streamed_is_what_is_generated(runs: dict[str, Any]) -> None:
    talk = runs["gpt"]
    for options in ({"temperature": 0}, {"seed": 3}, {"seed": 8, "stops": ["e"]}, {"prefix": "mat"}):
        pieces = list(talk.stream("the ", max_new_tokens=20, **options))
        assert "".join(pieces) == talk.generate("the ", max_new_tokens=20, **options)
        assert len(pieces) > 1 or "stops" in options


def test_a_gpt_on_pairs_answers(runs: dict[str, Any]) -> None:
    """The prompt is closed by EOS, as in training; a blank text has no answer."""
    talk = runs["pairs"]
    texts = ["the cat", "", "Anna"]
    expected = [
        continued_by_hand(talk, [BOS, *talk.tokenizers.source.encode(text), EOS], 9) if text else "" for text in texts
    ]
    assert talk.translate(texts, beam=1, max_new_tokens=9) == expected
    assert [a.text for a in tasks.generate(talk, ["Anna"], temperature=0, beam=1, max_new_tokens=9)[0]] == expected[2:]
    assert len(talk.translate(" ".join(SENTENCES), max_new_tokens=3).best.parts) > 3


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt", "transformer"])
def test_any_number_of_texts_is_read_as_it_is_needed(kind: str, runs: dict[str, Any]) -> None:
    """In order, and the same as a list. Caught: all prompts held before the first answer, answers to a neighbour."""
    model, taken = runs[kind], []
    each, whole = (tasks.generate_each, tasks.generate) if kind == "gpt" else (tasks.translate_each, tasks.translate)
    texts = ["the cat", "a dog", "Anna", "the"] * 100
    options: dict[str, Any] = {"beam": 1, "max_new_tokens": 3, "batch_size": 2, "strict": True}

    def given() -> Iterator[str]:
        for text in texts:
            taken.append(text)
            yield text

    found = each(model, given(), **options)
    first = next(found)
    assert len(taken) < 100
    answers = [first[0].text, *(own[0].text for own in islice(found, 11))]
    assert answers == [own[0].text for own in whole(model, texts[:12], **options)]


def test_a_gpts_alignment_is_its_attention_to_the_prompt(runs: dict[str, Any]) -> None:
    """Against the weights recorded by hand, one place before each token. Caught: rows of the token just read."""
    talk = runs["pairs"]
    found, empty = talk.translate(["Anna", ""], beam=2, n_best=2, align=True, max_new_tokens=6)
    assert empty == "" and not empty.alignment
    for answer in found.answers:
        (part,) = answer.parts
        prompt = [BOS, *talk.tokenizers.source.encode("Anna"), EOS]
        _, cache = glassformer.run_with_cache(talk.model, Rows.from_lists([[*prompt, *answer.ids]]), names="*.weights")
        weights = cache["decoder.0.attention.weights"][0].mean(0)
        assert len(part.hypothesis.alignment) == len(answer.ids) and len(part.source_tokens) == len(prompt)
        for place, row in enumerate(part.hypothesis.alignment):
            own = weights[len(prompt) - 1 + place, : len(prompt)].clone()
            own[0] = 0
            assert row == pytest.approx((own / own.sum()).tolist(), abs=1e-5)


@torch.no_grad()
def test_masks_are_filled_with_what_the_model_finds_likeliest(runs: dict[str, Any]) -> None:
    """Caught: BOS left out, the space before the mask read as a token, a control id as an answer."""
    talk = runs["mlm"]
    encode = talk.tokenizers.target.encode
    ids = [BOS, *encode("the cat sat on the"), MASK, *encode(" and"), MASK, *encode(".")]
    chances = talk.model(Rows.from_lists([ids]))[0].softmax(-1)
    chances[:, :CONTROL] = 0
    for text in ("the cat sat on the [MASK] and ___.", "the cat sat on the ____ and [MASK]."):
        (filled,) = talk.fill([text], top=3)
        whole = list(ids)
        for place, mask in zip((i for i, token in enumerate(ids) if token == MASK), filled.masks, strict=True):
            best = chances[place].topk(3)
            assert [word.label for word in mask] == talk.tokenizers.target.pieces(best.indices.tolist())
            assert [word.probability for word in mask] == pytest.approx(best.values.tolist(), abs=1e-5)
            whole[place] = int(best.indices[0])
        assert filled == talk.tokenizers.target.decode(whole)


def test_only_the_marker_is_a_mask(runs: dict[str, Any]) -> None:
    talk = runs["mlm"]
    assert masked_ids(talk, "<mask > ___ <mask> __").count(MASK) == 1
    for text in ("no mask here", "___ " + "cat " * 200):
        with pytest.raises(UserError):
            talk.fill([text])


@torch.no_grad()
def test_classes_are_read_off_the_first_place(runs: dict[str, Any]) -> None:
    talk = runs["classify"]
    texts = ["the cat sat", "Anna", "", "a" * 500]
    for text, found in zip(texts, talk.classify(texts), strict=True):
        row = [BOS, *talk.tokenizers.target.encode(text)][: talk.model.config.block_size]
        chances = talk.model(Rows.from_lists([row]))[0, 0].softmax(-1)
        assert [label.label for label in found.labels] == [LABELS[i] for i in chances.argsort(descending=True).tolist()]
        assert [label.probability for label in found.labels] == pytest.approx(
            sorted(chances.tolist(), reverse=True), abs=1e-5
        )


@torch.no_grad()
def test_words_are_tagged_at_their_first_piece(runs: dict[str, Any]) -> None:
    """Also beyond the block, where the sentence is read in stretches. Caught: a word that loses its place."""
    talk = runs["tag"]
    words = ["Anna", "lives", "in", "Paris"]
    pieces = [talk.tokenizers.target.encode(word) for word in words]
    chances = talk.model(Rows.from_lists([[BOS, *chain(*pieces)]]))[0].softmax(-1)
    place = 1
    found = talk.tag([words, "Anna lives in Paris", [], "丂"])
    assert found[0] == found[1] and found[2] == []
    for word, own, tagged in zip(words, pieces, found[0], strict=True):
        assert tagged.word == word and tagged.label == LABELS[int(chances[place].argmax())]
        assert tagged.probability == pytest.approx(float(chances[place].max()), abs=1e-5)
        place += len(own)
    many = [*(words * 20)[:50], "x" * 300]
    assert [t.word for t in talk.tag([many])[0]] == many
    first = many[:11]  # as many as the block holds
    assert [t.label for t in talk.tag([many])[0]][:11] == [t.label for t in talk.tag([first])[0]]
    assert found[3][0].word == "丂"


def test_a_date_line_is_cut_as_its_training_lines_were(tmp_path: Path) -> None:
    data = {"task": "tag", "builtin": "date-parts"}
    talk = load(make_run(tmp_path / "run", labels=LABELS, model={"family": "bert", "head": "tag"}, data=data))
    assert [t.word for t in talk.tag(["3 mai, 1979年"])[0]] == ["3", "mai", ",", "1979", "年"]


CALLS = {
    "translate": lambda talk: talk.translate(["a"]),
    "generate": lambda talk: talk.generate("a", max_new_tokens=2),
    "stream": lambda talk: list(talk.stream("a", max_new_tokens=2)),
    "fill": lambda talk: talk.fill(["___"]),
    "classify": lambda talk: talk.classify(["a"]),
    "tag": lambda talk: talk.tag([["a"]]),
}
MAY = {
    "transformer": {"translate", "stream"},
    "gpt": {"generate", "stream"},
    "pairs": {"translate", "stream"},
    "mlm": {"fill"},
    "classify": {"classify"},
    "tag": {"tag"},
}


@pytest.mark.parametrize("kind", MAY)
def test_a_run_of_the_wrong_family_says_so_in_a_sentence(runs: dict[str, Any], kind: str) -> None:
    for verb, call in CALLS.items():
        if verb in MAY[kind]:
            call(runs[kind])
            continue
        with pytest.raises(UserError, match="cannot") as error:
            call(runs[kind])
        assert "\n" not in str(error.value)


def test_half_a_character_is_refused(runs: dict[str, Any]) -> None:
    text = "half \ud83d"
    for call in (
        lambda: runs["transformer"].translate(["a", text]),
        lambda: runs["transformer"].translate(["a"], prefix=text),
        lambda: runs["gpt"].generate(text),
        lambda: runs["mlm"].fill(["___" + text]),
        lambda: runs["classify"].classify([text]),
        lambda: runs["tag"].tag([[text]]),
    ):
        with pytest.raises(UserError, match="surrogate"):
            call()


def test_a_strange_example_does_not_stop_a_validation(runs: dict[str, Any]) -> None:
    """Training data may hold a NUL, a blank side or a line far too long; only strangers' text is held to more."""
    for text in ("a\0b", "x" * (LONGEST_TEXT + 1)):
        with pytest.raises(UserError):
            check_text(text)
    strange = ["a\0b", "", "\n", "cat " * 1000]
    found = runs["transformer"].translate(strange, beam=1, max_new_tokens=1)
    assert len(found) == 4 and found[1:3] == ["", "\n"]
    assert all(runs["classify"].classify(strange))
    assert len(runs["tag"].tag([["a\0b", "", "\n"]])[0]) == 3


def test_a_text_is_answered_with_a_text_and_a_list_with_a_list(runs: dict[str, Any]) -> None:
    """And a task, which takes lists alone, does not answer a text letter by letter."""
    for kind, verb, text in (
        ("transformer", "translate", "abc"),
        ("pairs", "translate", "abc"),
        ("gpt", "generate", "abc"),
        ("mlm", "fill", "a ___"),
        ("classify", "classify", "abc"),
        ("tag", "tag", "Anna lives"),
    ):
        one, many = getattr(runs[kind], verb)(text), getattr(runs[kind], verb)([text, text])
        assert isinstance(one, list if verb == "tag" else str)
        assert [one, one] == many if verb != "tag" else [one.labels, one.labels] == [own.labels for own in many]
        with pytest.raises(UserError, match="list"):
            getattr(tasks, verb)(runs[kind], text)


def test_a_streamed_translation_is_the_greedy_one(runs: dict[str, Any]) -> None:
    """Also of a text that is read in pieces, with its spacing, its stop strings and its blank lines."""
    long = " ".join(SENTENCES)
    for talk in (runs["transformer"], runs["pairs"]):
        for text in ("the cat", "", "  ", " the cat\n\n  a dog \n", long):
            assert "".join(talk.stream(text)) == talk.translate(text, beam=1, strict=True)
            drawn = {"temperature": 0.9, "seed": 3, "max_new_tokens": 9}
            assert "".join(talk.stream(text, **drawn)) == talk.translate(text, **drawn)
        letter = max(talk.translate(long, beam=1).replace(" ", ""), key=talk.translate(long, beam=1).count)
        assert "".join(talk.stream(long, stops=[letter])) == talk.translate(long, beam=1, stops=[letter], strict=True)


def test_text_never_becomes_a_control_id(runs: dict[str, Any]) -> None:
    talk = runs["transformer"]
    ids = talk.tokenizers.source.encode("</s><eos ><mask >")
    assert all(token >= CONTROL or token == UNK for token in ids)


def test_loading_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run"):
        load(tmp_path / "nothing")
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match="step 7"):
        load(run, step=7)
    with pytest.raises(UserError, match="device"):
        load(run, device="abacus")
