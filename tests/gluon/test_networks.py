"""Networks of gluon's, hybridised in any way, train with mxdp's stores and trainers to the bits of MXNet's ``device``
store. On two devices nothing may differ, as a sum of two has no order."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import assert_equal, by_devices, by_mxnet, train_net, weights, zero

from mxdp.backend import gluon, mx, np, npx
from mxdp.gluon import Trainer

OPTIMIZERS = [("sgd", {"learning_rate": 0.1, "momentum": 0.5, "wd": 0.01}), ("adam", {"learning_rate": 0.01})]
MAKERS = {
    "gluon.Trainer": partial(gluon.Trainer, kvstore="mxdpring"),
    "Trainer": Trainer,
    "small buckets": partial(Trainer, kvstore="mxdpring", bucket_mb=1e-4),
    "shards": partial(Trainer, shard_optimizer=True),
}
STATIC = dict(static_alloc=True, static_shape=True)
HYBRID = [None, {}, dict(static_alloc=True), STATIC]


def numbers(params, static):
    """MXNet's static graphs still update the running statistics while they are broadcast."""
    return weights([param for param in params if not (static and "running" in param.name)])


def check(maker, hybrid, first, classic, optimizer):
    def prepare(net, devices):
        if hybrid is not None:
            net.hybridize(**hybrid)
        for device in devices if first else ():  # its values are known before the trainer is made
            net((mx.nd.ones if classic else np.ones)((1, 1, 6, 6), ctx=device))

    (npx.reset_np if classic else npx.set_np)()
    try:
        ours, theirs = (train_net(make, 3, prepare, optimizer) for make in (MAKERS[maker], by_mxnet))
        assert_equal(numbers(ours, hybrid), numbers(theirs, hybrid))
    finally:
        npx.set_np()


@settings(max_examples=20)
@given(st.sampled_from([*MAKERS]), st.sampled_from(HYBRID), st.booleans(), st.booleans(), st.sampled_from(OPTIMIZERS))
def test_a_network_trains_as_with_mxnets_store(maker, hybrid, first, classic, optimizer):
    """A static graph writes to the gradients of its first backward pass (``StaticBackward`` in ``cached_op.cc``)."""
    check(maker, hybrid, first, classic, optimizer)


def test_no_sync_makes_a_static_graph_add_up():
    def added_up(trainer, step):
        for param in trainer._params:
            if param.grad_req != "null":
                param.grad_req = "write" if step < 2 else "add"
        zero(trainer._params)
        return range(1 if step < 2 else 2)

    def held_back(trainer, step):
        if step >= 2:
            with trainer.no_sync():
                yield
        yield

    expected = train_net(by_devices, steps=4, micro_batches=added_up)
    ours = train_net(Trainer, steps=4, prepare=lambda net, devices: net.hybridize(**STATIC), micro_batches=held_back)
    assert_equal(numbers(ours, STATIC), numbers(expected, STATIC))
