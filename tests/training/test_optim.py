"""The optimizers against updates written in NumPy, and which parameter is in whose hands."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from glassformer.config import ModelConfig, TrainConfig
from glassformer.errors import UserError
from glassformer.models import build_model
from glassformer.training.optim import (
    AdamW,
    Muon,
    load_optimizer_tensors,
    make_optimizers,
    optimizer_tensors,
    orthogonal,
    parameter_groups,
    without_compiler,
)
from tests.counts import count

SMALL = ModelConfig(vocab_size=23, block_size=16, n_layer=2, n_head=2, n_embd=8, dropout=0.0, positions="learned")
MODELS = {
    "transformer": SMALL,
    "two tables, output of its own": replace(SMALL, source_vocab_size=11, share_source_target=False, tie_output=False),
    "gpt": replace(SMALL, family="gpt", bias=False, norm="rms"),
    "bert": replace(SMALL, family="bert", n_token_type=2, embedding_norm=True),
    "classifier": replace(SMALL, family="bert", head="classify", n_label=3),
}


def stated_kind(name: str, parameter: nn.Parameter) -> str:
    """Told from the name by hand, in words that the code does not use."""
    if "embedding.weight" in name or "positions.weight" in name or "positions.table" in name:
        return "tables"
    if parameter.dim() == 1:
        return "vectors"
    return "outputs" if name == "output.weight" or "label" in name else "matrices"


@pytest.mark.parametrize("name", MODELS)
def test_groups_are_as_stated(name: str) -> None:
    """Broken variants: positions decayed as if they were matrices; a tied table counted twice; the output layer with the
    hidden matrices."""
    model = build_model(MODELS[name])
    groups = parameter_groups(model)
    found = {n: kind for kind, members in groups.items() for n, _ in members}
    assert sum(map(len, groups.values())) == len(found) == len(list(model.named_parameters()))
    assert found == {n: stated_kind(n, p) for n, p in model.named_parameters()}
    assert groups["matrices"] and groups["tables"] and groups["vectors"]
    assert bool(groups["outputs"]) == (name in ("two tables, output of its own", "classifier"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("decay_embeddings", [False, True])
def test_each_parameter_has_one_optimizer_and_the_stated_decay(
    name: str, optimizer: str, decay_embeddings: bool
) -> None:
    """Broken variants: decay on norms and biases; Muon on a table; a parameter with two optimizers, or none."""
    model = build_model(MODELS[name])
    config = TrainConfig(optimizer=optimizer, weight_decay=0.1, decay_embeddings=decay_embeddings, learning_rate=2e-3)
    names = {id(p): n for n, p in model.named_parameters()}
    seen: dict[str, tuple[str, float, float]] = {}
    for each in make_optimizers(model, config):
        for group in each.param_groups:
            for p in group["params"]:
                assert names[id(p)] not in seen, "in one group only"
                seen[names[id(p)]] = type(each).__name__, group["weight_decay"], group["base_lr"]
    for n, p in model.named_parameters():
        kind = stated_kind(n, p)
        decay = {"matrices": 0.1, "outputs": 0.1, "tables": 0.1 if decay_embeddings else 0.0, "vectors": 0.0}[kind]
        expected = ("Muon", 0.02) if optimizer == "muon" and kind == "matrices" else ("AdamW", 2e-3)
        assert seen[n] == (expected[0], decay, expected[1]), n


def test_frozen_parameters_are_left_out() -> None:
    model = build_model(SMALL)
    model.embedding.weight.requires_grad_(False)
    assert not any(n == "embedding.weight" for members in parameter_groups(model).values() for n, _ in members)


def textbook_adamw(w, gradients, rate, betas, eps, decay):
    """Loshchilov and Hutter (2019), algorithm 2, a step at a time."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        w = w - rate * (m_hat / (np.sqrt(v_hat) + eps) + decay * w)
    return w


@pytest.mark.parametrize("refused", [False, True])
def test_adamw_without_the_compiler_is_torchs(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, whichever of the two ways a step takes, and where a step is refused on the device. Caught: a step that records
    gradients, or leaves out what torch's own does around it."""
    draw = torch.Generator().manual_seed(1)
    start, gradients = torch.randn(7, 5, generator=draw), torch.randn(4, 7, 5, generator=draw)
    found = []
    for kind, loaded in ((torch.optim.AdamW, True), (AdamW, True), (AdamW, False)):
        weight = nn.Parameter(start.clone())
        with without_compiler():
            optimizer = kind([weight], lr=0.1, weight_decay=0.1, fused=True)
        with monkeypatch.context() as patch:
            if loaded:
                importlib.import_module("torch._dynamo")
            else:
                patch.delitem(sys.modules, "torch._dynamo", raising=False)
            for number, gradient in enumerate(gradients):
                weight.grad = gradient.clone()
                if refused:
                    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(float(number == 2))
                optimizer.step()
        assert weight.requires_grad and weight.is_leaf
        found.append((weight.detach().clone(), optimizer.state[weight]["exp_avg_sq"]))
    assert not torch.equal(found[0][0], start)
    for own in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(own, found[0], strict=True))


def test_adamw_is_the_textbooks() -> None:
    """In float64. Broken variants: decay through the gradient (Adam with L2); no bias correction; betas exchanged."""
    draw = np.random.default_rng(1)
    model = build_model(SMALL).double()
    config = TrainConfig(learning_rate=3e-3, betas=(0.8, 0.95), eps=1e-7, weight_decay=0.3)
    (optimizer,) = make_optimizers(model, config)
    begun = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    gradients = {n: [draw.normal(size=p.shape) for _ in range(5)] for n, p in model.named_parameters()}
    for step in range(5):
        for n, p in model.named_parameters():
            p.grad = torch.from_numpy(gradients[n][step].copy())
        optimizer.step()
    for n, p in model.named_parameters():
        decay = 0.3 if stated_kind(n, p) == "matrices" else 0.0
        expected = textbook_adamw(begun[n], gradients[n], 3e-3, (0.8, 0.95), 1e-7, decay)
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-10, atol=1e-12, err_msg=n)


@pytest.mark.parametrize("shape", [(8, 8), (64, 16), (16, 64), (1, 5), (3, 32, 12)])
def test_orthogonal_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    """Five steps of the quintic iteration bring every singular value that is not tiny to between 0.6 and 1.3, and leave the
    singular vectors where they are. Broken variants: one step too few; the tall case not turned; a norm over the whole
    stack instead of each matrix."""
    for trial in range(count(fast=10, soak=200)):
        torch.manual_seed(trial)
        matrix = torch.randn(shape)
        if len(shape) == 3:
            matrix = matrix * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]  # each by itself
        made = orthogonal(matrix)
        assert made.dtype == torch.float32 and made.shape == matrix.shape
        before = torch.linalg.svd(matrix.double(), full_matrices=False)
        after = torch.linalg.svdvals(made.double())
        relative = before.S / before.S.norm(dim=-1, keepdim=True)
        assert after.max() < 1.3
        # What begins above 0.02 of the norm has arrived after five steps (3.4445^5 > 480).
        assert (after.sort(descending=True).values[relative > 0.05] > 0.6).all()
        turned = before.U.mT @ made.double() @ before.Vh.mT
        off = turned - torch.diag_embed(turned.diagonal(dim1=-2, dim2=-1))
        assert off.abs().max() < 1e-3, "same singular vectors"


def test_orthogonal_of_nothing_is_nothing() -> None:
    assert orthogonal(torch.zeros(4, 6)).abs().max() == 0


def test_muon_computes_in_float32_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product of the iteration. Broken variant: torch's own cast to bfloat16, which a CPU does by emulation."""
    seen = set()
    plain = torch.Tensor.__matmul__

    def watching(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.update({a.dtype, b.dtype})
        return plain(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", watching)
    weight = nn.Parameter(torch.randn(8, 4))
    weight.grad = torch.randn(8, 4)
    Muon([weight]).step()
    assert seen == {torch.float32}


def newton_schulz(g: np.ndarray) -> np.ndarray:
    """As Jordan et al. (2024) write it, one matrix at a time."""
    tall = g.shape[0] > g.shape[1]
    x = (g.T if tall else g) / (np.linalg.norm(g) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.T if tall else x


def test_muon_is_its_definition() -> None:
    """Against a plain version, several shapes at once. Broken variants: momentum without Nesterov's look ahead; decay after
    the step; two matrices of one shape that share a momentum."""
    draw = np.random.default_rng(2)
    shapes = [(6, 6), (6, 6), (12, 4), (4, 12)]
    weights = [draw.normal(size=s).astype(np.float32) for s in shapes]
    parameters = [nn.Parameter(torch.from_numpy(w.copy())) for w in weights]
    optimizer = Muon(parameters, lr=0.1, momentum=0.9, weight_decay=0.2)
    buffers = [np.zeros_like(w) for w in weights]
    for _ in range(4):
        gradients = [draw.normal(size=s).astype(np.float32) for s in shapes]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = torch.from_numpy(g.copy())
        optimizer.step()
        for i, g in enumerate(gradients):
            buffers[i] = 0.9 * buffers[i] + 0.1 * g
            ahead = 0.1 * g + 0.9 * buffers[i]
            scale = np.sqrt(max(1.0, g.shape[0] / g.shape[1]))
            weights[i] = weights[i] * (1 - 0.1 * 0.2) - 0.1 * scale * newton_schulz(ahead)
    for p, w in zip(parameters, weights, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1.0])
def test_a_refused_step_of_muon_changes_no_bit(poison: float) -> None:
    """Weights and momentum, with weight decay on. Broken variants: momentum updated before the flag is looked at; decay
    that acts all the same; 0 * NaN."""
    parameters = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(2, 7))]
    optimizer = Muon(parameters, lr=0.1, weight_decay=0.1)
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer.step()
    weights = [p.detach().clone() for p in parameters]
    state = [optimizer.state[p]["momentum"].clone() for p in parameters]
    for p in parameters:
        p.grad = torch.randn_like(p)
    parameters[0].grad[0, 0] = poison
    optimizer.finite = torch.tensor(False)
    optimizer.step()
    assert all(torch.equal(p, w) for p, w in zip(parameters, weights, strict=True))
    assert all(torch.equal(optimizer.state[p]["momentum"], s) for p, s in zip(parameters, state, strict=True))
    parameters[0].grad[0, 0] = 1.0
    optimizer.finite = torch.tensor(True)
    optimizer.step()
    assert not any(torch.equal(p, w) for p, w in zip(parameters, weights, strict=True)), "and an accepted one counts"


def test_a_refused_first_step_of_muon_leaves_it_as_if_it_had_not_been() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    before = weight.detach().clone()
    optimizer = Muon([weight], weight_decay=0.5)
    weight.grad = torch.full_like(weight, float("nan"))
    optimizer.finite = torch.tensor(False)
    optimizer.step()
    assert torch.equal(weight, before) and optimizer.state[weight]["momentum"].abs().max() == 0


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_state_goes_out_and_in_by_name(optimizer: str) -> None:
    """A second model with the saved state makes the same next step, bit for bit. Broken variants: the step count of Adam
    left behind; state matched by order and not by name."""
    torch.manual_seed(0)
    models = [build_model(SMALL) for _ in range(2)]
    config = TrainConfig(optimizer=optimizer, weight_decay=0.1)
    sets = [make_optimizers(m, config) for m in models]
    gradients = [{n: torch.randn_like(p) for n, p in models[0].named_parameters()} for _ in range(4)]

    def step(which: int, gradient: dict[str, torch.Tensor]) -> None:
        for n, p in models[which].named_parameters():
            p.grad = gradient[n].clone()
        for each in sets[which]:
            each.step()

    for gradient in gradients[:3]:
        step(0, gradient)
    saved = {n: t.clone() for n, t in optimizer_tensors(models[0], sets[0]).items()}
    assert all(n.split("/", 1)[1] in dict(models[0].named_parameters()) for n in saved)
    models[1].load_state_dict(models[0].state_dict())
    load_optimizer_tensors(models[1], sets[1], dict(reversed(saved.items())))
    for which in (0, 1):
        step(which, gradients[3])
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_state_of_an_optimizer_that_is_gone_is_refused() -> None:
    """Broken variant: AdamW goes on with the moments that another optimizer kept in a basis of its own."""
    model = build_model(SMALL)
    name = next(n for n, _ in model.named_parameters())
    state = {f"exp_avg/{name}": torch.zeros(()), f"left_basis/{name}": torch.zeros(())}
    with pytest.raises(UserError, match=r"an optimizer's 'left_basis', which neither adamw nor muon has.*--from"):
        load_optimizer_tensors(model, make_optimizers(model, TrainConfig()), state)
