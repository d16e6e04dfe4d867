"""Corrections while serving: are they right at once and after a hundred, what else is corrected, and what is lost?

    python3 bench/corrections.py RUN                           # 100 corrections of the test split
    python3 bench/corrections.py RUN --split val --skip 64    # to choose by: not what is reported

A correction is an example of the split that the run answers otherwise: its source, with the reference as what it should have
been. They are learned one after the other, as `glassformer serve --learn` does (serve/learning.py), but without HTTP; the seconds
are those of the check and the learning, and beside them those of the processor, which others' work does not lengthen. BLEU is
that of the other examples of the split. A paraphrase is the source with a contraction written out or drawn together, its final
mark left out, or its first letter in the other case; it counts if the run did not answer it with the reference before. Garbage is
refused or not: the same sources with the reference of another, and with letters at random.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

CONTRACTIONS = [("n't", " not"), ("'m", " am"), ("'re", " are"), ("'ll", " will"), ("'ve", " have")]


def paraphrases(text: str) -> list[str]:
    """The text said a little otherwise."""
    found = [text.replace(short, long) for short, long in CONTRACTIONS]
    found += [text.replace(long + " ", short + " ") for short, long in CONTRACTIONS]
    found += [text[:-1] if text[-1:] in ".!?。！？" else text + ".", text[:1].swapcase() + text[1:]]
    return [one for one in dict.fromkeys(found) if one not in ("", text)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--split", default="test", choices=["val", "test"])
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out so many examples: the first of val guard the learning"
    )
    parser.add_argument("--most", type=int, default=1000, help="examples of the split")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()

    import sacrebleu
    import torch

    from glassformer.api.loading import load
    from glassformer.data.store import run_examples
    from glassformer.errors import UserError
    from glassformer.evaluation.metrics import bleu_tokenize
    from glassformer.runs.folder import RunFolder
    from glassformer.serve.learning import Baseline, check_plausible, is_right, learn
    from glassformer.tasks import TextModel, translate

    run = RunFolder.open(options.run)
    examples = list(run_examples(run.recipe.data, options.split, run.path / "data"))
    examples = examples[options.skip : options.skip + options.most]
    base = load(options.run, device=options.device)
    baseline = Baseline(base, run)

    def answers(model: TextModel, texts: list[str]) -> list[str]:
        return [found[0].text for found in translate(model, texts)]

    def bleu(model: TextModel) -> float:
        wanted = [target for _, target in rest]
        cut = bleu_tokenize(wanted, run.recipe.train.bleu_tokenize)
        return sacrebleu.corpus_bleu(answers(model, [s for s, _ in rest]), [wanted], tokenize=cut, force=True).score

    before = answers(base, [source for source, _ in examples])
    wrong = [pair for pair, answer in zip(examples, before, strict=True) if answer != pair[1]]
    chosen = random.Random(1).sample(wrong, min(options.count, len(wrong)))
    rest = [pair for pair in examples if pair not in set(chosen)]
    print(
        f"{platform.machine()}, {options.device}, {torch.get_num_threads()} threads; {options.split}: {len(examples)}, wrong "
        f"{len(wrong)}"
    )

    garbage = {
        "of another": [(s, t) for (s, _), (_, t) in zip(chosen, chosen[1:] + chosen[:1], strict=True)],
        "letters": [
            (s, "".join(random.Random(n).choices("bcdfghjklmnpqrstvwxz ", k=len(t)))) for n, (s, t) in enumerate(chosen)
        ],
    }
    for name, pairs in ({"true": chosen} | garbage).items():
        refused = 0
        for pair in pairs:
            try:
                check_plausible(pair, baseline)
            except UserError:
                refused += 1
        print(f"refused before any was learned, {name}: {refused} of {len(pairs)}", flush=True)

    said = [(other, target) for source, target in chosen for other in paraphrases(source)]
    open_ones = [
        pair for pair, answer in zip(said, answers(base, [s for s, _ in said]), strict=True) if answer != pair[1]
    ]
    model, learned, seconds, busy, at_once = base, [], [], [], 0
    for number, pair in enumerate(chosen, 1):
        began, used = time.perf_counter(), time.process_time()
        try:
            check_plausible(pair, baseline)
            found = learn(model, baseline, pair, learned)
        except UserError:
            found = None
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - used)
        if found is not None:
            model = found[1]
            learned.append(pair)
            at_once += is_right(model, pair)
        print(
            f"{number}: {'learned' if found else 'not learned'} in {seconds[-1]:.1f} s, {busy[-1]:.1f} of the processor",
            flush=True,
        )
    kept = sum(is_right(model, pair) for pair in chosen)
    also = sum(a == t for a, (_, t) in zip(answers(model, [s for s, _ in open_ones]), open_ones, strict=True))
    old, new = bleu(base), bleu(model)
    print(f"right at once {at_once}, after all {kept}, of {len(chosen)} corrections")
    print(f"paraphrases right {also} of {len(open_ones)}, none of them before")
    print(f"BLEU of the other {len(rest)}: {old:.2f} before, {new:.2f} after")
    for name, each in (("seconds", seconds), ("processor seconds", busy)):
        print(f"{name} each: median {statistics.median(each):.1f}, most {max(each):.1f}")


if __name__ == "__main__":
    main()
