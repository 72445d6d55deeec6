"""Gradients one by one, or in buckets?

And how large should a bucket be? A network's gradients are many arrays, most of them small. One by one, each costs its
calls and a wait; in one bucket they cost little more than their bytes. So the model expects much for LeNet (8 arrays,
0.5 MB), and less for ResNet-18 (62 arrays, 45 MB), where it matters that all devices add at the same time.
"""

import itertools
from functools import lru_cache

from mxdp.backend import gluon, np, upload
from mxdp.collectives import AllReduce, GradientSync
from mxdp.errors import plural
from mxdp.experiments.allreduce import arrays
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Work, contenders, fastest
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO
from mxdp.scratch import SHAPES, get_params

SOURCE = "Dive into Deep Learning, 'Training on Multiple GPUs'; buckets as in PyTorch DDP and Horovod"
COMPARED = "every gradient of every replica, against the exact sum"
TOGETHER = True
PRESETS = {
    "quick": dict(devices=[2, 4], bucket_mb=[4.0, 25.0], timeout=120.0),
    "full": dict(devices=[2, 4, 8], bucket_mb=[0.25, 4.0, 25.0], timeout=900.0),
}
LITTLE = dict(devices=[2], bucket_mb=[1.0])
NETS = {"lenet": ("LeNet", 0.9), "resnet18": ("ResNet-18", 0.75)}
"""Each network's title, and the claim: the time of our best over that of MXNet's ``device`` store."""
DEFAULT_MB = 25.0
"""MiB of a bucket of ``GradientSync``, if its user chooses nothing."""


def cases(s):
    ways = [
        *((name, name, None) for name in (*arrays.STORES, "one by one")),
        *((f"auto, {mib:g} MiB", AUTO, mib) for mib in s.bucket_mb),
        *((name, name, 1024.0) for name in sorted(ALGORITHMS)),  # a bucket that holds everything
    ]
    for net, n, (way, name, mib) in itertools.product(NETS, s.devices, ways):
        yield Case(f"{net} x {n}: {way}", n, net=net, algorithm=name, bucket_mb=mib)


def expect(s, cores):
    return """LeNet in one bucket costs an eighth of the calls; for ResNet-18 bytes decide, and sharded, direct and
        (CPU) shared-memory send the fewest."""


def oracle(case, s):
    devices = devices_of(case, s)
    gradients, sync = _sync(case, devices)
    for rank, of_rank in enumerate(gradients):
        for gradient in of_rank:
            upload(arrays.numbers(gradient.shape, rank, s.seed), devices[rank]).copyto(gradient)
    return arrays.exact_sums(gradients, sync, s.seed)


def set_up(case, s):
    """A round makes its own arrays: the cases share a process, and none may hold memory while another is measured."""
    devices = devices_of(case, s)

    def one_round():
        sync = _sync(case, devices)[1]
        buckets = [(bucket.nbytes, bucket.algorithm) for bucket in getattr(sync, "buckets", ())]
        return arrays.seconds_in_turn({"": lambda: sync})[""], {"buckets": buckets} if buckets else {}

    return Work(one_round, devices)


@lru_cache(maxsize=None)
def _shapes(net):
    if net == "lenet":
        return SHAPES
    network = gluon.model_zoo.vision.resnet18_v1(classes=10)
    network.initialize()
    network(np.zeros((1, 3, 32, 32)))
    return [param.shape for param in network.collect_params().values() if param.grad_req != "null"]


def _sync(case, devices):
    """The gradients of each replica, where this case's sum finds them, and the sum."""
    params = [np.zeros(shape) for shape in _shapes(case.net)]  # their values don't matter here
    replicas = [get_params(params, device) for device in devices]
    if case.bucket_mb:
        sync = GradientSync(replicas, case.algorithm, case.bucket_mb)
        return [[of_rank[number] for number in range(len(of_rank))] for of_rank in sync.gradients], sync
    gradients = [[param.grad for param in replica] for replica in replicas]
    if case.algorithm in arrays.STORES:
        return gradients, arrays.store_sync(case.algorithm, gradients)
    sums = [AllReduce(same, "naive") for same in zip(*gradients)]

    def one_by_one():
        for allreduce in sums:
            allreduce()

    return gradients, one_by_one


def tell(t, s):
    best, choices, over = {}, [], {net: [None] for net in NETS}
    for net, n in itertools.product(NETS, s.devices):
        rows = t.find(net=net, devices=n)
        for row in rows:
            row.of_device_store = row.seconds / t.one(net=net, devices=n, algorithm="mxnet-device").seconds
        ours = [row for row in rows if row.bucket_mb]
        best[net, n] = fastest(ours)
        over[net] += [row.of_device_store for row in contenders(ours) if n in (2, 4)]  # as the claims say
        does = {row: [str(row.get("buckets", row.label))] * len(row.seconds.values) for row in ours}
        for auto in t.find(net=net, devices=n, algorithm=AUTO, bucket_mb=DEFAULT_MB):
            choices += arrays.tell_over_others(auto, does[auto], does)
    for net, (title, bound) in NETS.items():
        what = f"On 2 and on 4 devices, the fastest of ours sums {title}'s gradients in at most {bound} of the time"
        t.claim(f"{what} of MXNet's device store.", *over[net], at_most=bound)
    sentence = f"""With buckets of {DEFAULT_MB:g} MiB, the default, 'auto' takes at most 1.1 times as long as the
        fastest of ours: of both networks and all numbers of devices, where it is worst."""
    arrays.tell_choices(t, sentence, choices)
    t.column("seconds", "ms", scale=1e3, about="to sum all gradients of all replicas in place; each call is waited for")
    t.column("of_device_store", "/device", ".2f", about="over MXNet's device store, which sums array by array")
    t.note("""Rows named after an algorithm have one bucket. Rows with the same buckets and algorithms do the same, so
        the median of their times counts.""")
    few = s.devices[0]
    t.first([row for row in t if row in best.values() or row.algorithm in ("mxnet-device", "one by one")])
    lenet, resnet = (best[net, few].of_device_store for net in NETS)
    t.answer(f"""On {plural(few, "device")}, sums in buckets are {1 / lenet:.2f} times as fast for LeNet, and
        {1 / resnet:.2f} times for ResNet-18, as those of MXNet's device store, which sums gradients one by one.""")
    t.explain("One by one, each array costs its calls and a wait; in a bucket it costs little more than its bytes.")
    for net, (title, _) in NETS.items():
        t.bars(unit="ms", scale=1e3, title=title, colour="bucket_mb", rows=t.find(net=net, devices=few))
