"""Who has said what questions ask and claims judge: each with a title, and an address where it can be read."""

from __future__ import annotations

D2L = "https://d2l.ai/chapter_computational-performance"
NEW = "https://d2l.smola.org/chapter_computational-performance"
MXNET_SLIDES = "https://d2l.smola.org/slides/mxnet/chapter_computational-performance"
PYTORCH_SLIDES = "https://d2l.smola.org/slides/pytorch/chapter_computational-performance"
BOOK = "Dive into Deep Learning"

# The book, its edition of August 2026, and its slides.
MULTIPLE_GPUS = f"{BOOK}, 'Training on Multiple GPUs', {D2L}/multiple-gpus.html"
CONCISE = f"{BOOK}, 'Concise Implementation for Multiple GPUs', {D2L}/multiple-gpus-concise.html"
PARALLELISM = f"{BOOK}, 'Automatic Parallelism', {D2L}/auto-parallelism.html"
ASYNCHRONOUS = f"{BOOK}, 'Asynchronous Computation', {D2L}/async-computation.html"
PARAMETER_SERVERS = f"{BOOK}, 'Parameter Servers', {D2L}/parameterserver.html"
BATCH_NORMALIZATION = (
    f"{BOOK}, 'Batch Normalization', https://d2l.ai/chapter_convolutional-modern/batch-norm.html"
)
FIRST_PRINCIPLES = (
    f"{BOOK}, new edition, 'Multi-GPU from First Principles', {NEW}/multiple-gpus.html"
)
IN_PRACTICE = f"{BOOK}, new edition, 'Multi-GPU in Practice', {NEW}/multi-gpu-practice.html"
GPU_SLIDES = f"{BOOK}, slides 'Training on Multiple GPUs', {MXNET_SLIDES}/multiple-gpus.html"
PARALLELISM_SLIDES = (
    f"{BOOK}, slides 'Automatic Parallelism', {PYTORCH_SLIDES}/auto-parallelism.html"
)

GOYAL = "Goyal et al., 'Accurate, Large Minibatch SGD', 2017, https://arxiv.org/abs/1706.02677"
GPIPE = "Huang et al., 'GPipe', 2019, https://arxiv.org/abs/1811.06965"
IOFFE = "Ioffe and Szegedy, 'Batch Normalization', 2015, https://arxiv.org/abs/1502.03167"
NARAYANAN = "Narayanan et al., 'Efficient Large-Scale Language Model Training', 2021, https://arxiv.org/abs/2104.04473"
SEIDE = "Seide et al., '1-Bit Stochastic Gradient Descent', 2014, https://doi.org/10.21437/Interspeech.2014-274"
SPATIAL = "Dryden et al., 'Improving Strong-Scaling of CNN Training', 2019, https://arxiv.org/abs/1903.06681"
ZERO = "Rajbhandari et al., 'ZeRO', 2020, https://arxiv.org/abs/1910.02054"
DDP = "Li et al., 'PyTorch Distributed', 2020, https://arxiv.org/abs/2006.15704"
COMPRESSION = "MXNet, 'Gradient Compression', https://mxnet.apache.org/api/faq/gradient_compression"
FLOAT16 = "IEEE 754, float16 has 11 significant bits, https://doi.org/10.1109/IEEESTD.2019.8766229"
SLOWER = "MXNet issue 3136, 'multiple gpus runs slower than one gpu', https://github.com/apache/mxnet/issues/3136"
LOST = "ps-lite issue 68, on failed servers, https://github.com/dmlc/ps-lite/issues/68"
UNEVEN_RANKS = (
    "PyTorch issue 38174, on uneven inputs, https://github.com/pytorch/pytorch/issues/38174"
)
