"""How good a model is, in numbers that others can repeat.

Loss, perplexity and token accuracy are measured with the right tokens before each position (teacher forcing); exact match,
BLEU, chrF and TER on what the model writes by itself. BLEU, chrF and TER are sacrebleu's, with its signature, hypothesis
first and reference second, on detokenised text unless the recipe says otherwise. Padding counts nowhere. All shares are
percentages, as BLEU is, and every score says what it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from glassformer.language import _
from glassformer.text.languages import is_han

BETTER_WHEN_LOWER = {"loss", "perplexity", "ter"}
NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "f1": "F1",
    "entity_f1": _("entity F1"),
    "loss": _("loss"),
    "perplexity": _("perplexity"),
    "accuracy": _("accuracy"),
    "token_accuracy": _("token accuracy"),
    "exact_match": _("exact match"),
}
NOISE = 1.0  # of 100: below it a score says nothing about which of two models is better
SHARES = ("exact_match", "accuracy", "token_accuracy")  # shown with a percent sign; BLEU and its kin never are


def measure_name(name: str) -> str:
    """A measure as people write it.

    >>> measure_name("bleu"), measure_name("exact_match")
    ('BLEU', 'exact match')
    """
    return NAMES.get(name, name.replace("_", " "))


def measure_value(name: str, value: float) -> str:
    """Its value as people write it, with as many digits as mean something.

    >>> measure_value("loss", 0.01234), measure_value("bleu", 31.718), measure_value("exact_match", 99.5)
    ('0.0123', '31.72', '99.50%')
    """
    return f"{value:.4f}" if name == "loss" else f"{value:.2f}{'%' if name in SHARES else ''}"


def measures_text(
    values: Mapping[str, float], between: str = "  ", say: Callable[[str], str] = lambda name: name
) -> str:
    """Measures in one line, all on one scale; `say` may put their names in another language.

    >>> measures_text({"loss": 0.5, "exact_match": 12.0, "bleu": 20.0})
    'loss 0.5000  exact match 12.00%  BLEU 20.00'
    """
    return between.join(f"{say(measure_name(name))} {measure_value(name, value)}" for name, value in values.items())


@dataclass(frozen=True)
class Scores:
    """Values by name, the signatures of those that have one, and a few examples: (source, wanted, written)."""

    values: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)
    samples: list[tuple[str, str, str]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)  # what the model made of each example

    def __or__(self, other: Scores) -> Scores:
        return Scores(
            self.values | other.values,
            self.signatures | other.signatures,
            [*self.samples, *other.samples],
            self.written or other.written,
        )


def bleu_tokenize(wanted: Sequence[str], asked: str = "auto") -> str:
    """How sacrebleu cuts these texts into words: as asked, or (auto) `zh` for Chinese and `13a` for anything else."""
    sample = "".join(wanted[:200])
    return asked if asked != "auto" else "zh" if sum(map(is_han, sample)) > 0.3 * len(sample) else "13a"


def words_per_text(texts: Sequence[str], tokenize: str = "auto") -> list[int]:
    """How many words BLEU sees in each text.

    >>> words_per_text(["two words", "1979-05-03"]), words_per_text(["我喜欢写代码"])
    ([2, 5], [6])
    """
    from sacrebleu.metrics import BLEU

    cut = BLEU(tokenize=bleu_tokenize(texts, tokenize), force=True).tokenizer
    return [len(cut(text).split()) for text in texts]


def text_scores(
    written: Sequence[str], wanted: Sequence[str], tokenize: str = "auto", *, edits: bool = False
) -> Scores:
    """Exact match, BLEU and chrF of whole texts; with `edits` TER, too, which is slow on texts that have nothing in common."""
    from sacrebleu.metrics import BLEU, CHRF, TER

    tokenize = bleu_tokenize(wanted, tokenize)
    exact = 100 * sum(a.strip() == b.strip() for a, b in zip(written, wanted, strict=True)) / max(1, len(wanted))
    # force: text that a recipe leaves tokenised is meant so, and not worth a warning at every validation.
    bleu, chrf = BLEU(tokenize=tokenize, force=tokenize == "none"), CHRF()
    values = {
        "exact_match": exact,
        "bleu": bleu.corpus_score(list(written), [list(wanted)]).score,
        "chrf": chrf.corpus_score(list(written), [list(wanted)]).score,
    }
    signatures = {
        "exact_match": _(
            "% of texts, blanks at the ends aside; of single words 100 less this is the word error rate (WER)"
        ),
        "bleu": str(bleu.get_signature()),
        "chrf": str(chrf.get_signature()),
    }
    if edits:
        ter = TER(asian_support=tokenize == "zh")
        values["ter"] = ter.corpus_score(list(written), [list(wanted)]).score
        signatures["ter"] = str(ter.get_signature())
    return Scores(values, signatures)


def label_scores(found: Sequence[str], wanted: Sequence[str]) -> Scores:
    """Accuracy and macro F1, in percent: the mean over all labels that were wanted or found, as scikit-learn takes it. (F1
    of one label: twice the hits, over how often it was found plus how often it was wanted.)"""
    right = Counter(w for f, w in zip(found, wanted, strict=True) if f == w)
    said, true = Counter(found), Counter(wanted)
    f1 = [2 * right[label] / (said[label] + true[label]) for label in said.keys() | true.keys()]
    return Scores(
        {"accuracy": 100 * sum(right.values()) / max(1, len(wanted)), "f1": 100 * sum(f1) / max(1, len(f1))},
        {"accuracy": _("% of labels"), "f1": _("%, the mean of all labels' (macro)")},
    )


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """The spans that tags such as B-PER, I-PER, E-PER, S-PER and O mark, as (first, one past the last, kind). A span begins at
    B or S, and wherever the kind changes; it ends after E or S. So IOB1, IOB2 and BIOES are all read (as `conlleval` does)."""
    found: set[tuple[int, int, str]] = set()
    begun: int | None = None
    kind = ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        inside = prefix in ("B", "I", "E", "S") and bool(name)
        if begun is not None and (not inside or prefix in ("B", "S") or name != kind):
            found.add((begun, place, kind))
            begun = None
        if inside and begun is None:
            begun, kind = place, name
        if begun is not None and prefix in ("E", "S"):
            found.add((begun, place + 1, kind))
            begun = None
    return found


def entity_scores(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> Scores:
    """F1 of whole entities, where the tags mark any: an entity counts if its kind and both its ends are right."""
    said, true = [entities(tags) for tags in found], [entities(tags) for tags in wanted]
    marked = sum(map(len, said)) + sum(map(len, true))
    if not any(tag[:2] in ("B-", "I-", "E-", "S-") for tags in wanted for tag in tags) or not marked:
        return Scores({})
    right = sum(len(a & b) for a, b in zip(said, true, strict=True))
    return Scores({"entity_f1": 100 * 2 * right / marked}, {"entity_f1": "% of whole entities (micro), as conlleval"})


def is_better(
    metric: str, new: float, old: float | None, loss: float | None = None, old_loss: float | None = None
) -> bool:
    """Whether a new value of the metric beats the old one. Scores that are equal, and those below NOISE, leave it to the loss.

    >>> is_better("bleu", 0.24, 0.09, loss=3.0, old_loss=2.0), is_better("exact_match", 100.0, 100.0, loss=0.1, old_loss=0.2)
    (False, True)
    """
    if old is None:
        return True
    if metric in BETTER_WHEN_LOWER:
        return new < old
    new, old = (score if score >= NOISE else 0.0 for score in (new, old))
    if new != old:
        return new > old
    return loss is not None and old_loss is not None and loss < old_loss


def written_scores(
    write: Callable[[list[str]], list[str]],
    pairs: Sequence[tuple[str, str]],
    tokenize: str = "auto",
    samples: int = 5,
    *,
    edits: bool = False,
) -> Scores:
    """Scores of what `write` makes of the sources, with a few examples, spread over the set."""
    sources, wanted = [s for s, _ in pairs], [t for _, t in pairs]
    written = write(sources)
    picked = range(0, len(pairs), max(1, len(pairs) // max(1, samples)))
    shown = [(sources[i], wanted[i], written[i]) for i in picked][:samples]
    return text_scores(written, wanted, tokenize, edits=edits) | Scores({}, samples=shown, written=list(written))


Constituents = Counter[tuple[str, int, int]]
"""How often each label spans which words: (label, first, one after the last)."""


def constituents(line: str) -> tuple[Constituents, int] | None:
    """The constituents of a constituency tree in one line, `(S (NP XX XX )NP (VP XX )VP )S`, and its number of words; None where
    it is no tree.

    >>> constituents("(S (NP XX )NP (VP XX )VP )S")[0] == Counter({("S", 0, 2): 1, ("NP", 0, 1): 1, ("VP", 1, 2): 1})
    True
    """
    counts: Constituents = Counter()
    opened: list[tuple[str, int]] = []
    words = 0
    for token in line.split():
        if token.startswith("(") and len(token) > 1:
            if not opened and counts:  # a second tree
                return None
            opened.append((token[1:], words))
        elif token.startswith(")"):
            if not opened or opened[-1][0] != token[1:]:
                return None
            label, first = opened.pop()
            counts[label, first, words] += 1
        elif opened:
            words += 1
        else:
            return None
    return None if opened or not counts else (counts, words)


def bracket_f1(written: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """Labelled bracket F1, precision, recall and the share of whole trees that are right, in percent, by evalb's rule (Sekine and
    Collins): a constituent is its label and the words it spans; precision and recall are over all constituents of all sentences
    together, each of a sentence's constituents matched once. A tree that is none (brackets that do not close, another number of
    words than the sentence has) counts as one without constituents; evalb would leave such a sentence out, which is kinder.

    >>> round(bracket_f1(["(S (NP XX XX )NP )S"], ["(S (NP XX )NP XX )S"])["f1"], 1)
    50.0
    """
    matched = given = gold = whole = 0
    for ours, theirs in zip(written, wanted, strict=True):
        right = constituents(theirs)
        if right is None:
            raise ValueError(f"no tree: {theirs!r}")
        tree = constituents(ours)
        counts = tree[0] if tree is not None and tree[1] == right[1] else Counter()
        matched += (counts & right[0]).total()
        given += counts.total()
        gold += right[0].total()
        whole += counts == right[0]
    return {
        "f1": 200 * matched / max(1, given + gold),
        "precision": 100 * matched / max(1, given),
        "recall": 100 * matched / max(1, gold),
        "exact_match": 100 * whole / max(1, len(wanted)),
    }
