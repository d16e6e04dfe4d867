"""What a lexical shortlist brings: sentences a second with it beside without, by CTranslate2 in int8.

    python3 bench/shortlist.py train.tsv val.tsv --pieces 8000

A student's sizes with random weights, which has the speed of a trained one and no quality, so every answer has 15 tokens. Tokens
and shortlist are made of the training pairs. Processor time, one thread, the two in turns; printed are the best turn of each and
the ratio of the medians.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch

from glassformer import Transformer
from glassformer.config import DecodeConfig
from glassformer.decode import translate_batch
from glassformer.improve.shortlist import make_shortlist
from glassformer.text.tokenizer import EOS, Tokenizer

CASES = [("int8", 1, 1), ("int8", 4, 1), ("int8", 4, 32)]  # engine, beam, batch
LENGTH = {"max_new_tokens": 15, "min_new_tokens": 14}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("val", type=Path)
    parser.add_argument("--pieces", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [[line.split("\t")[:2] for line in path.open(encoding="utf-8")] for path in (given.train, given.val)]
    tokenizer = Tokenizer.train("bpe", (text for row in rows[0] for text in row), given.pieces, False)
    (sources, targets), (read, references) = (
        [tokenizer.encode_batch(list(side)) for side in zip(*own)] for own in rows
    )
    size = tokenizer.vocab_size
    model = Transformer(
        vocab_size=size, block_size=128, n_layer=2, n_encoder_layer=6, n_head=4, n_embd=256, n_hidden=1024, dropout=0.0
    ).eval()
    model.shortlist = make_shortlist(sources, targets, size, shared=True)
    frequent, likely = model.shortlist.frequent, model.shortlist.likely
    lists = [np.unique([*frequent, *likely[list(ids)].ravel()]) for ids in read]
    inside = [np.isin(ids, own) for ids, own in zip(references, lists, strict=True)]
    together = len(np.unique(np.concatenate(lists[:32])))
    print(
        f"{size:,} tokens; a shortlist has {np.mean([len(own) for own in lists]):,.0f}, of 32 sentences {together:,};"
    )
    print(f"{100 * np.concatenate(inside).mean():.1f}% of the references' tokens are in it")
    for engine, beam, batch in CASES:
        texts = [[*ids, EOS] for ids in read[: 12 if batch == 1 else 64]]
        speeds: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(1 + given.repeats):
            for on, own in speeds.items():
                config = DecodeConfig(beam=beam, batch_size=batch, shortlist=on, engine=engine, **LENGTH)  # type: ignore[arg-type]
                began = time.process_time()
                translate_batch(model, texts, config)
                own += [len(texts) / (time.process_time() - began)] if turn else []
        ratio = np.median(speeds[True]) / np.median(speeds[False])
        print(f"{engine}, beam {beam}, batch {batch}: {max(speeds[False]):.1f}, {max(speeds[True]):.1f}: {ratio:.2f}")


if __name__ == "__main__":
    main()
