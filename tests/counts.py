"""How often randomized tests try: a few times in `make test`, many in `make soak`."""

import os


def count(*, fast: int, soak: int) -> int:
    return soak if os.environ.get("GLASSFORMER_SOAK") else fast
