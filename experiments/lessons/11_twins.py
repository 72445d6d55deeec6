# %% [markdown]
# # 11. The same questions on the GPUs of today, in PyTorch
#
# MXNet's CUDA wheels have no code for GPUs of compute capability 9.0 and later. PyTorch's have, and it works alike:
# Python runs ahead of the device, and a time means nothing before a wait. So three of the experiments have twins in
# PyTorch. They load no MXNet, and need `pip install torch`.
#
# | the book's section | MXNet | PyTorch |
# |---|---|---|
# | jobs that are independent | `two-jobs` | `torch-two-jobs`, on two GPUs or in two streams of one |
# | copies beside computation | `copy-overlap` | `torch-copy-overlap`: pageable or pinned memory, one stream or two |
# | data parallelism | `epochs` | `torch-data-parallel`: DataParallel, and DDP by NCCL or Gloo |

# %%
from importlib.util import find_spec

from mxdp.experiments.lab.module import find

TWINS = ("torch-two-jobs", "torch-copy-overlap", "torch-data-parallel")
for name in TWINS:
    print(f"{find(name).question}\n  expected: {find(name).expect({}, 2)}")

# %% [markdown]
# ## What this machine can do
#
# Without a GPU, `torch-data-parallel` runs two processes on the CPU. The other two are skipped, unless `--kind cpu`
# asks for them: then they show what a device without a queue does, where nothing overlaps.

# %%
if find_spec("torch") is None:
    print("PyTorch is not here: pip install torch")
else:
    import torch

    print("PyTorch", torch.__version__, "finds", torch.cuda.device_count(), "GPUs")

# %% [markdown]
# ## Try it
#
# - `python -m mxdp.experiments run torch-two-jobs torch-copy-overlap torch-data-parallel`
# - The book's slides (docs/gpus.md has their address) took 0.12 s to compute, 2.16 s to copy and 3.13 s for both. Which
#   of the two causes is the larger one on your GPU: the pageable memory, or the one stream?
# - `nvidia-smi dmon` in another terminal shows the GPU's load and its PCIe traffic meanwhile.
