"""Broken variants that the oracles find, at least one for each that is not looked at elsewhere."""

from __future__ import annotations

from typing import ClassVar

import pytest
from littles import little

from mxdp.backend import gluon, mx, np
from mxdp.collectives import GradientSync, compress
from mxdp.collectives.compress import CompressedSync, Form
from mxdp.collectives.shards import ShardedBuckets
from mxdp.datasets import sequential
from mxdp.engine import prepare
from mxdp.experiments import links as copies
from mxdp.experiments import networks
from mxdp.experiments.allreduce import buckets, links, parameter_server
from mxdp.experiments.automatic_parallelism import (
    copy_overlap,
    graph,
    memory_guard,
    mixed_devices,
    operators,
    run_ahead,
    small_ops,
    two_jobs,
)
from mxdp.experiments.automatic_parallelism.products import Products
from mxdp.experiments.data_parallel import (
    batch_norm,
    batch_scaling,
    break_even,
    normed_lenet,
    parallel_evaluation,
    resnet,
    sharded_optimizer,
)
from mxdp.experiments.lab.module import Case, Question
from mxdp.experiments.many_processes import less_traffic, traffic_ranks
from mxdp.experiments.oracle import count
from mxdp.experiments.other_splits import latency_throughput, pipeline, tiles
from mxdp.experiments.other_splits.split import SplitNet
from mxdp.gluon.bucketed import ShardedReplicas
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import evaluate, lenet
from mxdp.training import TrainStep

VARIANTS = []


def breaks(question, label, owner, name):
    """The function below stands in for ``owner.name``: the oracle of that case of the question finds it."""

    def note(broken):
        VARIANTS.append((question, label, owner, name, broken))
        return broken

    return note


@breaks(two_jobs, "job 2 of 2 alone", two_jobs, "_push")
@breaks(two_jobs, "both jobs at once", two_jobs, "_push")
def one_product_is_of_the_wrong_order(x, products):
    right = [np.dot(x, x) for _ in range(products)]
    return [*right[:-1], np.dot(x, x.T)] if x.ctx == mx.cpu(1) else right


@breaks(operators, "1 worker, 8", operators, "Products")
def a_chain(lefts, w, chain, right=Products):
    return right(lefts, w, True)


@breaks(small_ops, "1 worker, 4 KiB", small_ops, "group")
def nothing_is_pushed(*given, right=small_ops.group):
    return (*right(*given)[:2], list)


@breaks(small_ops, "2 workers, 4 KiB", small_ops, "group")
def one_number_is_wrong(*given, right=small_ops.group):
    host, results, push = right(*given)

    def pushed():
        push()
        results[29][7] += 1

    return host, results, pushed


@breaks(copy_overlap, "chain, 1 worker", copy_overlap, "CopiedProducts")
@breaks(copy_overlap, "indep., 1 worker", copy_overlap, "CopiedProducts")
def each_copy_is_of_the_result_before(*given, right=copy_overlap.CopiedProducts):
    """What happens if a copy doesn't wait for its own."""
    job = right(*given)
    before = [job.results[0], *job.results[:-1]]
    job._copies = [prepare("_copyto", [y], target) for y, own in zip(before, job.landed) for target in own]
    return job


@breaks(memory_guard, "in slices", memory_guard, "run_job")
@breaks(memory_guard, "no limit", memory_guard, "run_job")
def a_slice_is_off_by_one(job, device, seed, pieces, right=memory_guard.run_job):
    return right(job, device, seed, [*pieces[:-1], (pieces[-1][0] - 1, pieces[-1][1] - 1)])


@breaks(memory_guard, "refused", memory_guard, "slices_of")
@breaks(memory_guard, "in slices", memory_guard, "slices_of")
def a_guard_lets_all_pass(job, device, limit, cut):
    return [(0, job.products)]


@breaks(mixed_devices, "3 devices, no waits", mixed_devices, "_update")
def weights_are_stale(weight, lr, gradient, before=()):
    return (weight - lr * gradient[0],)


@breaks(mixed_devices, "3 devices, no waits", mixed_devices, "_sum")
def the_first_worker_is_forgotten(*parts):
    return (sum(part[0] for part in parts[1:]),)


@breaks(graph, "engine, long branch first", graph, "_product")
def only_the_first_input_is_used(weight, *inputs, right=graph._product):
    return right(weight, inputs[0])


@breaks(graph, "engine, long branch first", graph, "net")
def weights_have_changed_places(tasks, w, *more, right=graph.net):
    return right(tasks, {**w, "long 3": w["long 4"], "long 4": w["long 3"]}, *more)


@breaks(run_ahead, "never", run_ahead.Training, "steps")
def a_replica_differs(self, batches, epoch_steps, right=run_ahead.Training.steps):
    right(self, batches, epoch_steps)
    if self._way == "never":
        self.replicas[-1][-1][3] += 1


@breaks(run_ahead, "never", run_ahead, "TrainStep")
class BatchesAreWrittenOver(TrainStep):
    """What running ahead would break, if the input were one buffer that every step writes into."""

    batches: ClassVar[list] = []

    def __call__(self, X, y):
        self.batches.append((X.copy(), y.copy()))
        late = len(self.batches) > 6 and len(self.batches) % 6 == 5  # the fifth step of each way but the first
        return super().__call__(*self.batches[-2 if late else -1])


@breaks(run_ahead, "waitall", run_ahead, "products")
@breaks(run_ahead, "the first: completion event", run_ahead, "products")
def the_last_product_is_none(*given, right=run_ahead.products):
    factor, push = right(*given)
    return factor, lambda: [*push()[:-1], np.zeros((129, 129))]


@breaks(run_ahead, "20 additions", run_ahead, "additions")
def nothing_is_added(x, *_):
    return x


@breaks(links, "0 to 1", copies, "prepare")
@breaks(links, "all 4 at once", copies, "prepare")
def copies_are_shifted(operator, inputs, out):
    return prepare(operator, [inputs[0][1:]], out[:-1]) if out.size > 1 else prepare(operator, inputs, out)


@breaks(links, "all 4 at once", copies, "prepare")
def copies_are_of_another_device(operator, inputs, out, made=[]):  # noqa: B006
    made.append(inputs)
    return prepare(operator, made[(len(made) - 1) // 4 * 4], out)


@breaks(parameter_server, "ring", parameter_server, "Program")
class NothingIsSummedAgain(parameter_server.Program):
    def __call__(self):
        super().__call__()
        self.calls = []


@breaks(buckets, "lenet x 2: auto, 1 MiB", buckets, "GradientSync")
class ABucketIsNotSummed(GradientSync):
    def __call__(self):
        self.buckets.pop()
        super().__call__()


FORMS = {
    # cut off, not rounded
    "bfloat16": ("BFLOAT16", Form(lambda x: x.view("<u2")[1::2].tobytes(), compress.BFLOAT16.decode)),
    "float16": ("FLOAT16", compress.BFLOAT16),
    "2 bits": ("two_bits", lambda threshold: compress.two_bits(threshold * 1.01)),
    "largest 1 %": ("largest", lambda share: compress.largest(share * 1.01)),
}
for form, (part, said_otherwise) in FORMS.items():
    breaks(less_traffic, f"devices: {form}", traffic_ranks, part)(said_otherwise)


@breaks(less_traffic, "devices: 2 bits", traffic_ranks, "CompressedSync")
@breaks(less_traffic, "devices: largest 1 %", traffic_ranks, "CompressedSync")
def feedback_is_lost(*given, feedback, **more):
    return CompressedSync(*given, feedback=False, **more)


@breaks(less_traffic, "devices: every 2 steps", CompressedSync, "__call__")
def nobody_comes_back_from_local_steps(self, right=CompressedSync.__call__):
    if self._calls % self._every == self._every - 1:
        self._start = []
    right(self)


@breaks(batch_norm, "4: synchronised", normed_lenet, "SyncBatchNorm")
class EachShardAlone:
    def __init__(self, *arrays_and_momentum):
        *arrays, momentum = arrays_and_momentum
        self.norms = [SyncBatchNorm(*[[one] for one in own], momentum) for own in zip(*arrays)]

    def __call__(self, xs):
        return [norm([x])[0] for norm, x in zip(self.norms, xs)]

    def backward(self):
        return [norm.backward()[0] for norm in self.norms]


@breaks(batch_norm, "4: synchronised", normed_lenet, "GradientSync")
def gradients_are_not_summed(replicas):
    return list


@breaks(batch_scaling, "batch 8, lr 0.2", batch_scaling, "training")
def the_rate_is_not_scaled(case, s, data, right=batch_scaling.training):
    return right(Case("", case.devices, batch=case.batch, rate=s.lr), s, data)


@breaks(batch_scaling, "batch 8, lr 0.2", batch_scaling, "Stream")
def the_batch_is_not_scaled(data, size, seed, right=batch_scaling.Stream):
    return right(data, size // 2, seed)


@breaks(break_even, "LeNet, batch 4, 2 devices", networks, "network")
@breaks(break_even, "MLP, batch 4, 2 devices", networks, "network")
@breaks(break_even, "ResNet-18, batch 2, 2 devices", networks, "network")
def a_step_of_several_devices_has_no_sums(*given, right=networks.network.__wrapped__):
    model = right(*given)
    model.sums = len(model.replicas) == 1
    return model


@breaks(resnet, "2 devices, mxdp's store", gluon.Trainer, "_allreduce_grads")
@breaks(sharded_optimizer, "MLP, Adam, shards", ShardedReplicas, "spread")
@breaks(sharded_optimizer, "MLP, Adam, shards", ShardedBuckets, "sum")
def nothing_is_done(self, _=None):
    pass


@breaks(tiles, "2 x 1, no halo", tiles, "seams")
@breaks(tiles, "2 x 1 tiles", tiles, "seams")
def a_pixel_is_wrong(*given, right=tiles.seams):
    error, inside = right(*given)
    error[0, 0] = 1e-30
    return error, inside


@breaks(pipeline, "2 x 1f1b, m = 4", SplitNet, "make")
def gradients_are_of_one_micro_batch(self, *given, right=SplitNet.make):
    made = right(self, *given)
    for stage in made.stages:
        stage._addends, stage._add = stage._sums, []
    return made


@breaks(pipeline, "2 x 1f1b, m = 4", SplitNet, "make")
@breaks(latency_throughput, "2 stages, batch 2", SplitNet, "make")
@breaks(latency_throughput, "2 replicas, batch 2", SplitNet, "make")
def scores_are_of_another_sample(self, *given, right=SplitNet.make):
    made = right(self, *given)
    scores = made.scores
    made.scores = lambda X: scores(X[::-1])
    return made


@breaks(parallel_evaluation, "2 devices", parallel_evaluation, "evaluate")
def the_batches_accuracies_are_averaged(data, replicas, batch_size, net):
    """Of 61 samples in batches of 7, 7 ... and 5 it is another one."""
    parts = [type(data)(X, y) for X, y in sequential(data, batch_size)]
    return sum(evaluate(part, replicas, batch_size, lenet) for part in parts) / len(parts)


@pytest.mark.parametrize(
    ("question", "label", "owner", "name", "broken"),
    VARIANTS,
    ids=lambda value: getattr(value, "__name__", value if isinstance(value, str) else "form").rpartition(".")[2],
)
def test_an_oracle_finds_it_if(question, label, owner, name, broken, monkeypatch):
    s = little(Question(question), kind="cpu")
    case = next(case for case in question.cases(s) if case.label == label)
    monkeypatch.setattr(owner, name, broken)
    assert count(question.oracle(case, s))[1] > 0
