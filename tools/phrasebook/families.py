"""What a family of sentences is, and how a function becomes one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.phrasebook.wording import Sentence


@dataclass(frozen=True, eq=False)
class Family:
    """Sentences of one pattern: every combination of fillers that makes sense, written in the three languages."""

    name: str
    topic: str
    held: tuple[str, str]  # the two slots whose combinations of fillers are kept apart for validation and test
    slots: dict[str, Sequence[object]]
    makes_sense: Callable[..., bool]
    write: Callable[..., Sentence]


def family(
    topic: str, held: tuple[str, str], /, *, where: Callable[..., bool] | None = None, **slots: Sequence[object]
) -> Callable[[Callable[..., Sentence]], Family]:
    """Make a family of a function that writes one sentence; its parameters are the slots, in the same order."""

    def make(write: Callable[..., Sentence]) -> Family:
        return Family(write.__name__, topic, held, slots, where or (lambda *fillers: True), write)

    return make
