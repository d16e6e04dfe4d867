"""The loss kernels beside the torch code that says what they compute; run with TRITON_INTERPRET=1."""

import torch

torch.manual_seed(1)
from glassformer.accel import loss_kernels as kernels
from glassformer.accel import output_loss
from glassformer.accel.output_loss import LossBackend, logit_gradient, row_losses
from glassformer.nn.loss import IGNORE
from tests.counts import SOAK
from tests.programs import quick_interpreter  # noqa: F401

PLAIN, BY_KERNEL = LossBackend(), LossBackend(kernel=True)


def eight_bits(grad):
    return (grad * 2**15).to(torch.float8_e5m2).float()


def same_eight_bits(found, grad):
    # Where rounding goes up to the next power of two, the interpreter forgets to carry (3.5.1); a device does not.
    exact = (grad * 2**15).double()
    carries = exact.abs() / 2 ** exact.abs().clamp(min=2.0**-14).log2().floor() >= 1.75
    near = (found.float() - eight_bits(grad)).abs() <= 1e-3 * eight_bits(grad).abs()
    # Between two numbers: to either side; and below 2^-14 to any of the few there are.
    border = (found.float() - exact).abs() <= (0.126 * exact.abs()).clamp(min=2.0**-14)
    wrong = ~(carries | near | border)
    assert not wrong.any(), (exact[wrong], found.float()[wrong])


for vocab_size, columns, rows, dtype in (
    (100, 128, 6, torch.float32),
    (128, 128, 5, torch.float32),
    (9000, 9088, 3, torch.bfloat16),
    (77, 128, 140, torch.float16),
):
    for smoothing in (0.0, 0.1) if rows < 100 or SOAK else (0.1,):
        logits = (3 * torch.randn(rows, columns)).to(dtype)
        logits[:, vocab_size:] = 50.0  # the logits of the padding
        labels = torch.randint(0, vocab_size, (rows, 2))[:, 0]  # every other one in memory
        labels[1] = IGNORE
        labels[2] = vocab_size - 1
        losses, log_sum_exp = row_losses(logits, labels, vocab_size, smoothing)
        grad = logit_gradient(logits, labels, log_sum_exp, vocab_size, smoothing)
        close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-3}
        place = logits.clone()
        torch.testing.assert_close(
            kernels.softmax_gradient(place, labels, vocab_size, smoothing), losses, rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(place, grad.to(dtype), **close)
        assert (place[1] == 0).all() and (place[:, vocab_size:] == 0).all()
        place = logits.clone()
        found, grad8, transposed8 = kernels.softmax_gradient8(place, labels, vocab_size, smoothing)
        assert torch.equal(place, logits)
        torch.testing.assert_close(found, losses, rtol=1e-5, atol=1e-5)
        same_eight_bits(grad8, grad)
        assert torch.equal(transposed8.float(), grad8.float().T)

# A label outside the vocabulary makes the loss no number, and reads nothing that is not the row's.
wrong = kernels.softmax_gradient(torch.zeros(3, 128), torch.tensor([5, 10**6, -3]), 100, 0.0)
assert wrong.isnan().tolist() == [False, True, True]

# The whole output layer, compiled, by kernel and by formula.
output_loss.KERNEL_DEVICES = ("cpu",)
x, table, bias = torch.randn(2, 8, 32), 0.2 * torch.randn(100, 32), torch.randn(100)
labels = torch.randint(0, 100, (2, 8))
labels[0, 3:5] = IGNORE


def run(backend, compiled, bias, half=False):
    given = [t.clone().requires_grad_() for t in (x, table, bias) if t is not None]

    def of(x, table, *bias):
        return backend(x, table, labels, bias=bias[0] if bias else None, smoothing=0.1)

    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        total = (torch.compile(of, backend="aot_eager", fullgraph=True) if compiled else of)(*given)
    (total * 0.25).backward()
    return [total.detach()] + [t.grad for t in given]


for b in (None, bias) if SOAK else (bias,):
    for backend, compiled, other, tolerance in (
        (BY_KERNEL, True, PLAIN, 1e-4),
        # Loose for what the interpreter forgets to carry; the two factors exchanged, or one not transposed, are off by more.
        (LossBackend(kernel=True, float8=True), True, LossBackend(float8=True), 0.3),
    ):
        for ours, theirs in zip(run(backend, compiled, b), run(other, False, b), strict=True):
            assert float((ours - theirs).norm()) <= tolerance * float(theirs.norm()), (
                backend,
                float((ours - theirs).norm()),
            )
    # As a step on a GPU has it: weights in float32, everything else in half of it.
    for ours, theirs in zip(run(BY_KERNEL, True, b, half=True), run(PLAIN, False, b), strict=True):
        assert ours.dtype == theirs.dtype, (ours.dtype, theirs.dtype)
        assert float((ours - theirs).norm()) <= 0.02 * float(theirs.norm()), float((ours - theirs).norm())
print("held")
