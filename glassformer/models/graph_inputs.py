"""What a captured graph reads and writes without being handed it: weights, tables, buffers, an optimizer's moments.

A graph knows these tensors by their addresses alone. So it owns them: their memory is kept as long as the graph, and before a
replay the tensors that the model holds now are compared with those of the capture. Where one has moved (a table made anew, a
parameter replaced) the graph is of no use any more, and whoever holds it captures the step again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

Place = tuple[Mapping[Any, Any], Any]
"""Where a tensor is looked up: a mapping (such as a module's buffers) and a key of it."""


def places_of(model: nn.Module) -> Iterator[Place]:
    """Where a model's tensors are looked up: parameters, buffers, and what else hangs on its modules."""
    for module in model.modules():
        attributes = vars(module)
        for mapping in (attributes["_parameters"], attributes["_buffers"], attributes):
            yield from ((mapping, key) for key, value in mapping.items() if isinstance(value, Tensor))


class GraphInputs:
    """The tensors in these places at the time of a capture."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = list(places)
        self.kept = [
            mapping[key].detach() for mapping, key in self.places
        ]  # the same memory, which nobody else gets now
        self.addresses = [tensor.data_ptr() for tensor in self.kept]

    def moved(self) -> str | None:
        """The key of a tensor that is not where the graph reads it any more; None where all are."""
        for (mapping, key), address in zip(self.places, self.addresses, strict=True):
            tensor = mapping.get(key)
            if not isinstance(tensor, Tensor) or tensor.data_ptr() != address:
                return str(key)
        return None
