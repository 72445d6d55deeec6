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
from mxdp.experiments import sources
from mxdp.experiments.allreduce import arrays
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Work, faster, fastest
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO
from mxdp.scratch import SHAPES, get_params

SOURCE = f"{sources.MULTIPLE_GPUS}; buckets as in {sources.DDP}"
COMPARED = "every gradient of every replica, against the exact sum"
TOGETHER = True
PRESETS = {
    "quick": dict(devices=[2, 4], bucket_mb=[4.0, 25.0], timeout=120.0),
    "full": dict(devices=[2, 4, 8], bucket_mb=[0.25, 4.0, 25.0], timeout=900.0),
}
LITTLE = dict(devices=[2], bucket_mb=[1.0])
NETS = {"lenet": "LeNet", "resnet18": "ResNet-18"}
DEFAULT_MB = 25.0
"""MiB of a bucket of ``GradientSync``, if its user chooses nothing."""


def cases(s):
    ways: list = [(name, name, None) for name in (*arrays.STORES, "one by one")]
    ways += [(f"auto, {mib:g} MiB", AUTO, mib) for mib in s.bucket_mb]
    ways += [(name, name, 1024.0) for name in sorted(ALGORITHMS)]  # a bucket holds everything
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
        _, sync = _sync(case, devices)
        seconds = arrays.seconds_in_turn({"": lambda: sync})[""]
        if not case.bucket_mb:
            return seconds, {}
        buckets = [(bucket.nbytes, bucket.algorithm) for bucket in sync.buckets]
        return seconds, {"buckets": buckets}

    return Work(one_round)


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
        return [list(of_rank.values()) for of_rank in sync.gradients], sync
    gradients = []
    for replica in replicas:
        gradients.append([param.grad for param in replica])
    if case.algorithm in arrays.STORES:
        return gradients, arrays.store_sync(case.algorithm, gradients)
    sums = [AllReduce(same, "naive") for same in zip(*gradients)]

    def one_by_one():
        for allreduce in sums:
            allreduce()

    return gradients, one_by_one


def tell(t, s):
    best = {}
    choices = []
    for net, n in itertools.product(NETS, s.devices):
        rows = t.find(net=net, devices=n)
        store = t.one(net=net, devices=n, algorithm="mxnet-device")
        for row in rows:
            row.of_device_store = row.seconds / store.seconds
        ours = [row for row in rows if row.bucket_mb]
        best[net, n] = fastest(ours)
        does = {}
        for row in ours:
            does[row] = [str(row.get("buckets", row.label))] * len(row.seconds.values)
        for auto in t.find(net=net, devices=n, algorithm=AUTO, bucket_mb=DEFAULT_MB):
            choices += arrays.tell_over_others(auto, does[auto], does)
    t.column(
        "seconds",
        "ms",
        scale=1e3,
        about="to sum all gradients of all replicas in place; each call is waited for",
    )
    t.column(
        "of_device_store",
        "/device",
        ".2f",
        about="over MXNet's device store, which sums array by array",
    )
    t.note("""Rows named after an algorithm have one bucket. Rows with the same buckets and algorithms do the same, so
        the median of their times counts.""")
    few = s.devices[0]
    defaults = [t.maybe(net=net, devices=few, algorithm=AUTO, bucket_mb=DEFAULT_MB) for net in NETS]
    fastest_ones = [best[net, few] for net in NETS]
    if None in defaults:
        shown = fastest_ones
        how = "our fastest way"
    else:
        shown = defaults
        how = "in default buckets"
    yardsticks = ("mxnet-device", "one by one")
    answering = [*best.values(), *shown]
    t.first([row for row in t if row in answering or row.algorithm in yardsticks])
    lenet, resnet = [faster(1 / row.of_device_store) for row in shown]
    t.answer(f"""On {plural(few, "device")}, summing LeNet's gradients {how} {lenet} as one by one, by MXNet's device
        store; ResNet-18's {resnet}.""")
    t.explain(f"""One by one, each array costs its calls and a wait; in a bucket it costs little more than its bytes. A
        default bucket has {DEFAULT_MB:g} MiB.""")
    for row in fastest_ones:
        ways = sum(one.bucket_mb is not None for one in t.find(net=row.net, devices=few))
        t.explain(f"""For {NETS[row.net]} the fastest of our {ways} ways there is {row.label.partition(": ")[2]}: it
            {faster(1 / row.of_device_store)} as MXNet's device store.""")
    t.explain(f"The default bucket costs most where 'auto' takes {arrays.tell_worst(choices)}.")
    for net, title in NETS.items():
        rows = t.find(net=net, devices=few)
        t.bars(unit="ms", scale=1e3, title=title, colour="bucket_mb", rows=rows)
