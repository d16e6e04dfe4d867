"""Few cases in which every two choices meet: a covering array of strength two, by the greedy of Cohen et al. (1997), "The AETG
system". What goes wrong in software goes wrong, nearly always, by one setting or by two together (Kuhn et al., 2004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

Choice = tuple[str, int]
"""A factor, and which of its levels."""
Row = dict[str, int]


def covering(factors: Mapping[str, Sequence[object]], allowed: Callable[[Row], bool]) -> list[Row]:
    """Rows of one level a factor that hold every pair of levels that `allowed` (asked of parts of rows) lets stand together.

    Where a choice brings no new pair, a switch (nothing, or one thing) stays off; of other factors it is the rarest level."""

    def pairs(row: Row) -> set[frozenset[Choice]]:
        return {frozenset(pair) for pair in combinations(row.items(), 2)}

    levels = [(name, level) for name, values in factors.items() for level in range(len(values))]
    apart = (pair for pair in combinations(levels, 2) if pair[0][0] != pair[1][0])
    left = {frozenset(pair): pair for pair in apart if allowed(dict(pair))}
    uses: Counter[Choice] = Counter()
    rows = []
    while left:
        row: Row = dict(next(iter(left.values())))
        for name in sorted(factors, key=lambda name: -len(factors[name])):
            if name not in row:
                choices = [row | {name: level} for level in range(len(factors[name]))]
                is_switch = len(choices) == 2 and not factors[name][0]
                rare = {choice[name]: 0 if is_switch else -uses[name, choice[name]] for choice in choices}
                row = max(filter(allowed, choices), key=lambda r: (len(pairs(r) & left.keys()), rare[r[name]]))
        for pair in pairs(row):
            left.pop(pair, None)
        uses.update(row.items())
        rows.append(row)
    return rows
