"""What ``mxdp.Trainer`` refuses, in one sentence, before anything is trained; what its ranks
compare; and the states of its optimiser as bytes."""

from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import SGD, SHAPES, assert_equal, backward, devices, network, parameters, weights

from mxdp.backend import autograd, gluon, mx
from mxdp.errors import MxdpError
from mxdp.gluon import Trainer
from mxdp.gluon.record import of_parameters, of_update, unique_names
from mxdp.gluon.states import from_bytes, to_bytes
from mxdp.gluon.updater import Updater
from mxdp.processes import World


class TwoRanks(World):
    def __init__(self):
        super().__init__()
        self.size = 2


def twice(n):
    params = parameters(n, SHAPES[:2])
    return [*params, params[0]]


def on_one_device_twice():
    x = gluon.Parameter("x", shape=(3,))
    x.initialize(ctx=[mx.cpu(0), mx.cpu(0)])
    return [x]


SHARDED = dict(optimizer=("adam", {}), shard_optimizer=True)
REFUSED = [
    (dict(params=twice(1)), "the parameter p0 stands in the trainer's list twice"),
    (dict(params=[5]), "First argument must be a list or dict of Parameters"),
    (dict(params=on_one_device_twice()), r"devices must be different ones, .* not cpu\(0\), cpu\(0\)"),
    (dict(kvstore="mxdprnig"), "^no store is called 'mxdprnig'; did you mean 'mxdpring'\\? There are: "),
    (dict(kvstore="devcie"), "did you mean 'device'\\? There are: .*dist_sync, .*mxdpring, .*teststore"),
    (dict(kvstore=5), "a store's name, a store or None, not 5"),
    (dict(world="2"), r"world must be what mxdp.world\(\) returns, not '2'"),
    (dict(kvstore="device", world=TwoRanks()), "world is for mxdp's stores by name, .*kvstore='device'$"),
    (dict(compression_params={"type": "2bit"}), "compresses none.*'2bit'.*leave compression_params"),
    (dict(update_on_kvstore=True), "runs no optimiser.*leave update_on_kvstore out"),
    (dict(params=parameters(1), update_on_kvstore=True), "runs no optimiser.*leave update_on_kvstore out"),
    (dict(bucket_mb=0), "bucket_mb must be more than 0, not 0"),
    ({**SHARDED, "optimizer": ("sgd", {})}, "SGD as it is here has none"),
    ({**SHARDED, "optimizer": ("lamb", {})}, "LAMB may need them whole"),
    ({**SHARDED, "kvstore": "device"}, "needs one of mxdp's stores"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_a_trainer_cannot_take_is_refused_in_a_sentence(options, message):
    options = dict(options)
    params, optimizer = options.pop("params", None) or parameters(2), options.pop("optimizer", SGD)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        Trainer(params, *optimizer, **options)
    assert ". " not in str(caught.value).replace("? There", "")


def test_no_sync_needs_a_store_of_mxdp():
    for kvstore in ("device", "DEVICE", "local", "teststore", None):
        trainer = Trainer(parameters(2), *SGD, kvstore=kvstore)
        with pytest.raises(ValueError, match="no_sync needs one of mxdp's stores"), trainer.no_sync():
            pass


@pytest.mark.parametrize("semantics", ["classic"], indirect=True)
def test_sparse_gradients_are_mxnets_business_on_one_device_and_refused_on_two(semantics):
    (x,) = params = parameters(1, [(10,)], grad_stype="row_sparse")
    trainer = Trainer(params, "sgd", {"learning_rate": 1.0, "momentum": 0.5})
    with autograd.record():
        loss = x.data() + 1
    loss.backward()
    trainer.step(1)
    assert (x.data().asnumpy() == 0).all()
    with pytest.raises(ValueError, match="the parameter p0 is sparse"), trainer.no_sync():
        pass
    for stype in ("default", "row_sparse"):
        params = parameters(2, [(4, 1)], stype=stype, grad_stype="row_sparse")
        with pytest.raises(ValueError, match=r"the parameter p0 is sparse .* use kvstore='device'"):
            Trainer(params, *SGD)
        Trainer(params, *SGD, kvstore="device")


@pytest.mark.parametrize("kvstore", ["mxdpauto", "device"])
@pytest.mark.parametrize("batch_size", [0, -1, float("nan")])
def test_a_batch_without_samples_is_refused(kvstore, batch_size):
    params = parameters(2)
    trainer = Trainer(params, *SGD, kvstore=kvstore)
    before = weights(params)
    backward(params)
    for method in (trainer.step, trainer.update):
        with pytest.raises(ValueError, match=f"on all devices together, more than 0, not {batch_size}$"):
            method(batch_size)
        with pytest.raises(RuntimeError, match="call it after the block"), autograd.record():
            method(1)
    assert_equal(weights(params), before)


@pytest.mark.parametrize(("n", "where"), [(1, r"1 device \(cpu\(0\)\)"), (2, r"2 devices \(cpu\(0\), cpu\(1\)\)")])
@pytest.mark.parametrize("kvstore", ["mxdpauto", "device"])
def test_parameters_without_values_are_named_with_their_devices(n, where, kvstore):
    net = network()
    net.initialize(ctx=devices(n) if n > 1 else None)
    trainer = Trainer(net.collect_params(), *SGD, kvstore=kvstore)
    methods = [partial(trainer.step, 1), partial(trainer.update, 1), trainer.allreduce_grads]
    if kvstore != "device":
        methods.append(trainer.no_sync().__enter__)
    for method in methods:
        message = rf"^the parameter \w+ has no values yet, .* on {where}: run a forward pass"
        with pytest.raises(gluon.parameter.DeferredInitializationError, match=message):
            method()


@pytest.mark.parametrize("kvstore", ["local", "teststore", None])
def test_mxnets_own_stores_mean_mxnets_behaviour(kvstore):
    params, plain = parameters(2), parameters(2)
    grads = [param.list_grad() for param in params]
    trainer, other = Trainer(params, *SGD, kvstore=kvstore), gluon.Trainer(plain, *SGD, kvstore=kvstore)
    for step in range(2):
        for some, one in ((params, trainer), (plain, other)):
            backward(some, step)
            one.step(2)
    assert_equal(weights(params), weights(plain))
    assert all(param.list_grad() is grad for param, grad in zip(params, grads))
    assert type(trainer._kvstore) is type(other._kvstore)
    assert trainer._update_on_kvstore == other._update_on_kvstore


@pytest.mark.parametrize("shard", [False, True], ids=["plain", "shards"])
def test_a_step_on_parameters_that_lie_on_other_devices_is_refused(shard):
    params = parameters(2)
    trainer = Trainer(params, *SGD, shard_optimizer=shard)
    params[1].reset_ctx([mx.cpu(0), mx.cpu(2)])
    backward(params)
    with pytest.raises(ValueError, match=r"all parameters must lie on the same devices, not on .*cpu\(2\)"):
        trainer.step(4)


def test_the_halves_of_a_step_are_refused():
    params = parameters(2)
    trainer = Trainer(params, *SGD, shard_optimizer=True)
    backward(params)
    for half in (trainer.allreduce_grads, partial(trainer.update, 4)):
        with pytest.raises(RuntimeError, match="call step, or leave shard_optimizer out"):
            half()
    trainer._amp_loss_scaler = object()
    with pytest.raises(RuntimeError, match="amp"):
        trainer.step(4)


def record(change=lambda params, optimizer: None, kind=mx.optimizer.SGD, **options):
    params = parameters(1, [(3, 2), (4,)])
    schedule = mx.lr_scheduler.FactorScheduler(step=3, base_lr=0.5)
    optimizer = kind(**{"learning_rate": 0.5, "lr_scheduler": schedule, **options})
    optimizer._update_count([0, 1, 1])
    change(params, optimizer)
    return {**of_parameters(params), **of_update(optimizer, params)}


CHANGES = {
    "wd": dict(wd=0.5),
    "momentum": dict(momentum=0.5),
    "clip_gradient": dict(clip_gradient=1.0),
    "another optimiser": dict(kind=mx.optimizer.NAG),
    "no schedule": dict(lr_scheduler=None),
    "another schedule": dict(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=4, base_lr=0.5)),
    "a count": dict(change=lambda params, optimizer: optimizer._update_count([0])),
    "the factor of a rate": dict(change=lambda params, optimizer: setattr(params[1], "lr_mult", 2.0)),
    "the factor of a decay": dict(change=lambda params, optimizer: setattr(params[1], "wd_mult", 2.0)),
    "a dtype": dict(change=lambda params, optimizer: params[0].cast("float64")),
    "a grad_req": dict(change=lambda params, optimizer: setattr(params[0], "grad_req", "add")),
    "the current rate": dict(change=lambda params, optimizer: setattr(optimizer.lr_scheduler, "base_lr", 0.25)),
}


def test_any_change_is_another_record_and_the_batch_size_is_said_apart():
    same = record()
    assert record() == same
    assert record(rescale_grad=0.125) == same
    records = [record(**change) for change in CHANGES.values()]
    for number, (name, other) in enumerate(zip(CHANGES, records)):
        assert other not in [same, *records[:number]], name
    assert same["the parameters' counts of updates"] == [1, 2]
    assert same["p0"] == "float32 (3, 2), grad_req 'write'"
    assert "the parameters' lr_mult" not in same
    assert record(**CHANGES["the factor of a rate"])["the parameters' lr_mult"] == [1.0, 2.0]


def test_names_are_without_counts_or_else_numbers():
    """Of several layers the order counts."""
    for of_params, names in (
        (["dense12_weight", "dense12_bias", "dense9_bias"], ["dense1_weight", "dense1_bias", "dense0_bias"]),
        (["a", "b"], ["a", "b"]),
        (["x", "x"], ["parameter 0", "parameter 1"]),
    ):
        assert unique_names([SimpleNamespace(name=name) for name in of_params]) == names


@settings(max_examples=20)
@given(st.permutations(range(12)), st.sets(st.integers(0, 11)), st.booleans())
def test_each_state_and_count_goes_to_the_parameter_of_its_name(order, updated, named):
    """By MXNet's own files, without names, by its number."""
    params = parameters(1, [(number + 1,) for number in range(12)])
    names = [param.name for param in params]
    optimizer = mx.optimizer.Adam()
    its = Updater(optimizer)
    optimizer._set_current_context(0)
    for number in updated:
        optimizer._update_count([number] * (number + 1))
        its.states[number] = its.made_for(number, params[number].data())
    saved = to_bytes(its.states, optimizer, names) if named else mx_bytes(its)
    now = [params[number] for number in order] if named else params
    states, loaded = from_bytes(saved, mx.optimizer.SGD(), [param.name for param in now], now)
    assert type(loaded) is mx.optimizer.Adam
    assert {now[number].name for number in states} == {names[number] for number in updated}
    for number, state in states.items():
        assert [array.shape for array in state] == [now[number].shape] * 2
        assert loaded._all_index_update_counts[0][number] == now[number].shape[0]
    again, _ = from_bytes(to_bytes(states, loaded, [param.name for param in now]), loaded, names, params)
    assert set(again) == updated


def mx_bytes(updater):
    return mx.optimizer.Updater.get_states(updater, dump_optimizer=True)


@pytest.mark.parametrize("shard", [False, True], ids=["plain", "shards"])
def test_states_that_are_refused_change_nothing(shard, tmp_path):
    file = str(tmp_path / "states")

    def begun(shapes, *optimizer, **options):
        params = parameters(2, shapes)
        trainer = Trainer(params, *optimizer, **options)
        backward(params)
        trainer.step(4)
        return params, trainer

    begun([(3,)], "sgd", {"learning_rate": 1.0})[1].save_states(file)
    begun([(4,), (2,)], "adam")[1].save_states(f"{file}-other")
    begun([(4,)], "adam")[1].save_states(f"{file}-shape")
    (tmp_path / "states-damaged").write_bytes(b"damaged")
    gluons = gluon.Trainer(parameters(1, [(3,)] * 2), "adam")
    backward(gluons._params)
    gluons.step(4)
    gluons.save_states(f"{file}-gluon")
    params, trainer = begun([(3,)], "adam", shard_optimizer=shard)
    expected, other = begun([(3,)], "adam")
    for end, problem in {
        "-damaged": "these are no states of a trainer",
        "-other": "of another network, whose parameter p1 isn't here",
        "-shape": r"of another network: one of shape \(4,\) is for p0 of shape \(3,\)",
        "-gluon": "of another network: they are for 2 parameters, and this trainer has 1",
        **({"": "SGD as it is here has none"} if shard else {}),
    }.items():
        with pytest.raises(ValueError, match=problem):
            trainer.load_states(file + end)
    with pytest.raises(OSError, match="missing"):
        trainer.load_states(f"{file}-missing")
    backward(params, 1)
    trainer.step(4)
    backward(expected, 1)
    other.step(4)
    assert_equal(weights(params), weights(expected))
    trainer._optimizer.lr_scheduler = lambda count: 1.0
    with pytest.raises(MxdpError, match=r"the optimiser can't be saved \(.*lambda.*\): it and its learning rate"):
        trainer.save_states(f"{file}-unsaved")
    assert not (tmp_path / "states-unsaved").exists()
