"""Trading time for memory changes no gradient; shared layers share; tied tables are one table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.nn import IGNORE, Rows
from tests.laws.zoo import FAMILIES, VARIANTS, VOCABULARY, Model, gap, loss_and_gradients, small

SOURCE, TARGET = Rows.from_lists([[1, 2, 3], [4]]), Rows.from_lists([[5, 6], [7, 8, 9, 10]])
LABELS = torch.where(TARGET.real, (TARGET.tokens + 3) % VOCABULARY, IGNORE)


def results(model: Model) -> list[Tensor]:
    torch.manual_seed(7)
    return loss_and_gradients(model, SOURCE, TARGET, LABELS)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "name", ["sinusoidal positions", "alibi, window, grouped", "post-norm", "modern", "shared layers"]
)
def test_checkpointed_activations_give_the_same_gradients(family: str, name: str) -> None:
    """With dropout: the second pass through a block must drop what the first one dropped. The blocks are counted to show
    that they do run twice. Caught: a checkpoint that is never taken, or that draws anew."""
    model = small(family, **VARIANTS[name], dropout=0.3).train()
    runs = 0
    for module in model.modules():
        if hasattr(module, "mlp"):

            def counted(*_: Any) -> None:
                nonlocal runs
                runs += 1

            module.register_forward_pre_hook(counted)
    expected = results(model)
    once = runs
    model.checkpoint_activations()
    assert gap(expected, results(model)) == 0
    assert runs == 3 * once
    model.checkpoint_activations(False)
    assert gap(expected, results(model)) == 0
    assert runs == 4 * once


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_layers_share(family: str) -> None:
    """As many parameters as one layer; and as a model of that layer, repeated, whose gradients are summed."""
    shared, separate = small(family, share_layers=True, n_layer=3), small(family, n_layer=3)
    one = small(family, n_layer=1)
    assert shared.num_params() == one.num_params() < separate.num_params()
    separate.load_state_dict(shared.state_dict())
    loss, *_ = results(shared)
    other_loss, *_ = results(separate)
    assert gap([loss], [other_loss]) == 0
    stack = "encoder" if family == "bert" else "decoder"
    together = dict(shared.named_parameters())[f"{stack}.0.mlp.up.weight"].grad
    apart = [dict(separate.named_parameters())[f"{stack}.{i}.mlp.up.weight"].grad for i in range(3)]
    assert gap([together], [sum(apart)]) <= 1e-12  # type: ignore[list-item,arg-type]


def test_a_tied_table_is_one_table() -> None:
    tied, untied = small("transformer"), small("transformer", tie_output=False)
    assert untied.num_params() - tied.num_params() == VOCABULARY * 24
    assert tied.output_weight is tied.source_table.weight is tied.target_table.weight
    two = small("transformer", share_source_target=False)
    assert two.source_table.weight is not two.target_table.weight
    assert two.output_weight is two.target_table.weight
