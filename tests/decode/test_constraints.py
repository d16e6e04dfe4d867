"""Glossary terms, stop strings, settings that contradict each other."""

from __future__ import annotations

import random

import pytest
import torch

from glassformer.config import DecodeConfig
from glassformer.decode import (
    SpecialTokens,
    TokenConstraints,
    constraints,
    generate_batch,
    spellings,
    stream,
    translate_batch,
)
from glassformer.decode.constraints import contains, next_tokens, tokens_missing
from glassformer.errors import ConfigError, UserError
from glassformer.text.tokenizer import Tokenizer
from tests.counts import count
from tests.laws.zoo import VOCABULARY, small
from tests.tables import CONTROLS, EOS, TableModel, by_hand, everything


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 3, 8])
def test_every_glossary_term_appears(beam: int) -> None:
    """Random terms of one to three tokens, up to three of them, overlapping and repeated tokens included, with bigrams
    that must not repeat. Caught: EOS before the last term; a term begun too late for the limit; one broken off that
    counts as met; another filter that forbids a term."""
    model = small("transformer", seed=2, tie_output=False)
    draw = random.Random(beam)
    for _ in range(count(fast=6, soak=60)):
        sources, demands = [], []
        for _ in range(4):
            sources.append([draw.randrange(5, VOCABULARY) for _ in range(draw.randrange(1, 8))])
            terms = []
            for _ in range(draw.randrange(4)):
                ways = [
                    tuple(draw.randrange(5, 9) for _ in range(draw.randrange(1, 4))) for _ in range(draw.choice((1, 2)))
                ]
                terms.append(tuple(ways))
            prefix = tuple(draw.randrange(5, 9) for _ in range(draw.choice((0, 2))))
            demands.append(TokenConstraints(terms=tuple(terms), prefix=prefix))
        config = DecodeConfig(
            beam=beam, n_best=beam, max_ratio=0.0, max_extra=draw.choice((2, 12)), no_repeat_ngram=draw.choice((0, 2))
        )
        for hypotheses, demand in zip(translate_batch(model, sources, config, constraints=demands), demands):
            assert hypotheses
            for h in hypotheses:
                assert tuple(h.ids[: len(demand.prefix)]) == demand.prefix
                for term in demand.terms:
                    assert any(contains(tuple(h.ids), spelling) for spelling in term), (h, term)


def test_constrained_search_finds_the_best_text_with_the_terms() -> None:
    """Among everything that contains them, where the beam covers the space."""
    for seed in range(count(fast=6, soak=60)):
        draw = random.Random(seed)
        vocabulary, limit = 3, 5
        model = TableModel(4, vocabulary, limit, seed=seed)
        term = tuple(draw.choice((0, 2)) for _ in range(draw.choice((1, 2, 3))))
        config = DecodeConfig(
            beam=vocabulary**limit, n_best=3, max_new_tokens=limit, alpha=draw.choice((-1.0, 0.0, 0.6, 2.0))
        )
        demands = TokenConstraints(terms=((term,),))
        found = translate_batch(model, [[n] for n in range(4)], config, special=CONTROLS, constraints=demands)
        for table, hypotheses in enumerate(found):
            possible = [p for p in everything(model, table, limit) if contains(p.ids, term) and p.complete]
            best = sorted(possible, key=lambda p: -by_hand(p, "gnmt", config.alpha))[:3]
            assert [tuple(h.ids) for h in hypotheses] == [p.ids for p in best]


def test_missing_tokens_are_enough_and_count_down_to_zero() -> None:
    """From any text, whatever overlaps: some token that begins or continues a term brings it down. Caught: a term that was broken
    off and counts as begun; one that is met only where a text ends."""
    terms = (((5, 6, 7),), ((6, 7), (8,)), ((5,),))
    assert [tokens_missing(terms, written) for written in ((), (5,), (5, 6), (5, 6, 7), (5, 8))] == [5, 3, 2, 0, 3]
    draw = random.Random(0)
    for _ in range(count(fast=60, soak=3000)):
        terms = tuple(
            tuple(tuple(draw.choices((1, 2), k=draw.choice((1, 2, 3)))) for _ in range(draw.choice((1, 2))))
            for _ in range(draw.choice((1, 2, 3)))
        )
        written = tuple(draw.choices((1, 2, 3), k=draw.randrange(6)))
        left = tokens_missing(terms, written)
        while left:
            fewer = {token: tokens_missing(terms, (*written, token)) for token in next_tokens(terms, written)}
            token = min(fewer, key=fewer.__getitem__)
            assert fewer[token] < left
            written, left = (*written, token), fewer[token]
        assert all(any(contains(written, spelling) for spelling in term) for term in terms)


def test_a_term_like_a_book_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: its tokens are counted first, which took a minute of a server for 2,000 letters."""
    monkeypatch.setattr(constraints, "tokens_missing", lambda *given: pytest.fail("the terms were read"))
    model, config = small("transformer"), DecodeConfig(max_new_tokens=6)
    demands = TokenConstraints(terms=((tuple([5, 6] * 500),),))
    with pytest.raises(UserError, match="longer than the"):
        translate_batch(model, [[7, 8]], config, constraints=demands)


def tokenizer() -> Tokenizer:
    texts = ["the cat sat on the mat", "a dog ran", "我们去北京", "the best of the rest 😀"] * 3
    return Tokenizer.train("bpe", texts, 300)


def test_terms_are_spelt_with_and_without_a_space() -> None:
    bpe = tokenizer()
    ways = spellings(bpe.encode, "cat")
    assert {bpe.decode(way) for way in ways} == {"cat", " cat"}
    words = Tokenizer.train("word", ["the cat sat"] * 2, 20)
    assert spellings(words.encode, "cat") == (tuple(words.encode("cat")),)
    with pytest.raises(UserError, match="'zebra' cannot be written"):
        spellings(words.encode, "zebra")
    with pytest.raises(UserError):
        spellings(bpe.encode, " ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"beam": 3, "n_best": 3}, {"beam": 1}, {"temperature": 1.0, "num_samples": 5}], ids=str
)
def test_text_ends_before_a_stop_string(settings: dict[str, object]) -> None:
    """Caught: a stop string that begins in one token and ends in another; one that stays in the text."""
    bpe = tokenizer()
    model = small("gpt", vocab_size=bpe.vocab_size, tie_output=False, seed=1)
    config = DecodeConfig(**settings, max_new_tokens=30, min_new_tokens=30)  # type: ignore[arg-type]
    free = generate_batch(model, [[10, 11]], config, text=bpe.decode)[0]
    for h in free:
        assert h.text is not None
        stop = h.text[4:7]
        stopped = generate_batch(
            model, [[10, 11]], config, text=bpe.decode, constraints=TokenConstraints(stops=(stop, "never!"))
        )[0]
        for s in stopped:
            assert s.text is not None and stop not in s.text
        same_start = [s for s in stopped if s.ended == "stop"]
        assert same_start and any(h.text.startswith(s.text or "") and s.ids == h.ids[: len(s.ids)] for s in same_start)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"beam": 1}, {"temperature": 1.3, "seed": 5}], ids=str)
@pytest.mark.parametrize("stops", [(), ("e", "th")], ids=str)
def test_what_streams_is_what_would_have_been_returned(settings: dict[str, object], stops: tuple[str, ...]) -> None:
    bpe = tokenizer()
    for seed in range(2):
        model = small("gpt", vocab_size=bpe.vocab_size, tie_output=False, seed=seed, positions="rotary")
        config = DecodeConfig(**settings, max_new_tokens=25)  # type: ignore[arg-type]
        demands = TokenConstraints(stops=stops)
        whole = generate_batch(model, [[10, 11]], config, text=bpe.decode, constraints=demands)[0][0]
        pieces = list(stream(model, [10, 11], config, text=bpe.decode, constraints=demands))
        assert "".join(piece.text for piece in pieces) == whole.text
        assert [piece.id for piece in pieces if piece.id is not None] == whole.ids
        logprobs = [piece.logprob for piece in pieces if piece.id is not None]
        assert logprobs == pytest.approx(whole.token_logprobs[: len(whole.ids)])


def test_streaming_a_beam_is_refused() -> None:
    model = small("gpt")
    with pytest.raises(ConfigError, match="streaming"):
        list(stream(model, [5], DecodeConfig(beam=4), text=str))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_best": 5}, "n_best=5 asks for more than the 4"),
        ({"beam": 4, "temperature": 0.8}, "choose one"),
        ({"top_k": 5}, "nothing is drawn"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p must be above 0"),
        ({"temperature": -1.0}, "temperature cannot be negative"),
        ({"num_samples": 3}, "needs decode.temperature"),
        ({"temperature": 1.0, "n_best": 2}, "n_best=2 asks"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens=9 is above"),
        ({"min_ratio": 3.0}, "min_ratio=3.0 is above"),
    ],
    ids=str,
)
def test_contradictions_are_refused_in_a_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        DecodeConfig(**settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("demands", "settings", "sentence"),
    [
        (TokenConstraints(terms=(((5, 6),),), banned=((6,),)), {}, "asked for and contains a sequence that is banned"),
        (TokenConstraints(terms=(((2,),),)), {}, "control id"),
        (TokenConstraints(terms=(((99,),),)), {}, "token id 99 is not in the vocabulary"),
        (TokenConstraints(terms=((),)), {}, "without any token"),
        (TokenConstraints(terms=(((5,),),), stops=("x",)), {}, "cannot be promised"),
        (TokenConstraints(terms=(((5,),),)), {"temperature": 1.0}, "need a search"),
        (TokenConstraints(prefix=(5, 0)), {}, "control id"),
        (TokenConstraints(banned=((),)), {}, "empty sequence"),
        (TokenConstraints(stops=("",)), {}, "empty stop string"),
    ],
    ids=str,
)
def test_impossible_demands_are_refused_in_a_sentence(
    demands: TokenConstraints, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        translate_batch(small("transformer"), [[5]], DecodeConfig(**settings), constraints=demands, text=str)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_what_learned_positions_cannot_hold_is_refused() -> None:
    model = small("transformer", positions="learned", block_size=8)
    with pytest.raises(UserError, match="source 2 has 9 tokens"):
        translate_batch(model, [[5], [5] * 9])
    with pytest.raises(UserError, match="longer than the 8 tokens"):
        translate_batch(model, [[5]], constraints=TokenConstraints(terms=(((5,) * 9,),)))
    assert len(translate_batch(model, [[5] * 8], DecodeConfig(min_ratio=2.0))[0][0].ids) == 8  # cut at the block


def test_control_ids_of_other_models() -> None:
    """EOS need not be 2, nor need there be one; what is `never` written is said by the caller."""
    model = small("gpt", tie_output=False)
    config = DecodeConfig(beam=2, max_new_tokens=6)
    (h,) = generate_batch(model, [[5]], config, special=SpecialTokens(bos=0, eos=None, unknown=None, never=()))[0]
    assert h.ended == "length" and len(h.ids) == 6
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.weight[EOS] = 1e-3
    (h,) = generate_batch(model, [[5]], config, special=SpecialTokens(bos=0, eos=7, unknown=None, never=(1,)))[0]
    assert 1 not in h.ids
