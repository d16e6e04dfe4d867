"""Every kernel compiled for a device that is not here, in the variant that has the most code; in `make soak-laws` in others, too.
The interpreter takes what a compiler may refuse."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from glassformer.accel import loss_kernels as L
from glassformer.accel.decoding import attention_kernels as A
from glassformer.accel.decoding import beam_kernels as B
from glassformer.accel.decoding import product_kernels as P
from glassformer.accel.decoding import source_kernels as S
from glassformer.accel.decoding import vocabulary_kernels as V
from tests.counts import SOAK

OTHERS = {
    "fp32": "maxima partial_lse finished_eos_logprob logprobs finished_logprobs loss",
    "fp64": "totals finished_score unfinished_totals divisors",
    "i64": "columns written minimum limit finished_count finished_length unfinished_length tokens positions labels"
    " finished_ending",
    "i32": "finished_ids ids",
    "i8": "done never matrix transposed",
}
KIND = {name: kind for kind, names in OTHERS.items() for name in names.split()}
FLOATS = ("scale", "eps", "factor", "smoothing")


def kind_of(name, given, dtype):
    if given is None:
        return f"*{KIND.get(name[:-4], dtype)}" if name.endswith("_ptr") else "fp32" if name in FLOATS else "i32"
    pointers = given.__name__.endswith("Pointers")
    return given(*(f"*{KIND.get(f, dtype)}" if pointers else "fp32" if f == "eps" else "i32" for f in given._fields))


def compiled(kernel, dtype, warps, *tuples, **constants):
    names = kernel.arg_names
    constants = {"PDL": True, **constants}
    constants = {name: value for name, value in constants.items() if name in names}
    plain = [name for name in names if name not in constants]
    kinds = {name: kind_of(name, tuples[i] if i < len(tuples) else None, dtype) for i, name in enumerate(plain)}
    kinds = {name: kinds.get(name, "constexpr") for name in names}
    source = ASTSource(fn=kernel, signature=kinds, constexprs={(names.index(k),): v for k, v in constants.items()})
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    done.add(kernel.__name__)


done = set()
shape = {"SHAPE": (4, 4, 64, 64, 64, 64)}
for one in (True, False) if SOAK else (False,):
    compiled(A.decode_attention_kernel, "bf16", 2, A.AttentionPointers, A.Strides, BLOCK_S=64, SINGLE_TILE=one, **shape)
    compiled(
        A.beam_attention_kernel,
        "bf16",
        1,
        A.AttentionPointers,
        A.Strides,
        BEAMS=(5, 16),
        BLOCK_S=32,
        FLAGS=(not one, True),
        PRECISION="tf32",
        **shape,
    )
if SOAK:
    few = {"BEAMS": (4, 16), "BLOCK_S": 16, "FLAGS": (True, False), "PRECISION": "ieee"}
    compiled(A.beam_attention_kernel, "fp32", 4, A.AttentionPointers, A.Strides, **few, **shape)
compiled(S.source_attention_kernel, "fp32", 2, S.SourcePointers, S.SourceStrides, BLOCK_W=16, PRECISION="ieee", **shape)
compiled(
    P.gemv_kernel,
    "bf16",
    4,
    P.MatmulPointers,
    P.GemvSizes,
    NORM=1,
    ACT=3,
    BIAS=True,
    SHIFT=True,
    RESIDUAL=True,
    BLOCK_K=1024,
    BLOCK_N=4,
)
compiled(
    P.split_k_matmul_kernel,
    "bf16",
    4,
    P.MatmulPointers,
    P.MatmulSizes,
    ACT=3,
    BIAS=True,
    BLOCK_M=64,
    BLOCK_N=32,
    TILE=(64, 12, 4),
    CACHE_LINES=(64, 16),
    PRECISION="tf32",
)
for split_k in (0, 4) if SOAK else (4,):
    compiled(
        P.add_norm_kernel,
        "bf16",
        2,
        P.AddNormPointers,
        P.AddNormSizes,
        NORM=1,
        SHIFT=True,
        SPLIT_K=split_k,
        BIAS=split_k > 0,
        KEEP=split_k > 0,
        BLOCK_C=512,
    )
compiled(V.embed_kernel, "bf16", 4, V.EmbeddingPointers, POSITIONS=True, BLOCK_C=512)
compiled(V.block_maxima_kernel, "bf16", 4, V.ScorePointers, V.ScoreSizes, BEAMS=4, BLOCKS=16, BLOCK_V=64)
own = (B.StatePointers, B.CachePointers, V.ScorePointers, V.ScoreSizes, B.StepSizes)
compiled(B.beam_kernel, "fp32", 4, *own, SIZE=(5, 2, 8, 16, 2, 256, 16, 10, 64, 64), FIRST_K=False)
if SOAK:
    compiled(B.beam_kernel, "fp32", 2, *own, SIZE=(1, 1, 2, 2, 2, 1024, 64, 1, 64, 64), FIRST_K=True)
for smooth, grad in ((True, "bf16"), (False, "fp8e5")) if SOAK else ((True, "fp8e5"),):
    KIND["grad"] = grad
    compiled(L.row_kernel, "bf16", 4, COLUMNS=50304, SMOOTH=smooth, BLOCK_V=2048, IGNORED=-100)
compiled(L.transpose_kernel, "i8", 8, TILE=128)
every = {name for module in (A, B, P, S, V, L) for name in dir(module) if name.endswith("_kernel")}
assert done == every, every - done
print("compiled", len(done))
