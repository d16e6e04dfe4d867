"""Products in 8 bits, held to their definition: round to the nearest number of 8 bits, multiply, scale back. The numbers of
8 bits are listed here from their bits, and rounding is a search in the list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.accel import accelerate, fp8, output_loss
from glassformer.accel.output_loss import LossBackend
from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models import build_model
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows
from tests.commands import call_program
from tests.small_runs import small_run

pytestmark = pytest.mark.slow


def numbers(exponent_bits: int) -> np.ndarray:
    """Every finite number with so many bits of exponent and the rest of seven behind the point, from 0 up."""
    digits = 7 - exponent_bits
    offset = 2 ** (exponent_bits - 1) - 1
    found = []
    for code in range(128):
        exponent, rest = code >> digits, code & (2**digits - 1)
        if exponent == 0:
            found.append(rest * 2.0 ** (1 - offset - digits))
        else:
            found.append((1 + rest / 2**digits) * 2.0 ** (exponent - offset))
    # e5m2 keeps its last exponent for infinities and NaN, e4m3 its last number alone for NaN.
    return np.array(found[:-1] if exponent_bits == 4 else found[: -(2**digits)])


def rounded(x: Tensor, exponent_bits: int) -> Tensor:
    """To the nearest, of two equally near to the one with an even last bit; beyond the largest to the largest."""
    table = numbers(exponent_bits)
    size = np.minimum(x.detach().double().abs().numpy(), table[-1])
    above = np.searchsorted(table, size).clip(1, len(table) - 1)
    low, high = table[above - 1], table[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    return torch.from_numpy(np.where(up, high, low)).copysign(x.detach().double())


@pytest.mark.parametrize(("kind", "exponent_bits", "most"), [(fp8.E4M3, 4, 448.0), (fp8.E5M2, 5, 57344.0)])
def test_rounding(kind: torch.dtype, exponent_bits: int, most: float) -> None:
    """Broken: what is too large becoming an infinity or NaN; rounding towards zero; a scale that divides."""
    x = torch.randn(4000, dtype=torch.float64).float() * torch.logspace(-6, 6, 4000)
    found = fp8.to_float8(x, 4.0, kind)
    assert found.dtype == kind
    torch.testing.assert_close(found.double(), rounded(x * 4.0, exponent_bits), rtol=0, atol=0)
    assert float(found.double().abs().max()) == most == numbers(exponent_bits)[-1]


def layer(positions: int, *, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    torch.manual_seed(positions)
    x = torch.randn(positions, 32, requires_grad=True)
    weight = (0.02 * torch.randn(48, 32)).requires_grad_()
    b = torch.randn(48, requires_grad=True) if bias else None
    return x, weight, b, torch.randn(positions, 48) / positions


def weight_in_8_bits(weight: Tensor) -> Tensor:
    largest = weight.detach().abs().max().double()
    # The scale is a float32, as the device has it.
    scale = (448.0 / largest.float()).double()
    return rounded((weight.detach() * scale.float()).double(), 4) * float(largest.float() / 448.0)


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_is_its_definition(bias: bool) -> None:
    """Forward: the product of rounded x and rounded W. Backward: the gradient rounded to its own kind, times rounded W; for
    W the exact gradient and x. Broken: a scale forgotten or taken twice; W transposed; the rounded x in W's gradient."""
    x, weight, b, grad = layer(64, bias=bias)
    y = fp8.float8_linear(x[None], weight, b)
    x8, w8 = rounded(x * 4.0, 4) / 4.0, weight_in_8_bits(weight)
    expected = x8 @ w8.T if b is None else x8 @ w8.T + b.detach().double()
    torch.testing.assert_close(y[0].double(), expected, rtol=1e-5, atol=1e-6)
    y.backward(grad[None])
    scale = 64.0 * 64
    g8 = rounded(grad * scale, 5) / scale
    torch.testing.assert_close(x.grad.double(), g8 @ w8, rtol=1e-4, atol=1e-8)
    of_w = grad.double().T @ x.detach().double()
    torch.testing.assert_close(weight.grad.double(), of_w, rtol=1e-4, atol=1e-6)
    if b is not None:
        torch.testing.assert_close(b.grad, grad.sum(0))


@pytest.mark.parametrize("positions", [48, 1024, 65536, 2**20])
def test_gradients_of_a_mean_have_room(positions: int) -> None:
    """Whatever the number of positions, also of sixteen micro-batches a step, the gradient of one position keeps its
    digits from 0.0001 to 50. Broken: a scale that does not grow with the positions."""
    for micro in (1, 16):
        g = torch.logspace(-4, 1.7, 1000) / (positions * micro)
        scale = fp8.gradient_scale(positions)
        again = fp8.to_float8(g, scale, fp8.E5M2).float() / scale
        assert float(((again - g) / g).abs().max()) <= 1 / 8


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What a device asks of the factors of each product, asked on a CPU."""
    seen: list[tuple[int, ...]] = []
    real = fp8.scaled_mm

    def strict(a: Tensor, b: Tensor, *rest: Any, **named: Any) -> Tensor:
        assert a.stride() == (a.size(1), 1), "a is to be by rows"
        assert b.stride() == (1, b.size(0)), "b is to be by columns"
        assert not (a.dtype == b.dtype == fp8.E5M2), "two gradients are never multiplied"
        assert all(size % 16 == 0 for size in (a.size(1), *b.shape))
        seen.append((*a.shape, b.size(1)))
        return real(a, b, *rest, **named)

    monkeypatch.setattr(fp8, "scaled_mm", strict)
    monkeypatch.setattr(output_loss, "scaled_mm", strict)
    return seen


def test_factors_lie_as_the_device_wants_them(checked: list[tuple[int, ...]]) -> None:
    """Also where the gradient comes in another order. Broken: a product handed its factor without turning it."""
    x, weight, b, grad = layer(64)
    grad = grad.t().contiguous().t()
    fp8.float8_linear(x, weight, b).backward(grad)
    assert checked == [(64, 32, 48), (64, 48, 32)]
    checked.clear()
    table = torch.randn(100, 32, requires_grad=True)
    for rows in (63, 64):
        LossBackend(float8=True)(x[None, :rows], table, torch.randint(0, 100, (1, rows))).backward()
    assert checked == 2 * [(64, 32, 128), (64, 128, 32), (128, 64, 32)]


@pytest.mark.parametrize("length", [7, 8])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_its_definition(length: int, smoothing: float) -> None:
    """Of 8-bit scores the exact loss; its gradient rounded to 1/32768 and up before the products; also of 14 rows, where an
    8-bit product wants 16. Broken: padded words, padded rows or IGNORE counted; the factor that comes back through the
    loss lost, or inside the rounding."""
    torch.manual_seed(3)
    x = torch.randn(2, length, 32, requires_grad=True)
    table = (0.3 * torch.randn(100, 32)).requires_grad_()
    bias = torch.randn(100, requires_grad=True)
    labels = torch.randint(0, 100, (2, length))
    labels[0, 2:5] = IGNORE
    total = LossBackend(float8=True)(x, table, labels, bias=bias, smoothing=smoothing)
    (total / 1000).backward()
    x8, w8 = rounded(x.flatten(0, 1) * 4.0, 4) / 4.0, weight_in_8_bits(table)
    logits = (x8 @ w8.T + bias.detach().double()).requires_grad_()
    expected = F.cross_entropy(
        logits, labels.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
    )
    assert float(total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    (g,) = torch.autograd.grad(expected, logits)
    g8 = rounded(g * 2**15, 5) / 2**15
    # A gradient that lies on the border between two numbers may fall to either side.
    close = {"rtol": 1e-3, "atol": 2e-3 / 1000}
    torch.testing.assert_close(x.grad.flatten(0, 1).double(), g8 @ w8 / 1000, **close)
    torch.testing.assert_close(table.grad.double(), g8.T @ x8 / 1000, **close)
    torch.testing.assert_close(bias.grad.double(), g8.sum(0) / 1000, **close)


def small_gpt(seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    settings = {"vocab_size": 48, "n_layer": 2, "n_head": 2, "n_embd": 32, "dropout": 0.0, "block_size": 32}
    return build_model(ModelConfig(family="gpt", activation="gelu_tanh", **{**settings, **changes}))


def test_a_model_rounds_while_it_trains() -> None:
    """All but what joins the heads. Broken: evaluation in 8 bits; weights renamed or replaced."""
    plain, model = small_gpt(), small_gpt()
    parameters = list(model.parameters())
    fp8.use_float8(model)
    kinds = {name: type(one) for name, one in model.named_modules() if isinstance(one, nn.Linear)}
    assert all((kind is fp8.Float8Linear) != name.endswith(".out") for name, kind in kinds.items()) and kinds
    assert model.state_dict().keys() == plain.state_dict().keys()
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    rows = Rows.whole(torch.randint(0, 48, (2, 16)))
    assert not torch.equal(model(rows), plain(rows))
    torch.testing.assert_close(model(rows), plain(rows), rtol=0, atol=0.1)
    model.eval(), plain.eval()
    assert torch.equal(model(rows), plain(rows))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    """Before anything is trained, in one sentence, and no folder is left. Broken: falling back in silence."""
    with pytest.raises(ConfigError, match=r"train\.precision=fp8 .* CUDA device; set train\.precision=auto$"):
        small_run(tmp_path, "pairs", precision="fp8", device="cpu")
    assert not (tmp_path / "run").exists()
    assert fp8.misaligned_layer(small_gpt()) is None
    assert "side of 40" in str(fp8.misaligned_layer(small_gpt(n_embd=40)))
    assert "side of 72" in str(fp8.misaligned_layer(small_gpt(n_hidden=72)))


def losses(float8: bool, seed: int, steps: int) -> Tensor:
    """Of a GPT that learns a cycle of words with a random step of 1 to 3."""
    model = small_gpt(seed)
    accelerate(model, float8=float8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(5)
    found = []
    for _ in range(steps):
        text = torch.randint(1, 4, (8, 33), generator=draw).cumsum(1) % 48
        mean = model.loss(Rows.whole(text[:, :-1]), text[:, 1:]) / (8 * 32)
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        found.append(mean.detach())
    return torch.stack(found)


def test_a_model_learns_in_8_bits_what_it_learns_without() -> None:
    """The curve stays as near to the one in float32 as that of other first weights does. Broken: gradients that vanish in
    the rounding (a scale of 1), a product with the wrong sign or size."""
    steps = 150
    exact, other, ours = losses(False, 0, steps), losses(False, 1, steps), losses(True, 0, steps)
    stretches = (ours - exact).view(10, -1).mean(1), (other - exact).view(10, -1).mean(1)
    assert float(stretches[0].abs().max()) < max(0.03, float(stretches[1].abs().max()))
    assert float(ours[-15:].mean()) == pytest.approx(float(exact[-15:].mean()), abs=0.02)
    assert float(exact[-15:].mean()) < 0.4 * float(exact[0])


def test_it_compiles_without_a_break() -> None:
    """And is then what it is uncompiled. Broken: a scale asked for on the host."""
    done = call_program("compiled_float8")
    assert done.returncode == 0, done.stdout + done.stderr
