"""PyTorch: what does a second device bring to a step?

It is ``epochs`` in PyTorch: one process, DataParallel, and DistributedDataParallel (DDP). DataParallel is one process
that copies the parameters to every GPU for each step; DDP gives each device a process and sums gradients while backward
runs. On GPUs DDP uses NCCL. Without any, two processes use Gloo on the CPU, so this runs everywhere.
"""

from mxdp.experiments import sources
from mxdp.experiments.lab import Case, Skipped, Work, faster
from mxdp.experiments.lab.ranks import DDP
from mxdp.experiments.oracle import random_batch, same_bits
from mxdp.experiments.twins import places
from mxdp.plans.cost.link import speedup

SOURCE = f"{sources.MULTIPLE_GPUS}, in its PyTorch version; {sources.DDP}"
COMPARED = "parameters of every process after three steps, against one process; bit for bit between processes"
NEEDS = places.NEEDS
_COMMON = dict(data="auto", data_dir=None, batch_size=256, lr=0.2)
PRESETS = {
    "quick": dict(_COMMON, steps=10, timeout=300.0),
    "full": dict(_COMMON, steps=20, timeout=600.0),
}
LITTLE = dict(data="synthetic", batch_size=24, steps=2)


def cases(s):
    yield Case("one process", gpus=0)
    yield Case("one process, DataParallel on 2 GPUs", 2, gpus=2)
    yield Case("two processes, DDP", processes=2, engine=DDP, gpus=0)


def expect(s, cores):
    return f"DDP's speed-up on the CPU, with {cores} cores: {speedup(2, cores):.2f}; on two GPUs up to 2.00."


def oracle(case, s):
    """This process after a few steps on an uneven batch, against a loop of its own and, bit for bit, the first one."""
    import torch

    from mxdp.experiments import torch_ddp

    X, y = random_batch(61, s.seed)
    params = torch_ddp.initial(s.seed, 0.1)
    training = _training(case, s)
    trained = training.check(X, y, params)
    net = torch_ddp.torch_lenet(params)
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(torch_ddp.STEPS):
        torch_ddp.step(net, sgd, X, y, 1 / len(X), torch.device("cpu"))
    for param, expected, first in zip(trained, net.parameters(), training.of_first(trained)):
        yield param, expected.detach().numpy()
        yield same_bits(param, first)


def set_up(case, s):
    """A round is some steps of training on batches of the same size, to their end."""
    training = _training(case, s)
    training.train(s.steps)
    return Work(lambda: training.train(s.steps), training.devices)


def _training(case, s):
    import torch

    from mxdp.experiments.torch_ddp import TorchTraining, initial

    found = torch.cuda.device_count()
    if case.gpus > (0 if s.kind == "cpu" else found):
        raise Skipped(f"DataParallel needs {case.gpus} GPUs, and PyTorch finds {found}")
    params = initial(s.seed, 0.1)
    return TorchTraining(params, s, s.batch_size, size=case.processes, gpus=case.gpus)


def tell(t, s):
    one = t.one(processes=1, gpus=0)
    ddp = t.one(engine=DDP)
    parallel = t.maybe(gpus=2)
    for row in t:
        row.step_ms = row.seconds / s.steps * 1e3
        row.speedup = one.seconds / row.seconds
    t.column("step_ms", "ms/step", ".1f", about="the time of a step of LeNet")
    t.column("speedup", "speed-up", ".2f", spread=True, about="one process's time over the row's")
    t.column("device_names", "devices")
    t.note(f"""DDP sums gradients while backward still computes others. It runs on GPUs by NCCL if there is one for each
        process, else on the CPU by Gloo, with one thread a process; so does the one process. {places.RUN}""")
    more = f"; by DataParallel it {faster(parallel.speedup)}" if parallel else ""
    t.answer(f"""On {places.tell_where(ddp)}, a step by DDP in two processes {faster(ddp.speedup)} as in one
        process{more}.""")
    t.bars("step_ms", "ms/step")
