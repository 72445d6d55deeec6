"""A gluon training that is stopped and started again equals one that was never stopped, bit for bit."""

import tempfile

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxdp
from mxdp import process
from mxdp.backend import autograd, gluon, mx, np, npx
from mxdp.datasets.minibatches import minibatches
from mxdp.errors import MxdpError
from mxdp.gluon import Checkpoint, store

SMALL = mxdp.load("synthetic").take(60, 1)
OPTIMISERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "nadam": {"learning_rate": 0.01},
}
EPOCHS = 3


def network(units=10, tied=False):
    net = gluon.nn.HybridSequential()
    # In a scope of its own: "dense10" would be updated before "dense9", and Nadam's numbers depend on the order.
    with net.name_scope():
        net.add(gluon.nn.Conv2D(4, 5, strides=3), gluon.nn.BatchNorm())
        if tied:  # one layer under two names
            layer = gluon.nn.Dense(12, activation="tanh")
            net.add(gluon.nn.Dense(12), layer, layer)
        net.add(gluon.nn.Dense(units))
    return net


def run(folder=None, stop=EPOCHS, n=2, optimiser="sgd", kind=mxdp.Trainer, seed=0, units=10, known=False, **more):
    """The parameters of each device after ``stop`` epochs, and the lines of the checkpoints."""
    lines, devices = [], [mx.cpu(i) for i in range(n)]
    mx.random.seed(seed)
    facts = {"seed": more.pop("training", 0)}
    net = network(units, more.pop("tied", False))
    net.initialize(ctx=devices, init=mx.init.Xavier())
    for device in devices if known else ():
        net(np.zeros((1, 1, 28, 28), ctx=device))
    options = dict(OPTIMISERS[optimiser], lr_scheduler=mx.lr_scheduler.FactorScheduler(step=3, factor=0.7))
    trainer = kind(net.collect_params(), optimiser, options, **more)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    make = np.array if mx.util.is_np_array() else mx.nd.array
    kept = folder and Checkpoint(folder, training=facts, report=lines.append)
    facts.clear()  # it is the caller's
    at = (kept and kept.load(net, trainer)) or {"epoch": 0}
    for epoch in range(at["epoch"], stop):
        for X, y in minibatches(SMALL.train, 16, seed=0, epoch=epoch):
            shards = [
                (make(X[i::n], ctx=device), make(y[i::n].astype("float32"), ctx=device))
                for i, device in enumerate(devices)
            ]
            with autograd.record():
                losses = [loss(net(a), b) for a, b in shards]
            autograd.backward(losses)
            trainer.step(len(X))
        if kept:
            kept.save(net, trainer, epoch=epoch + 1)
    if kept:
        kept.wait()
    params = net._collect_params_with_prefix().items()
    return {f"{name} {i}": x.asnumpy() for name, param in params for i, x in enumerate(param.list_data())}, lines


@pytest.mark.parametrize(
    ("before", "now", "units", "kind"),
    [
        ((1, "AuthenticAMD"), (4, "AuthenticAMD"), 1000, mxdp.Trainer),
        ((2, "AuthenticAMD"), (2, "GenuineIntel"), 500, mxdp.Trainer),
        ((2, "AuthenticAMD"), (2, "GenuineIntel"), 500, gluon.Trainer),
    ],
)
def test_the_choice_of_an_all_reduce_is_the_checkpoints_on_another_processor_too(
    before, now, units, kind, tmp_path, monkeypatch
):
    """On four devices, "auto" is "naive" with one core or, at 0.5 MiB, on an AMD, else "shared-memory"."""
    # With values known before, there are buckets when the checkpoint is loaded.
    options = dict(n=4, units=units, kind=kind, known=before[0] == 2, kvstore="mxdpauto")

    def on(cores, made_by):
        monkeypatch.setattr(process, "cores", lambda: cores)
        monkeypatch.setattr(store, "maker", lambda: made_by)

    on(*before)
    undisturbed, _ = run(stop=2, **options)
    run(tmp_path, 1, **options)
    on(*now)
    assert differ(run(stop=2, **options)[0], undisturbed), "else this test shows nothing"
    continued, _ = run(tmp_path, 2, **options)
    assert differ(continued, undisturbed) == []


def differ(actual, expected):
    return [name for name in expected if actual[name].tobytes() != expected[name].tobytes()]


GLUON = [dict(kvstore="device"), dict(kvstore="device", update_on_kvstore=True), dict(kvstore="mxdpring")]
KINDS = [{}, {"shard_optimizer": True}, *[dict(kind=gluon.Trainer, **store) for store in GLUON]]


@settings(max_examples=8)
@given(
    optimiser=st.sampled_from([*OPTIMISERS]),
    n=st.integers(1, 3),
    stop=st.integers(1, EPOCHS - 1),
    tied=st.booleans(),
    kind=st.sampled_from(KINDS),
    classic=st.booleans(),
)
def test_a_stopped_training_continues_bit_for_bit(optimiser, n, stop, tied, kind, classic):
    if n == 1 and "update_on_kvstore" in kind:  # MXNet makes no store for one device
        kind = KINDS[2]
    if optimiser == "nadam" and kind:  # it can't be cut, nor run on each device apart
        kind = {}
    (npx.reset_np if classic else npx.set_np)()
    options = dict(n=n, optimiser=optimiser, tied=tied, **kind)
    try:
        with tempfile.TemporaryDirectory() as folder:
            undisturbed, _ = run(**options)
            run(folder, stop, **options)
            resumed, lines = run(folder, seed=9, **options)
        assert differ(resumed, undisturbed) == []
        assert lines == [f"continuing from {folder}/checkpoint-{stop:06}.npz"]
    finally:
        npx.set_np()


def test_other_replicas_continue_and_are_told_what_differs(tmp_path):
    """All devices start with the first one's running means, not some with those of before."""
    two, _ = run(tmp_path, 2, n=2)
    three, lines = run(tmp_path, 2, n=3)
    assert lines[1].startswith("the checkpoint is of 1 process of 2 devices and this run of 1 process of 3 devices: ")
    for name in ("1.running_mean", "1.running_var"):
        assert differ({name: two[f"{name} 1"]}, {name: two[f"{name} 0"]}), "else this test shows nothing"
        for number in range(3):
            assert differ({name: three[f"{name} {number}"]}, {name: two[f"{name} 0"]}) == []
    assert all(onp.isfinite(x).all() for x in run(tmp_path, n=3)[0].values())


@pytest.mark.parametrize("call", ["load", "save"])
def test_another_training_is_refused_and_loses_nothing(call, tmp_path, monkeypatch):
    """Also where it begins without a look at what is there."""
    run(tmp_path, 3)
    before = sorted(tmp_path.iterdir())
    if call == "save":
        monkeypatch.setattr(Checkpoint, "load", lambda *arguments: None)
    for other, named in [
        ({"optimiser": "adam"}, "optimizer is SGD there and Adam here"),
        ({"units": 9}, r"(parameters/)?2\.weight is float32 \(10, 256\) there and .*2\.bias is "),
        ({"training": 1}, "seed is 0 there and 1 here"),
    ]:
        with pytest.raises(MxdpError, match=f"holds another training: {named}"):
            run(tmp_path, 3, **other)
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", [mxdp.Trainer, gluon.Trainer])
def test_states_that_can_not_be_saved_or_loaded_are_a_sentence(kind, tmp_path, monkeypatch):
    net, _ = ready()
    options = {"lr_scheduler": type("Local", (mx.lr_scheduler.FactorScheduler,), {})(step=3)}
    with pytest.raises(MxdpError, match="of classes that stand at the top of a module"):
        Checkpoint(tmp_path).save(net, kind(net.collect_params(), "sgd", options))
    monkeypatch.setattr("mxdp.gluon.checkpoint._states", lambda trainer, names, rank: b"I1x")
    kept, trainer = Checkpoint(tmp_path), kind(net.collect_params(), "sgd")
    kept.save(net, trainer)
    kept.wait()
    with pytest.raises(MxdpError, match=f"optimiser's state in {tmp_path} can't be taken: these are no states"):
        kept.load(net, trainer)


def ready(optimiser="sgd", dtype="float32", **options):
    """A net on two devices with values, and its trainer after one step."""
    net = gluon.nn.Dense(3, in_units=2, dtype=dtype)
    net.initialize("ones", ctx=[mx.cpu(0), mx.cpu(1)])
    trainer = mxdp.Trainer(net.collect_params(), optimiser, options)
    make = np.array if mx.util.is_np_array() else mx.nd.array
    for param in net.collect_params().values():
        param.set_data(make(onp.random.rand(*param.shape), dtype=dtype))
        for data in param.list_data():
            with autograd.record():
                loss = (data * data).sum()
            loss.backward()
    trainer.step(2)
    return net, trainer


def test_settings_that_a_checkpoint_changes_are_named(tmp_path):
    net, trainer = ready(learning_rate=0.1, momentum=0.9)
    kept = Checkpoint(tmp_path, report=lambda line: None)
    kept.save(net, trainer)
    kept.wait()

    scheduler = mx.lr_scheduler.FactorScheduler(step=3, factor=0.7)
    for other, named in [
        ({}, None),
        ({"learning_rate": 0.01}, "learning_rate is 0.1 (the Trainer had 0.01)"),
        ({"momentum": 0.0}, "momentum is 0.9 (the Trainer had 0.0)"),
        ({"clip_gradient": 2.0}, "clip_gradient is None (the Trainer had 2.0)"),
        ({"lr_scheduler": scheduler}, "lr_scheduler is NoneType (the Trainer had FactorScheduler)"),
    ]:
        lines = []
        net, trainer = ready(**{"learning_rate": 0.1, "momentum": 0.9, **other})
        assert Checkpoint(tmp_path, report=lines.append).load(net, trainer) == {}
        assert (trainer.learning_rate, trainer.optimizer.momentum) == (0.1, 0.9)
        trainer.set_learning_rate(0.01)
        assert trainer.learning_rate == 0.01, "as the line says"
        assert len(lines) == 1 + (named is not None)
        assert not named or named in lines[1]


def numbers(net):
    params = net._collect_params_with_prefix()
    return {name: [(x.dtype, x.asnumpy().tobytes()) for x in param.list_data()] for name, param in params.items()}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_without_a_trainer_it_only_reads_every_bit(dtype, semantics, tmp_path, monkeypatch):
    """No lock, no pickle, of whatever training."""
    net, trainer = ready(dtype=dtype, learning_rate=1 / 3, multi_precision=True)
    writer = Checkpoint(tmp_path, training={"seed": 0})
    writer.save(net, trainer, epoch=3)
    writer.wait()
    monkeypatch.setattr(Checkpoint, "_take", lambda self: "another training writes")
    monkeypatch.setattr(gluon.Trainer, "load_states", None)
    reader, (again, other) = Checkpoint(tmp_path), ready(dtype=dtype)
    with pytest.raises(MxdpError, match="another training writes"):
        reader.load(again, other)
    with pytest.raises(MxdpError, match="another training writes"):
        reader.save(again, other)
    assert reader.load(again) == {"epoch": 3}
    assert numbers(again) == numbers(net)
