"""Models of Hugging Face's, imported: their tokenizer gives the same pieces, and the model the same scores, as their library
does. The reference is `transformers`; the models are small, of random weights.

Broken variants these catch: a table of positions not cut at row 2; M2M100's wavelengths taken for the paper's; a final logits
bias forgotten; ids that stand for nothing written after all; a special token that a text can spell.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.formats.huggingface.importing import Imported, Languages
from glassformer.formats.import_run import read_source, write_run
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, CONTROL, EOS, UNK
from tests.external_models import DECODERS, READERS, SEQ2SEQ, TEXTS, bert, in_our_ids

OTHER = ["the hat, a naïve cat", "my mice sat", "xyz 你好 ½ the mat", "  two   spaces "]
MANY = {"mbart": Languages("en_XX", "de_DE"), "m2m_100": Languages("en_XX", "de_DE")}
MANY["m2m_100, its own files"] = Languages("en", "de")


@dataclass
class Both:
    theirs: Any
    words: Any
    imported: Imported
    ours: Any


def both(name: str, made: Any, folder: Path) -> Both:
    theirs, words = made(folder / "theirs")
    imported = read_source(str(folder / "theirs"), languages=MANY.get(name))
    write_run(imported, folder / "run")
    return Both(theirs, words, imported, glassformer.load(folder / "run"))


def as_ours(found: Both, ids: Any, side: str = "target") -> list[int]:
    """Their ids in our order."""
    return in_our_ids(found.imported.theirs[side], torch.as_tensor(ids)).tolist()


def same_scores(found: Both, theirs: torch.Tensor, ours: torch.Tensor) -> None:
    """Word by word; what they do not have gets no probability here."""
    vocabulary = found.imported.theirs["target"]
    order = torch.tensor(vocabulary.order)
    known = order >= 0
    torch.testing.assert_close(ours[..., known], theirs[..., order[known]], atol=2e-4, rtol=1e-4)
    never = vocabulary.never
    assert not never or float(ours.softmax(-1)[..., never].max()) == 0


@pytest.fixture(scope="module", params=SEQ2SEQ)
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return both(request.param, SEQ2SEQ[request.param], tmp_path_factory.mktemp("seq2seq"))


@torch.no_grad()
def test_a_translator_reads_and_scores_as_theirs(translator: Both) -> None:
    source, target = translator.ours.tokenizers.source, translator.ours.tokenizers.target
    for text in [*TEXTS[:4], *OTHER]:
        assert as_ours(translator, translator.words(text).input_ids, "source") == [*source.encode(text), EOS]
    for text in TEXTS[:4]:
        written = translator.words(text_target=text).input_ids
        said = translator.words.decode(written, skip_special_tokens=True).removeprefix("__de__ ")  # no text, here
        assert target.decode(as_ours(translator, written)) == said
    ids = translator.words(TEXTS[0], return_tensors="pt").input_ids
    start = translator.theirs.config.decoder_start_token_id
    wrote = translator.words(text_target=TEXTS[1]).input_ids
    theirs = translator.theirs(input_ids=ids, decoder_input_ids=torch.tensor([[start, *wrote]])).logits
    ours = translator.ours.model(
        Rows.whole(torch.tensor([[*source.encode(TEXTS[0]), EOS]])),
        Rows.whole(torch.tensor([[BOS, *as_ours(translator, wrote)]])),
    )
    same_scores(translator, theirs, ours)


@torch.no_grad()
def test_a_translator_writes_as_theirs(translator: Both) -> None:
    """Greedily, the same words in the same number; a language that is forced is forced."""
    language = translator.ours.tokenizers.target.before
    forced = translator.imported.theirs["target"].order[language[0]] if language else None
    for text in (TEXTS[0], OTHER[1]):
        never = [i for i in (translator.words.pad_token_id, translator.words.unk_token_id) if i is not None]
        written = translator.theirs.generate(
            **translator.words(text, return_tensors="pt"),
            num_beams=1,
            do_sample=False,
            max_new_tokens=8,
            suppress_tokens=never,
            forced_bos_token_id=forced,
        )[0].tolist()
        answer = translator.ours.translate(text, beam=1, max_new_tokens=8)
        wanted = [i for i in as_ours(translator, written)[1:] if i != EOS]
        assert list(answer.best.parts[0].hypothesis.ids) == wanted


@pytest.fixture(scope="module", params=DECODERS)
def writer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return both(request.param, DECODERS[request.param], tmp_path_factory.mktemp("decoder"))


@torch.no_grad()
def test_a_writer_reads_and_scores_as_theirs(writer: Both) -> None:
    from glassformer.tasks.generate import prompt_ids

    for text in [*TEXTS[:4], *OTHER, "</s> <|endoftext|>"[:0] or "mice"]:
        ids = writer.words(text).input_ids
        own = prompt_ids(writer.ours, text)
        if own[0] != BOS and ids[0] == getattr(writer.theirs.config, "bos_token_id", None):
            ids = ids[1:]
        assert as_ours(writer, ids)[own[0] == BOS :] == own[own[0] == BOS :]
        assert writer.ours.tokenizer.decode(own) == writer.words.decode(ids, skip_special_tokens=True)
    ids = writer.words(TEXTS[0], return_tensors="pt").input_ids
    ours = writer.ours.model(Rows.whole(torch.tensor([as_ours(writer, ids[0])])))
    same_scores(writer, writer.theirs(ids).logits, ours)
    answer = writer.theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=6,
        do_sample=False,
        pad_token_id=0,
        suppress_tokens=[i for i in (writer.words.unk_token_id, writer.words.bos_token_id) if i not in (None, 0, 2)],
    )[0, ids.size(1) :].tolist()
    assert answer


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return both(request.param, READERS[request.param], tmp_path_factory.mktemp("reader"))


@torch.no_grad()
def test_a_reader_reads_and_scores_as_theirs(reader: Both) -> None:
    for text in TEXTS[:4] + OTHER:
        assert as_ours(reader, reader.words(text).input_ids) == reader.ours.with_special_tokens(
            reader.ours.tokenizer.encode(text)
        )
    ids = reader.words(TEXTS[0], return_tensors="pt").input_ids
    found = reader.theirs(ids)
    ours = reader.ours.model(Rows.whole(torch.tensor([as_ours(reader, ids[0])])))
    if reader.ours.model.config.head == "mlm":
        same_scores(reader, found.logits if hasattr(found, "logits") else found.prediction_logits, ours)
        assert reader.ours.fill("the ___ sat on the mat").masks
    elif reader.ours.model.config.head == "classify":
        torch.testing.assert_close(ours[:, 0], found.logits, atol=2e-4, rtol=1e-4)
        best = reader.theirs.config.id2label[int(found.logits.argmax())]
        assert reader.ours.classify(TEXTS[0]) == best
    else:
        torch.testing.assert_close(ours, found.logits, atol=2e-4, rtol=1e-4)
        assert len(reader.ours.tag(TEXTS[0])) == len(TEXTS[0].split())


@torch.no_grad()
def test_the_next_sentence_head_is_a_classifier(tmp_path: Path) -> None:
    theirs, words = bert(tmp_path / "theirs", "ForPreTraining")
    imported = read_source(str(tmp_path / "theirs"), head="next-sentence")
    write_run(imported, tmp_path / "run")
    ours = glassformer.load(tmp_path / "run")
    ids = words(TEXTS[0], TEXTS[1], return_tensors="pt")
    found = theirs(**ids).seq_relationship_logits
    own = in_our_ids(imported.theirs["target"], ids.input_ids)
    torch.testing.assert_close(ours.model(Rows.whole(own), ids.token_type_ids)[:, 0], found, atol=2e-4, rtol=1e-4)
    assert ours.tokenizers.labels == ["is the next sentence", "is another"]


def test_no_text_spells_a_control_id(writer: Both) -> None:
    for text in ("<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<eos >", "<pad >", "a </s> b"):
        assert not [i for i in writer.ours.tokenizer.encode(text) if i < CONTROL and i != UNK]
