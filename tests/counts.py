"""How often randomized tests try: a few times in `make test`, a quarter of that in `make check`, many in `make soak`."""

import os

SOAK = bool(os.environ.get("GLASSFORMER_SOAK"))


def count(*, fast: int, soak: int) -> int:
    if os.environ.get("GLASSFORMER_QUICK"):
        return -(-fast // 4)
    return soak if SOAK else fast
