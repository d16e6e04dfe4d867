"""The kernels of decoding without a GPU: whole steps by Triton's interpreter against torch's own operations, and every kernel,
those of the loss too, by the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counts import count

ROOT = Path(__file__).parents[1]


def run(command: list[str], **environment: str) -> str:
    """In a process of its own: the interpreter is chosen when kernels are defined, and checks of shapes cannot be compiled."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run([sys.executable, *command], env=given, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_kernels_compute_what_torch_computes() -> None:
    """Caught: a column of keys that is no beam's past, read; a norm put off that nobody made."""
    found = run([str(ROOT / "tests/cuda/operations.py"), str(count(fast=2, soak=6))], TRITON_INTERPRET="1")
    assert len(found.splitlines()) == count(fast=2, soak=6)


# The search by kernels, slot by slot against the search itself: candidates, pool, what goes on, who is over.
SEARCH = """
import random, torch
from glassformer.config import DecodeConfig
from glassformer.decode.cache import Cache
from glassformer.decode.ops.beam_kernels import beam_step, suits_beam_step
from glassformer.decode.request import SpecialTokens
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job

torch.manual_seed(0)
for trial, (beam, words) in enumerate([(1, 700), (3, 1600), (5, 2600)]):
    draw = random.Random(trial)
    config = DecodeConfig(beam=beam, n_best=draw.randrange(1, beam + 1), stop_rule=("exact", "first-k")[trial % 2], alpha=0.6)
    made = []
    jobs = [Job(limit=draw.choice([3, 5]), minimum=i % 2, number=i) for i in range(2)]
    for _ in range(2):
        how = {"device": torch.device("cpu"), "dtype": torch.float32, "vocabulary": words, "static": True}
        state = SearchState(2, 8, config, SpecialTokens(), **how)
        cache = Cache([1], [], (4, 4), 2, beam, 8 * beam, like=torch.zeros(1), static=True)
        cache.begin(0, 2, torch.ones(2, 1, dtype=torch.long))
        state.begin(0, jobs)
        made.append((state, cache))
    assert suits_beam_step(made[0][0])
    never = torch.zeros(words, dtype=torch.int8).index_fill_(0, made[0][0].never, 1)
    for step in range(5):
        logits = torch.randn(2 * beam, words)
        logits[:, 2] = torch.where(torch.rand(2 * beam) < 0.4, 4.0 + torch.rand(2 * beam), -3.0)
        for number, (state, cache) in enumerate(made):
            cache.mark(2)
            cache.advance(2)
            if number:
                beam_step(state, never, cache, logits.clone(), 2)
            else:
                parents, tokens = state.step(logits.clone(), 2)
                cache.tokens[:2] = tokens
                cache.reorder(parents, 8 * beam)
        (one, its), (other, others) = made
        assert torch.equal(one.over, other.over) and torch.equal(one.count, other.count), (trial, step)
        live = ~one.over
        assert torch.equal(its.tokens[live], others.tokens[live])
        assert torch.allclose(one.totals[live], other.totals[live], atol=1e-4)
        if beam > 1:
            assert torch.equal(its.bias[live], others.bias[live])
    for a, b in zip(one.collect([0, 1]), other.collect([0, 1]), strict=True):
        assert [(h.ids, h.ended) for h in a] == [(h.ids, h.ended) for h in b], (trial, a, b)
        assert all(abs(x.score - y.score) < 1e-4 for x, y in zip(a, b, strict=True))
    print("same", trial)
"""


@pytest.mark.slow
def test_the_beam_by_a_kernel_is_the_search() -> None:
    """Caught: a beam's filler rows counted among its candidates; a pool that reads a row after it was overwritten."""
    assert run(["-c", SEARCH], TRITON_INTERPRET="1").count("same") == 3


# The interpreter takes what a compiler may refuse. To compile needs no GPU, only to be told of one.
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from glassformer.accel import loss_kernels as L
from glassformer.decode.ops import attention_kernels as A, beam_kernels as B, product_kernels as P, source_kernels as S
from glassformer.decode.ops import vocabulary_kernels as V

OTHERS = {
    "fp32": "maxima parts last logprobs pool_logprobs loss", "fp64": "totals score cut_totals divisors",
    "i64": "columns written minimum limit count length cut_length tokens ending labels", "i32": "pool_ids ids",
    "i8": "over group_over never given turned", "fp8e5": "grad8",
}
KIND = {name: kind for kind, names in OTHERS.items() for name in names.split()}
FLOATS = ("scale", "eps", "factor", "smoothing", "scale8")

def kind_of(name, given, dtype):
    if given is None:
        return f"*{KIND.get(name[:-3], dtype)}" if name.endswith("_at") else "fp32" if name in FLOATS else "i32"
    pointers = given.__name__.endswith("Pointers")
    return given(*(f"*{KIND.get(f, dtype)}" if pointers else "fp32" if f == "eps" else "i32" for f in given._fields))

def compiled(kernel, dtype, warps, *tuples, **constants):
    names = kernel.arg_names
    constants = {"EARLY": True, **constants}
    constants = {name: value for name, value in constants.items() if name in names}
    plain = [name for name in names if name not in constants]
    kinds = {name: kind_of(name, tuples[i] if i < len(tuples) else None, dtype) for i, name in enumerate(plain)}
    kinds = {name: kinds.get(name, "constexpr") for name in names}
    source = ASTSource(fn=kernel, signature=kinds, constexprs={(names.index(k),): v for k, v in constants.items()})
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    done.add(kernel.__name__)

done = set()
shape = {"SHAPE": (4, 4, 64, 64, 64, 64)}
for one in (True, False):
    compiled(A.columns_kernel, "bf16", 2, A.AttentionPointers, A.Strides, BLOCK_S=64, ONE=one, **shape)
    compiled(
        A.beams_kernel, "bf16", 1, A.AttentionPointers, A.Strides, BEAMS=(5, 16), BLOCK_S=32, HOW=(one,
        True), PRECISION="tf32", **shape,
    )
compiled(
    A.beams_kernel, "fp32", 4, A.AttentionPointers, A.Strides, BEAMS=(4, 16), BLOCK_S=16, HOW=(True,
    False), PRECISION="ieee", **shape,
)
compiled(S.rows_kernel, "fp32", 2, S.RowPointers, S.RowStrides, BLOCK_W=16, PRECISION="ieee", **shape)
compiled(
    P.row_product_kernel, "bf16", 4, P.ProductPointers, P.ProductSizes, NORM=1, ACT=3, BIAS=True,
    SHIFT=True, RESIDUAL=True, BLOCK_K=1024, BLOCK_N=4,
)
compiled(
    P.batch_product_kernel, "bf16", 4, P.ProductPointers, P.BatchSizes, ACT=3, BIAS=True, BLOCK_M=64,
    BLOCK_N=32, TILE=(64, 12, 4), LINES=(64, 16), PRECISION="tf32",
)
for parts in (0, 4):
    compiled(
        P.add_norm_kernel, "bf16", 2, P.SumPointers, P.SumSizes, NORM=1, SHIFT=True, PARTS=parts,
        BIAS=parts > 0, KEEP=parts > 0, BLOCK_C=512,
    )
compiled(V.embed_kernel, "bf16", 4, V.EmbeddingPointers, BEAMS=4, POSITIONS=True, BLOCK_C=512)
compiled(V.maxima_kernel, "bf16", 4, V.ScorePointers, V.ScoreSizes, BEAMS=4, BLOCKS=16, BLOCK_V=64)
own = (B.StatePointers, B.CachePointers, V.ScorePointers, V.ScoreSizes, B.StepSizes)
compiled(B.beam_kernel, "fp32", 4, *own, SIZE=(5, 2, 8, 16, 2, 256, 16, 10, 64, 64), FIRST_K=False)
compiled(B.beam_kernel, "fp32", 2, *own, SIZE=(1, 1, 2, 2, 2, 1024, 64, 1, 64, 64), FIRST_K=True)
for smooth, grad, grad8 in ((True, True, False), (False, False, True)):
    compiled(L.row_kernel, "bf16", 4, COLUMNS=50304, SMOOTH=smooth, GRAD=grad, GRAD8=grad8, WIDE=2048, IGNORED=-100)
compiled(L.turn_kernel, "i8", 8, TILE=128)
every = {name for module in (A, B, P, S, V, L) for name in dir(module) if name.endswith("_kernel")}
assert done == every, every - done
print("compiled", len(done))
"""


@pytest.mark.slow
def test_kernels_compile_for_a_device(tmp_path: Path) -> None:
    """Caught: a number of 32 bits before a loop and of 64 inside it; a field of a tuple with a name that Triton uses."""
    environment = {name: "" for name in ("TRITON_INTERPRET",) if name in os.environ}
    assert run(["-c", COMPILE], TRITON_CACHE_DIR=str(tmp_path), **environment).startswith("compiled")
