"""The kernels of decoding against the plain model, by Triton's interpreter, which needs no GPU: whole decodings, of models,
searches and rules drawn at random, through every kernel there is. And all kernels, those of the loss too, by the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counts import count

ROOT = Path(__file__).parents[1]

# A process of its own: the interpreter is chosen when kernels are defined, and the checks of shapes cannot be interpreted.
SCRIPT = """
import random, sys, warnings
import torch
from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode import Controls, boards, choice_kernels, engines, generate_batch, layer_kernels, static_decoder
from glassformer.decode import translate_batch
from glassformer.decode.engine_cuda import GraphEngine
from glassformer.decode.static_decoder import KernelDecoder
from glassformer.models import build_model

torch.set_num_threads(1)
used = set()
LAYER = ("product", "batch_product", "attend_columns", "attend_beams", "attend_rows", "add_norm", "embed")
for module, names in ((layer_kernels, LAYER), (choice_kernels, ("peaks", "beam_step", "best_words"))):
    for name in names:
        def noted(*given, name=name, own=getattr(module, name), **named):
            used.add(name)
            return own(*given, **named)
        setattr(module, name, noted)

class WithKernels(GraphEngine):
    def __init__(self, model, precision="model"):
        super().__init__(model, precision)
        assert KernelDecoder.suits(self.config)
        self.decoder = KernelDecoder(self.model)

engines.GraphEngine = WithKernels
controls = Controls(bos=1, eos=2, unknown=3, never=(0,))
ended = 0
for trial in range(int(sys.argv[1])):
    torch.manual_seed(trial)
    draw = random.Random(trial)
    # Tokenizers of a GPT are written greedily here, with no beam to ask for many words: fewer, as the interpreter is slow.
    family = ("gpt", "transformer", "transformer")[trial % 3]
    words = draw.choice([2500, 3000, 4200]) if family == "transformer" else draw.choice([500, 700])
    model = build_model(ModelConfig(
        family=family, vocab_size=words, n_layer=1, n_head=2, n_embd=16, n_hidden=64, block_size=64, dropout=0.0,
        pre_norm=trial % 2 == 0, activation=draw.choice(["relu", "gelu", "gelu_tanh"]), norm=draw.choice(["layer", "rms"]),
    )).eval()
    for p in model.parameters():
        p.data.mul_(2.5)
    texts = [[draw.randrange(5, 480) for _ in range(draw.randrange(1, 9))] for _ in range(draw.randrange(1, 6))]
    decode = translate_batch if family == "transformer" else generate_batch
    # A word that the model likes to write, nearly: so some texts end, at different lengths.
    how = DecodeConfig(engine="plain", beam=3, n_best=3, max_new_tokens=4, min_new_tokens=3)
    found = decode(model, texts, how, controls=controls)
    liked = draw.choice([i for several in found for h in several for i in h.ids])
    model.output_weight.data[2] = model.output_weight.data[liked] * draw.choice([0.9, 0.97, 0.999, 1.01])
    beam, most = (1, 4, 2, 1, 3, 5)[trial % 6], draw.choice([2, 5, 9])
    # Attention in one bite, and in several.
    layer_kernels.BITE, layer_kernels.ENOUGH_PRODUCTS = 16, 16
    bites = draw.choice([(128, 64, 64, 32), (0, 16, 16, 16)])
    layer_kernels.FEW_PROGRAMS, layer_kernels.MANY_BLOCK, layer_kernels.ONE_BITE, layer_kernels.SEVERAL_BITES = bites
    how = dict(
        beam=beam, n_best=draw.randrange(1, beam + 1), batch_size=draw.choice([2, 16]), max_new_tokens=most,
        min_new_tokens=draw.choice([0, min(2, most)]), alpha=draw.choice([0.0, 0.6, 1.0, -1.0, 2.0]),
        length_rule=draw.choice(["gnmt", "power", "power-no-eos"]), stop_rule=draw.choice(["exact", "first-k"]),
    )
    boards.BEAM_KERNEL = trial % 4 != 2
    static_decoder.DEEP = (64, 2048)[trial % 5 % 2]
    static_decoder.KERNEL_BYTES, layer_kernels.FEW_ROWS = ((2, 8), (4, 0), (4, 1), (4, 0))[trial % 4]
    plain, ours = (decode(model, texts, DecodeConfig(engine=e, **how), controls=controls) for e in ("plain", "graph"))
    for wanted, got in zip(plain, ours, strict=True):
        for h, g in zip(wanted, got, strict=True):
            assert (h.ids, h.ended) == (g.ids, g.ended), (trial, how, h, g)
            assert abs(h.score - g.score) < 1e-4 and len(h.token_logprobs) == len(g.token_logprobs), (trial, how, h, g)
            ended += g.ended == "eos"
assert ended > 5, "hardly any text ended by itself"
assert boards.HELD and all(boards.HELD.values())

# A kernel that a compiler has spoilt is found out before it is used.
own = choice_kernels.beam_step
def spoilt(board, logits, room, sentences):
    own(board, logits, room, sentences)
    room.tokens.mul_(2).clamp_(max=logits.size(1) - 1)
choice_kernels.beam_step, boards.BEAM_KERNEL = spoilt, True
boards.HELD.clear()
model = build_model(ModelConfig(family="transformer", vocab_size=2500, n_layer=1, n_head=2, n_embd=16, block_size=64)).eval()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    plain, ours = (
        translate_batch(model, [[7, 8, 2], [9, 2]], DecodeConfig(beam=3, engine=e, max_new_tokens=4), controls=controls)
        for e in ("plain", "graph")
    )
assert [h[0].ids for h in plain] == [h[0].ids for h in ours]
assert any("Triton" in str(w.message) for w in told)
print(*sorted(used))
"""


@pytest.mark.slow
def test_kernels_decode_as_the_plain_model_does() -> None:
    """Broken variants that this has caught: a beam's filler rows counted among its candidates; a pool that reads a row
    after it was overwritten."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", SCRIPT, str(count(fast=6, soak=150))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    every = {"product", "batch_product", "attend_columns", "attend_beams", "attend_rows", "add_norm"}
    assert set(done.stdout.split()) >= every | {"peaks", "beam_step", "embed", "best_words"}


# The interpreter takes what a compiler may refuse. To compile needs no GPU, only to be told of one.
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from glassformer.decode import choice_kernels, layer_kernels
from glassformer.accel import loss_kernels

OTHERS = {
    "fp32": "peak part last logprobs pool_logprobs best share loss", "fp64": "totals score cut_totals divisor",
    "i64": "column written minimum limit count length cut_length tokens lengths labels", "i32": "pool_ids ids word",
    "i8": "over never real by_eos given turned", "fp8e5": "grad8",
}
KIND = {f"{name}_at": kind for kind, names in OTHERS.items() for name in names.split()}
SIZES = dict(HEADS=4, KV_HEADS=4, D=64, DV=64, PD=64, PDV=64, EARLY=True)

def compiled(kernel, dtype, warps, **constants):
    names = kernel.arg_names
    constants = {k: v for k, v in {**SIZES, **constants}.items() if k in names}
    kinds = {n: "constexpr" if n in constants else f"*{KIND.get(n, dtype)}" if n.endswith("_at")
             else "fp32" if n in ("scale", "eps", "factor", "smoothing", "scale8") else "i32" for n in names}
    source = ASTSource(fn=kernel, signature=kinds, constexprs={(names.index(k),): v for k, v in constants.items()})
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    done.add(kernel.__name__)

done = set()
for new, block, one in ((True, 64, True), (True, 32, False), (False, 16, True)):
    compiled(layer_kernels.beams_kernel, "bf16", 1, BEAMS=5, ROWS=16, BLOCK=block, ONE=one, NEW=new, PRECISION="tf32")
compiled(layer_kernels.beams_kernel, "fp32", 4, BEAMS=4, ROWS=16, BLOCK=32, ONE=False, NEW=True, PRECISION="ieee")
compiled(layer_kernels.attend_kernel, "bf16", 2, BLOCK=64, ONE=True)
compiled(layer_kernels.attend_kernel, "bf16", 2, BLOCK=64, ONE=False)
compiled(
    choice_kernels.beam_kernel, "bf16", 4, BEAMS=3, WANTED=2, FIRST_K=False, STRETCH=64, K=4, W=8, BEST=2, STRETCHES=64, BLOCKS=4,
    CHUNK=64,
)
compiled(layer_kernels.rows_kernel, "fp32", 2, ROWS=16, PRECISION="ieee")
for parts in (0, 4):
    compiled(layer_kernels.add_norm_kernel, "bf16", 2, NORM=1, SHIFT=True, PARTS=parts, BIAS=parts == 4, KEEP=parts > 0, WIDE=512)
compiled(choice_kernels.peaks_kernel, "bf16", 4, BEAMS=4, STRETCHES=16, STRETCH=64)
compiled(layer_kernels.embed_kernel, "bf16", 4, BEAMS=4, K=4, POSITIONS=True, WIDE=512)
compiled(choice_kernels.look_through_kernel, "bf16", 4, BLOCK=1024)
compiled(choice_kernels.enter_kernel, "bf16", 1, PARTS=64)
for bites in (1, 12):
    compiled(
        layer_kernels.batch_product_kernel, "bf16", 4, ACT=3 * (bites > 1), BIAS=bites > 1, ROWS=64, TALL=32, BITE=64,
        BITES=bites, LINE=64, LINES=16, STAGES=4, PRECISION="tf32",
    )
compiled(layer_kernels.product_kernel, "bf16", 4, NORM=1, ACT=3, BIAS=True, SHIFT=True, RESIDUAL=True, WIDE=1024, TALL=4)
for smooth, grad, grad8 in ((False, True, False), (True, True, False), (True, True, True), (False, False, True)):
    compiled(loss_kernels.row_kernel, "bf16", 4, COLUMNS=50304, SMOOTH=smooth, GRAD=grad, GRAD8=grad8, WIDE=2048, IGNORED=-100)
compiled(loss_kernels.turn_kernel, "i8", 8, TILE=128)
every = {name for module in (layer_kernels, choice_kernels, loss_kernels) for name in dir(module) if name.endswith("_kernel")}
assert done == every, every - done
print("compiled", len(done))
"""


@pytest.mark.slow
def test_kernels_compile_for_a_device(tmp_path: Path) -> None:
    """Broken variant that this has caught: a number of 32 bits before a loop and of 64 inside it."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("compiled")
