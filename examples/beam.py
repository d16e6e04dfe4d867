"""Beam search in thirty lines: the search of glassformer/decode, one sentence, no cache, nothing optional."""

from __future__ import annotations

import torch

from glassformer import Transformer

BOS, EOS = 1, 2


@torch.no_grad()
def beam_search(
    model: Transformer, source: list[int], beams: int = 4, alpha: float = 0.6, limit: int = 30
) -> list[int]:
    """The best target for a source, as ids: of the `beams` best beginnings, each is continued by every token."""
    alive: list[tuple[float, list[int]]] = [(0.0, [BOS])]  # sum of log-probabilities, tokens
    finished: list[tuple[float, list[int]]] = []  # score, tokens
    for _ in range(limit):
        targets = torch.tensor([tokens for _, tokens in alive])
        sources = torch.tensor([source] * len(alive))
        log_p = model(sources, targets)[:, -1].log_softmax(dim=-1)  # (alive, V): what may follow each
        log_p[:, BOS] = float("-inf")  # never written
        totals = torch.tensor([total for total, _ in alive])[:, None] + log_p
        best = totals.flatten().topk(min(2 * beams, totals.numel()))  # as many, so that `beams` go on whatever ends
        candidates = []
        for total, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            row, token = divmod(index, log_p.size(1))
            candidates.append((total, [*alive[row][1], token]))
        for total, tokens in candidates[:beams]:
            if tokens[-1] == EOS:  # longer sums are lower: compare them by GNMT's rule (Wu et al. 2016)
                finished.append((total / ((5 + len(tokens) - 1) / 6) ** alpha, tokens))
        alive = [(total, tokens) for total, tokens in candidates if tokens[-1] != EOS][:beams]
        if len(finished) >= beams:
            break
    return max(finished or alive)[1][1:]
