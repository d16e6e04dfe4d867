"""The machine that attention replaced: an LSTM (or plain RNN) that reads, one that writes, with or without attention between them
(Sutskever et al. 2014; Luong et al. 2015). It has the calls of our Transformer, so the same trials train both."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.nn.attention import attention
from glassformer.nn.loss import IGNORE


class RecurrentTranslator(nn.Module):
    """LSTM encoder (both ways) and LSTM decoder, or with `plain` Elman's RNN in their place. With `attends`, each step of the
    decoder looks over the encoder's outputs; without, all it knows of the source is the encoder's last state.

    >>> model = RecurrentTranslator(30, 32, attends=True)
    >>> model(torch.randint(30, (2, 7)), torch.randint(30, (2, 5)), [7, 4], [5, 5]).shape
    torch.Size([2, 5, 30])
    """

    def __init__(self, vocab_size: int, width: int, *, attends: bool, plain: bool = False, layers: int = 1) -> None:
        super().__init__()
        self.attends, self.plain = attends, plain
        kind = nn.RNN if plain else nn.LSTM
        self.embedding = nn.Embedding(vocab_size, width)
        self.encoder = kind(width, width // 2, layers, batch_first=True, bidirectional=True)
        self.bridge_h, self.bridge_c = nn.Linear(width, width), nn.Identity() if plain else nn.Linear(width, width)
        self.decoder = kind(width, width, layers, batch_first=True)
        self.query = nn.Linear(width, width, bias=False)
        self.join = nn.Linear(2 * width if attends else width, width)
        self.layers = layers

    def encode(
        self, source: Int[Tensor, "B S"], lengths: list[int]
    ) -> tuple[Float[Tensor, "B S C"], Tensor | tuple[Tensor, Tensor]]:
        """Outputs at every source token, and the state the decoder begins with."""
        packed = pack_padded_sequence(
            self.embedding(source), torch.tensor(lengths, device="cpu"), batch_first=True, enforce_sorted=False
        )
        out, state = self.encoder(packed)
        memory = pad_packed_sequence(out, batch_first=True, total_length=source.size(1))[0]

        def joined(state: Tensor) -> Tensor:
            return state.unflatten(0, (self.layers, 2)).transpose(1, 2).flatten(2)

        if self.plain:
            return memory, self.bridge_h(joined(state)).tanh().contiguous()
        h, c = state
        return memory, (self.bridge_h(joined(h)).tanh().contiguous(), self.bridge_c(joined(c)).contiguous())

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_lengths: list[int] | None = None,
        target_lengths: list[int] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """The scores of what may follow each target token."""
        lengths = source_lengths or [source.size(1)] * source.size(0)
        memory, state = self.encode(source, lengths)
        out = self.decoder(self.embedding(target), state)[0]
        if self.attends:
            real = torch.arange(source.size(1))[None] < torch.tensor(lengths)[:, None]
            out = torch.cat([out, attention(self.query(out), memory, memory, real[:, None])], -1)
        return F.linear(self.join(out).tanh(), self.embedding.weight)

    def loss(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        *,
        source_lengths: list[int] | None = None,
        target_lengths: list[int] | None = None,
    ) -> Float[Tensor, ""]:
        """Summed over the positions that have a label."""
        logits = self(source, target, source_lengths, target_lengths)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
