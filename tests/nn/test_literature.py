"""The worked examples that papers, courses and tutorials print, computed by the package, to the digits they print.

Where a circulating example is itself wrong, the test says what it should have been, and shows where the wrong number
comes from.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.models import GPT, build_model, preset
from glassformer.nn.attention import MultiHeadAttention, attention, attention_weights
from glassformer.nn.embedding import Embedding
from glassformer.nn.feedforward import MLP
from glassformer.nn.masks import AttentionMask, self_mask
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import sinusoids
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record


def digits(numbers: Tensor, places: int) -> list[list[float]]:
    """As a text would print them (without a minus before zero)."""
    return [[round(x, places) + 0.0 for x in row] for row in numbers.tolist()]


# -------------------------------------------------------------------------------------------------------------- attention


def test_attention_is_a_weighted_mean() -> None:
    """Weights 0.6, 0.4 and 0 over the values 10, 5 and 2 give 8.

    The scores are chosen so that the softmax gives exactly these weights; a softmax over queries instead of keys, or a
    masked key that still gets weight, gives another number.
    """
    query = torch.tensor([[1.0]], dtype=torch.float64)
    keys = torch.tensor([[0.6], [0.4], [1.0]], dtype=torch.float64).log()
    values = torch.tensor([[10.0], [5.0], [2.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    torch.testing.assert_close(
        attention_weights(query, keys, mask), torch.tensor([[0.6, 0.4, 0.0]], dtype=torch.float64)
    )
    assert attention_weights(query, keys, mask)[0, 2] == 0
    assert attention(query, keys, values, mask).item() == pytest.approx(8.0, abs=1e-12)


def test_the_causal_mask_of_bos_i_like_you_eos() -> None:
    """Each word sees itself and what came before: a lower triangle (some texts call it upper).

    Tokenizers print the five rows below, one for each token of the sentence. But the decoder reads only the first four and
    makes four predictions: after <EOS> nothing is predicted, so its row is never used.
    """
    words = ["<BOS>", "I", "like", "you", "<EOS>"]
    allowed = self_mask(Rows.whole(torch.arange(5)[None]), causal=True).to_tensor(5, 5, torch.device("cpu"))
    assert allowed is not None
    seen = [
        [word if see else "[MASK]" for word, see in zip(words, row, strict=True)] for row in allowed.view(5, 5).tolist()
    ]
    assert seen == [
        ["<BOS>", "[MASK]", "[MASK]", "[MASK]", "[MASK]"],
        ["<BOS>", "I", "[MASK]", "[MASK]", "[MASK]"],
        ["<BOS>", "I", "like", "[MASK]", "[MASK]"],
        ["<BOS>", "I", "like", "you", "[MASK]"],
        ["<BOS>", "I", "like", "you", "<EOS>"],
    ]
    read, predicted = words[:-1], words[1:]
    four = self_mask(Rows.whole(torch.arange(4)[None]), causal=True).to_tensor(4, 4, torch.device("cpu"))
    assert four is not None
    contexts = [[word for word, see in zip(read, row, strict=True) if see] for row in four.view(4, 4).tolist()]
    assert list(zip(contexts, predicted, strict=True)) == [
        (["<BOS>"], "I"),
        (["<BOS>", "I"], "like"),
        (["<BOS>", "I", "like"], "you"),
        (["<BOS>", "I", "like", "you"], "<EOS>"),
    ]


def test_heads_one_by_one_with_sliced_weights() -> None:
    """Concat(head_1, ..., head_h) W_O with head_i = attention(x W_i^Q, x W_i^K, x W_i^V), equals all heads at once; and so
    does the sum of each head through its slice of W_O. Fails if heads and features are mixed up in the reshape."""
    torch.manual_seed(0)
    n_embd, n_head = 12, 3
    size = n_embd // n_head
    mha = MultiHeadAttention(n_embd, n_head).double()
    x = torch.randn(2, 5, n_embd, dtype=torch.float64)
    at_once = mha(x, AttentionMask())
    heads = []
    for i in range(n_head):
        rows = slice(i * size, (i + 1) * size)
        q, k, v = (x @ part.weight[rows].T + part.bias[rows] for part in (mha.query, mha.key, mha.value))
        heads.append(attention(q, k, v))
    joined = torch.cat(heads, dim=-1) @ mha.out.weight.T + mha.out.bias
    torch.testing.assert_close(at_once, joined, rtol=0, atol=1e-12)
    summed = sum(head @ mha.out.weight[:, i * size : (i + 1) * size].T for i, head in enumerate(heads)) + mha.out.bias
    torch.testing.assert_close(at_once, summed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("source", [7, 4])
def test_every_shape_through_one_multi_head_attention(source: int) -> None:
    """Batch 2, target 5, width 512 in 8 heads of 64, over a source of another length: every tensor on the way.

    Tutorials reshape the keys with the query's length; then nothing but equal lengths gets this far.
    """
    mha = MultiHeadAttention(512, 8)
    x, memory = torch.randn(2, 5, 512), torch.randn(2, source, 512)
    with torch.no_grad(), record(mha, "*") as seen:
        y = mha(x, AttentionMask(), mha.keys_values(memory))
    assert {name: tuple(value.shape) for name, value in seen.items()} == {
        "q": (2, 8, 5, 64),
        "k": (2, 8, source, 64),
        "v": (2, 8, source, 64),
        "scores": (2, 8, 5, source),
        "weights": (2, 8, 5, source),
        "heads": (2, 8, 5, 64),
        "out": (2, 5, 512),
    }
    assert y.shape == x.shape
    assert {name: tuple(value.shape) for name, value in mha.state_dict().items() if name.endswith("weight")} == {
        "query.weight": (512, 512),
        "key.weight": (512, 512),
        "value.weight": (512, 512),
        "out.weight": (512, 512),
    }


# -------------------------------------------------------------------------------------------------------------- positions


def test_the_four_by_four_table_with_n_100() -> None:
    """The table printed in position-encoding tutorials (n=100, width 4). A half-split table fails in every row."""
    assert digits(sinusoids(4, 4, base=100.0), 4) == [
        [0.0000, 1.0000, 0.0000, 1.0000],
        [0.8415, 0.5403, 0.0998, 0.9950],
        [0.9093, -0.4161, 0.1987, 0.9801],
        [0.1411, -0.9900, 0.2955, 0.9553],
    ]


def test_i_like_to_code() -> None:
    """Four word vectors of width 4 plus their positions at n=10000, through the embedding of a real model.

    The last row of circulating texts ends in 0.895 and 1.655. That row was added with n=100, the rows above it with
    n=10000; at n=10000 it ends in 0.630 and 1.6996.
    """
    words = torch.tensor(
        [[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5], [0.3, 0.4, 0.5, 0.6], [0.4, 0.5, 0.6, 0.7]], dtype=torch.float64
    )
    config = ModelConfig(
        family="gpt", vocab_size=4, block_size=4, n_layer=1, n_head=1, n_embd=4, scale_embeddings=False
    )
    model = GPT(config).double().eval()
    with torch.no_grad(), record(model, "embeddings") as seen:
        model.embedding.weight.copy_(words)
        model(Rows.whole(torch.tensor([[0, 1, 2, 3]])))
    assert digits(seen["embeddings"][0], 4) == [
        [0.1000, 1.2000, 0.3000, 1.4000],
        [1.0415, 0.8403, 0.4100, 1.5000],
        [1.2093, -0.0161, 0.5200, 1.5998],
        [0.5411, -0.4900, 0.6300, 1.6996],
    ]
    mixed_in = words + sinusoids(4, 4, base=100.0)
    assert mixed_in[3, 2].item() == pytest.approx(0.8955, abs=5e-5)  # printed, cut off, as 0.895
    assert mixed_in[3, 3].item() == pytest.approx(1.6553, abs=5e-5)  # printed, cut off, as 1.655


@pytest.mark.parametrize("offset", [-3, 1, 7, 100])
def test_a_shifted_position_is_a_linear_map_of_the_position(offset: int) -> None:
    """PE(pos+k) = M_k PE(pos), with one M_k for every pos: turns of each (sin, cos) pair by k times its frequency.

    Fails for any table that is not one angle a pair (frequencies that differ between the sine and the cosine of a pair,
    as in the common slip of using i for the column and not for the pair).
    """
    width, length = 16, 60
    table = sinusoids(length + 100, width)
    turn = torch.zeros(width, width, dtype=torch.float64)
    for i in range(width // 2):
        angle = offset / 10000 ** (2 * i / width)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        )
    start = max(0, -offset)
    moved = table[start : start + length] @ turn.T
    torch.testing.assert_close(moved, table[start + offset : start + offset + length], rtol=0, atol=1e-6)


def test_inner_products_of_positions_depend_on_distance_alone() -> None:
    """PE(pos)·PE(pos+k) = Σ cos(k ω_i), whatever pos; symmetric in k; and not on its way to zero: at width 512 it is
    still 0.44 of its maximum at distance 100, where some texts say it vanishes."""
    table = sinusoids(400, 512)
    products = table @ table.T
    for distance in (0, 1, 10, 100, 300):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-9)
        torch.testing.assert_close(products.diagonal(-distance), diagonal, rtol=0, atol=1e-9)
    assert products[0, 0].item() == pytest.approx(256, abs=1e-9)
    assert round((products[0, 100] / products[0, 0]).item(), 2) == 0.44


# ------------------------------------------------------------------------------------------------------- the other parts


def test_ids_become_vectors() -> None:
    """The ids [[0, 1, 2]] of a table of four words, five wide, give a tensor of shape (1, 3, 5), its rows in order."""
    table = Embedding(4, 5)
    vectors = table(torch.tensor([[0, 1, 2]]))
    assert vectors.shape == (1, 3, 5)
    assert torch.equal(vectors[0], table.weight[:3])


def test_layer_norm_looks_at_the_features_of_one_token() -> None:
    """Not, as one text has it, at all layers, nor at other tokens: a neighbour may be anything. And its bias is optional,
    where another text says PyTorch allows no such thing."""
    norm = LayerNorm(4, bias=False, eps=0.0).double()
    assert [name for name, _ in norm.named_parameters()] == ["weight"]
    token = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    alone = norm(token[None, None])
    crowd = norm(torch.stack([token, 100 * torch.randn(4, dtype=torch.float64)])[None])
    assert torch.equal(crowd[0, 0], alone[0, 0])
    assert digits(alone[0], 4) == [[-1.3416, -0.4472, 0.4472, 1.3416]]
    theirs = nn.functional.layer_norm(token, (4,), norm.weight, None, 0.0)
    torch.testing.assert_close(alone[0, 0], theirs, rtol=0, atol=1e-14)


def test_layer_norm_takes_back_what_multiplies_before_it() -> None:
    """LN(ax + b) = LN(x), and weights twice as large before it get a gradient half as large. Broken variants: no centring; a
    variance that is not divided by."""
    norm, x = LayerNorm(6, eps=0.0).double(), torch.randn(3, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(norm(3 * x + 2), norm(x))
    weight, wanted = torch.randn(6, 6, dtype=torch.float64, requires_grad=True), torch.randn_like(x)
    (once,) = torch.autograd.grad((norm(x @ weight) * wanted).sum(), weight)
    double = (2 * weight).detach().requires_grad_()
    (twice,) = torch.autograd.grad((norm(x @ double) * wanted).sum(), double)
    torch.testing.assert_close(twice, once / 2)


def test_gelu_in_its_tanh_form() -> None:
    """0.5x(1 + tanh(√(2/π)(x + 0.044715x³))), as GPT-2 has it; at 1 it is 0.8412, where the exact GELU is 0.8413.

    The MLP is given identity matrices, so what comes out is the activation alone.
    """
    x = torch.linspace(-4, 4, 17, dtype=torch.float64)[:, None]
    outputs = {}
    for activation in ("gelu_tanh", "gelu"):
        mlp = MLP(1, 1, activation=activation, bias=False).double()
        with torch.no_grad():
            mlp.up.weight.fill_(1.0)
            mlp.down.weight.fill_(1.0)
        outputs[activation] = mlp(x[None])[0]
    formula = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    torch.testing.assert_close(outputs["gelu_tanh"], formula, rtol=0, atol=1e-14)
    exact = x * torch.distributions.Normal(0.0, 1.0).cdf(x)
    torch.testing.assert_close(outputs["gelu"], exact, rtol=0, atol=1e-6)
    at_one = x[:, 0].tolist().index(1.0)
    assert [round(outputs[a][at_one].item(), 4) for a in ("gelu_tanh", "gelu")] == [0.8412, 0.8413]


# ------------------------------------------------------------------------------------------------------- parameter counts


def counted(config: ModelConfig, *, non_embedding: bool = False) -> int:
    with torch.device("meta"):
        return build_model(config).num_params(non_embedding=non_embedding)


def test_gpt2_small_has_its_published_size() -> None:
    """124,439,808: tied output, 1024 learned positions, biases everywhere, a final norm."""
    config = preset("gpt2")
    assert (config.vocab_size, config.block_size) == (50257, 1024)
    assert counted(config) == 124_439_808


@pytest.mark.parametrize(
    ("name", "size"), [("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200)]
)
def test_the_larger_gpt2_sizes(name: str, size: int) -> None:
    assert counted(preset(name)) == size


@pytest.mark.parametrize(("name", "size"), [("transformer-base", 63_082_496), ("transformer-big", 214_245_376)])
def test_the_papers_base_and_big(name: str, size: int) -> None:
    """With 37,000 words that source, target and output share, biases, and no norm after the last layer. By hand: a
    sublayer's norm has 2C; attention 4C² + 4C; feed-forward 2CF + F + C; six encoder and six decoder layers."""
    config = replace(preset(name), vocab_size=37_000)
    assert counted(config) == size
    width, hidden = config.n_embd, config.hidden
    attend, feed, norm = 4 * width**2 + 4 * width, 2 * width * hidden + hidden + width, 2 * width
    assert size == 37_000 * width + 6 * (attend + feed + 2 * norm) + 6 * (2 * attend + feed + 3 * norm)


def test_cross_attention_is_a_seventh_of_the_base_model() -> None:
    """14.3% of all parameters that are not embeddings."""
    config = replace(preset("transformer-base"), vocab_size=37_000)
    with torch.device("meta"):
        model = build_model(config)
    cross = sum(p.numel() for name, p in model.named_parameters() if ".cross." in name)
    assert round(100 * cross / model.num_params(non_embedding=True), 1) == 14.3
