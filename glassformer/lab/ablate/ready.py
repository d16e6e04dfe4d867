"""Ablations that need no --vary: the paper's Table 3 and the other parts of the machine, both scaled to `dates`, and the
course's GPT without residuals and positions."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.config import did_you_mean, recipe_names
from glassformer.errors import ConfigError
from glassformer.lab.ablate.variants import Variant

QUICK = (
    "train.steps=20",
    "train.warmup=5",
    "train.validate_every=10",
    "train.save_every=20",
    "train.validate_examples=32",
    "train.log_every=1",
)
"""For --quick: enough to see that everything runs, and nothing to be believed."""


@dataclass(frozen=True)
class ReadySet:
    """A named ablation: the recipe, what is changed in it for all, and the variants."""

    name: str
    about: str
    recipe: str
    settings: tuple[str, ...]
    variants: tuple[Variant, ...]
    seeds: int = 3
    quick: tuple[str, ...] = ()


def variant(group: str, name: str, *settings: str) -> Variant:
    """A variant whose name begins with the letter of its group, as in the paper."""
    return Variant(f"{group[:3]} {name}", settings, group)


A = "(A) heads, at constant compute"
B = "(B) size of keys and values"
C = "(C) size of the model"
D = "(D) dropout and label smoothing"
E = "(E) positions"
BIG = "big"

TABLE3 = (
    *(
        variant(A, f"h={h}, d_k=d_v={64 // h}", f"model.n_head={h}", f"model.head_size={64 // h}")
        for h in (1, 2, 8, 16)
    ),
    *(variant(B, f"d_k={k}", f"model.head_size={k}", "model.value_size=16") for k in (4, 8)),
    *(variant(B, f"d_v={v}", "model.head_size=16", f"model.value_size={v}") for v in (4, 8)),
    *(variant(C, f"N={n}", f"model.n_layer={n}") for n in (1, 3, 4)),
    variant(C, "d_model=32", "model.n_embd=32", "model.head_size=8"),
    variant(C, "d_model=128", "model.n_embd=128", "model.head_size=32"),
    *(variant(C, f"d_ff={f}", f"model.n_hidden={f}") for f in (128, 512)),
    *(variant(D, f"P_drop={p}", f"model.dropout={p}") for p in ("0.0", "0.2")),
    *(variant(D, f"ε_ls={e}", f"train.label_smoothing={e}") for e in ("0.0", "0.2")),
    variant(E, "learned", "model.positions=learned"),
    Variant(
        "big",
        ("model.n_layer=3", "model.n_embd=128", "model.n_hidden=512", "model.n_head=8", "model.dropout=0.3"),
        BIG,
    ),
)

PARTS = (
    *(Variant(f"norm={kind}", (f"model.norm={kind}",), "norm: kind and order") for kind in ("rms", "batch", "none")),
    Variant("post-norm", ("model.pre_norm=false",), "norm: kind and order"),
    Variant("no residuals", ("model.residual=false",), "residuals, scales, first weights"),
    Variant("no 1/√d_k", ("model.scaled_attention=false",), "residuals, scales, first weights"),
    Variant("no √d_model", ("model.scale_embeddings=false",), "residuals, scales, first weights"),
    Variant("no scaled init", ("model.scaled_init=false",), "residuals, scales, first weights"),
    *(Variant(kind, (f"model.activation={kind}",), "activation") for kind in ("gelu", "relu2", "swiglu")),
    Variant("output not tied", ("model.tie_output=false",), "sharing"),
    Variant("layers shared", ("model.share_layers=true",), "sharing"),
    *(Variant(kind, (f"model.positions={kind}",), "positions") for kind in ("learned", "rotary", "alibi", "none")),
    *(Variant(f"base {b} of sinusoids", (f"model.sinusoid_base={b}",), "positions") for b in (100, 1000000)),
    *(Variant(f"rate {r}", (f"train.learning_rate={r}",), "learning rate") for r in ("5e-4", "1e-3", "4e-3", "8e-3")),
)

NEITHER = "residuals and positions"
GPT = (
    Variant("no residuals", ("model.no_res=true",), NEITHER),
    Variant("no positions", ("model.no_pos=true",), NEITHER),
    Variant("neither", ("model.no_res=true", "model.no_pos=true"), NEITHER),
)

SHORT_DATES = (
    "train.steps=450",
    "train.warmup=50",
    "train.validate_every=75",
    "train.save_every=225",
    "train.validate_examples=200",
    "data.size=60000",
)
"""Where a model of this size on `dates` is past its beginning and not yet perfect, so that differences show."""

READY = (
    ReadySet(
        "table3",
        "every row of Table 3 of Attention Is All You Need, scaled to dates",
        "dates",
        (*SHORT_DATES, "model.dropout=0.1", "train.label_smoothing=0.1"),
        TABLE3,
        quick=("data.size=2000",),
    ),
    ReadySet(
        "parts",
        "norms, residuals, scales, first weights, activation, sharing, positions and learning rate on dates",
        "dates",
        SHORT_DATES,
        PARTS,
        quick=("data.size=2000",),
    ),
    ReadySet(
        "gpt-ablation",
        "the course's GPT, 4 layers and 4 heads, on a text: all, no residuals, no positions, neither",
        "stdlib-gpt",
        (
            "model.n_layer=4",
            "model.n_head=4",
            "model.n_embd=64",
            "model.n_hidden=256",
            "model.norm=layer",
            "model.bias=true",
            "model.positions=learned",
            "data.tokenizer=char",
            "train.steps=800",
            "train.validate_every=100",
            "train.save_every=400",
        ),
        GPT,
        quick=("data.size=40",),
    ),
)


def find_ready(name: str) -> ReadySet | None:
    """The ablation of this name; None where it is a recipe's name or file; a sentence where it is neither."""
    found = next((one for one in READY if one.name == name), None)
    known = [*(one.name for one in READY), *recipe_names()]
    if found is None and not name.endswith(".toml") and name not in known:
        raise ConfigError(
            f"there is no ablation and no recipe {name!r}{did_you_mean(name, known)}; ready are "
            f"{', '.join(one.name for one in READY)}; see also: glassformer recipes"
        )
    return found
