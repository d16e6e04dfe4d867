"""A small loss compiled as a training compiles its own, by the compiler's real back end; prints where its code is kept."""

import os

import torch

from glassformer.config import ModelConfig
from glassformer.models import build_model
from glassformer.runs.setup import make_fast

model = build_model(ModelConfig(family="gpt", vocab_size=8, n_layer=1, n_head=1, n_embd=4, block_size=4))
make_fast(model, torch.device("cpu"), compiled=True)
# A plain loop will do: what this processor has beyond it is found out by compiling, several times as long.
from torch._inductor import config, cpu_vec_isa

cpu_vec_isa.supported_vec_isa_list.clear()
config.cpp_cache_precompile_headers = False
print(torch.compile(lambda x: (x.sin() + 1).sum())(torch.ones(64)).item())
print(os.environ["TORCHINDUCTOR_CACHE_DIR"])
print(os.environ["TRITON_CACHE_DIR"])
