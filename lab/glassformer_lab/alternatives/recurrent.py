"""What attention replaced: a recurrent layer (here an LSTM; Hochreiter and Schmidhuber 1997), which reads token after token.

    i, f, g, o = W x_t + U h_{t-1} + b          input, forget and output gates, and the candidate
    c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
    h_t = sigmoid(o) tanh(c_t)

Written twice: `lstm` is the equation, a loop over time; `Recurrent` runs torch's fused layer. A step cannot begin before
the one before it has ended, so a row of n tokens takes n steps one after the other; and what token 1 has to say to token n
goes through n - 1 of them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.nn.masks import AttentionMask

LSTMState = tuple[Tensor, Tensor]
"""The hidden state h and the cell state c: (B, C) each."""


def lstm_step(x: Float[Tensor, "B C"], state: LSTMState, weights: tuple[Tensor, Tensor, Tensor]) -> LSTMState:
    """One token. `weights` are W and U, each (4 C, C), and b of 4 C."""
    h, c = state
    w, u, b = weights
    i, f, g, o = (x @ w.T + h @ u.T + b).chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def lstm(
    x: Float[Tensor, "B T C"], weights: tuple[Tensor, Tensor, Tensor], state: LSTMState | None = None
) -> Float[Tensor, "B T C"]:
    """The equation, token by token."""
    zeros = x.new_zeros(x.size(0), weights[1].size(1))
    state = (zeros, zeros) if state is None else state
    out = []
    for t in range(x.size(1)):
        state = lstm_step(x[:, t], state, weights)
        out.append(state[0])
    return torch.stack(out, dim=1)


class Recurrent(nn.Module):
    """A recurrent layer where a block has its self-attention: the same call, so that the two can be compared.

    A causal mask makes it read from left to right; without one, half of its features read the other way round.

    >>> layer = Recurrent(16)
    >>> layer(torch.zeros(2, 5, 16), AttentionMask(causal=True)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, n_embd: int, *, causal: bool = True) -> None:
        super().__init__()
        if not causal and n_embd % 2:
            raise ValueError(f"a layer that reads both ways gives half its width to each, so {n_embd} must be even")
        self.causal = causal
        self.layer = nn.LSTM(n_embd, n_embd if causal else n_embd // 2, batch_first=True, bidirectional=not causal)

    def forward(self, x: Float[Tensor, "B T C"], mask: AttentionMask) -> Float[Tensor, "B T C"]:
        """(B, T, C) -> (B, T, C), position after position."""
        if mask.causal != self.causal:
            raise ValueError("this layer was made to read " + ("one way" if self.causal else "both ways"))
        if mask.causal or mask.allowed is None:
            return self.layer(x)[0]  # type: ignore[no-any-return]
        # Padding lies on the right; read backwards, a row must begin at its own end.
        lengths = mask.allowed[:, 0, 0].sum(dim=-1).clamp(min=1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=x.size(1))[0]
