"""What a decoder carries from one token to the next: its cache, and the memory (the encoded source) where there is one.

Rows that belong to one sentence (its beams) stand together: row r belongs to sentence r // beams. The source's keys and
values are held once a sentence; `reorder` moves the cache's rows, and the source only when sentences leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Int
from torch import Tensor

from glassformer.nn.attention import KeyValues
from glassformer.nn.cache import KVCache
from glassformer.nn.masks import AttentionMask


@dataclass
class DecoderState:
    """A decoder's cache; for the encoder-decoder also the memory, as keys and values of each layer's cross-attention."""

    cache: KVCache
    memory: list[KeyValues] = field(default_factory=list)
    cross_mask: AttentionMask = field(default_factory=AttentionMask)
    beams: int = 1

    @property
    def rows(self) -> int:
        """Texts being written at the moment: sentences times beams."""
        return self.cache.lengths.size(0)

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Row i becomes what row rows[i] was. Rows stay within their sentence; whole sentences may leave."""
        fewer = rows.size(0) != self.rows
        self.cache.reorder(rows)
        if fewer and self.memory:
            sentences = rows[:: self.beams] // self.beams
            self.memory = [(k.index_select(0, sentences), v.index_select(0, sentences)) for k, v in self.memory]
            if self.cross_mask.allowed is not None:
                self.cross_mask = AttentionMask(self.cross_mask.allowed.index_select(0, sentences))
