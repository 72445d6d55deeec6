from __future__ import annotations

import gc

import numpy as onp
import pytest

import mxdp
from mxdp.backend import autograd, gluon, mx, np, npx
from mxdp.collectives import ALGORITHMS
from mxdp.gluon import Store, store

NAMES = [f"mxdp{name}" for name in sorted([*ALGORITHMS, "auto"])]
SHAPE = (4, 4)
DEVICES = [mx.cpu(rank) for rank in range(4)]


@pytest.fixture(params=["numpy", "classic"])
def array(request):
    """Makes arrays of either kind, with MXNet's semantics set to that kind."""
    if request.param == "numpy":
        yield lambda values, device: np.array(values, dtype=values.dtype, ctx=device)
        return
    npx.reset_np()
    yield lambda values, device: mx.nd.array(values, dtype=values.dtype, ctx=device)
    npx.set_np()


def values_of(ranks, shape=SHAPE, dtype="float32", salt=0):
    """Integers that depend on rank and index: their sums are exact, and no two are equal."""
    size = int(onp.prod(shape))
    return [(onp.arange(size).reshape(shape) % 97 + 100 * rank + salt).astype(dtype) for rank in range(ranks)]


def total(values):
    return sum(value.astype("float64") for value in values)


def assert_all(arrays, expected):
    for actual in arrays:
        onp.testing.assert_array_equal(actual.asnumpy().astype("float64"), expected)


@pytest.mark.parametrize("keys", [[5, 7, 11], ["b", "c", "d"]], ids=str)
def test_lists_of_keys(keys):
    """As MXNet's own tests ask of a custom store (tests/python/unittest/test_kvstore_custom.py in its 1.9.1)."""
    kv = Store("ring")
    outs = [[mx.nd.empty(SHAPE, device) for device in DEVICES] for _ in keys]
    kv.broadcast(keys, [mx.nd.ones(SHAPE)] * 3, outs)
    for arrays in outs:
        assert_all(arrays, 1)
    values = [[mx.nd.ones(SHAPE, device) * 2 for device in DEVICES]] * 3
    kv.pushpull(keys, values, out=outs)
    for arrays in outs:
        assert_all(arrays, 8)
    kv.pushpull(keys, values)
    for arrays in values:
        assert_all(arrays, 8)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_arrays_under_a_key_may_be_divided_otherwise_into_values_and_outs(name):
    kv = mx.kv.create(name)
    arrays = [mx.nd.empty(SHAPE, device) for device in DEVICES]
    for values in (2, 3, 1, 4, 2):
        for number, array in enumerate(arrays):
            array[:] = 10**number
        kv.pushpull("w", arrays[:values], out=arrays[values:] or None)
        summed = sum(10**number for number in range(values))
        assert_all(arrays[values:] or arrays, summed)
        for number, array in enumerate(arrays[:values] if values < 4 else ()):
            assert_all([array], 10**number)


def test_empty_arrays_and_scalars():
    for shape in ((0,), (2, 0), ()):
        arrays = [np.ones(shape, ctx=device) for device in DEVICES]
        outs = [np.zeros(shape, ctx=device) for device in DEVICES]
        kv = Store("direct")
        kv.pushpull(0, arrays, outs)
        kv.pushpull(0, arrays)
        kv.broadcast(0, arrays[0], outs)
        assert_all([*arrays, *outs], onp.full(shape, 4.0))


PLACES = [
    ([0], [0]),
    ([0, 1, 2], [0, 1, 2]),
    ([0, 1, 2, 3], None),
    ([0, 1, 2, 3], [0]),
    ([0, 1, 2, 3], [3]),
    ([0, 1, 2, 3], [4, 5, 6, 7]),
    ([0, 1, 2, 3], [0, 1, 2, 3, 4, 5]),
    ([0, 1, 2, 3], [3, 2, 1, 0]),
    ([0, 1, 2, 3], [1, 1, 1]),
    ([0, 1, 2, 3], [2, 6]),
    ([0, 1, 2], ["value 1", "value 0", 2]),
    ([0, 0], ["value 1", "value 0"]),  # to copy them into the outs first would overwrite values that are still needed
    ([0, 0, 0], None),
]
"""The devices of the values and of the outs, which may be among the values."""


@pytest.mark.parametrize(("of_values", "of_outs"), PLACES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_outs_may_be_anywhere(name, of_values, of_outs, array):
    host = values_of(len(of_values), dtype="int64", salt=1 << 30)  # neither int32 nor float32 can hold the sums
    values = [array(value, mx.cpu(place)) for value, place in zip(host, of_values)]
    outs = of_outs and [
        values[int(place[-1])] if isinstance(place, str) else array(host[0] * 0, mx.cpu(place)) for place in of_outs
    ]
    mx.kv.create(name).pushpull("key", values, outs)
    assert_all(outs or values, total(host))
    for actual, value in zip(values, host):
        if not any(actual is out for out in outs or values):
            assert_all([actual], value)


def test_single_arrays_need_no_list(array):
    kv = Store("ring")
    value, out = array(values_of(1)[0], mx.cpu(0)), array(values_of(1)[0] * 0, mx.cpu(1))
    kv.pushpull("key", value)
    kv.pushpull("key", value, out)
    assert_all([value, out], values_of(1)[0])


def test_broadcast_onto_all_devices_with_the_value_among_them(array):
    value = values_of(3)[2]
    arrays = [array(value if rank == 1 else value * 0, device) for rank, device in enumerate(DEVICES)]
    Store("tree").broadcast(0, arrays[1], arrays)
    assert_all(arrays, value)


def test_keys_are_kept_apart():
    kv = Store("direct")
    for key in (1, "1", (2, "2"), ["a", "b"]):
        values = [values_of(4, salt=salt) for salt in (3, 50)]
        arrays = [[np.array(x, ctx=device) for x, device in zip(value, DEVICES)] for value in values]
        if isinstance(key, (list, tuple)):
            kv.pushpull(key, arrays)
            assert_all(arrays[1], total(values[1]))
        else:
            kv.pushpull(key, arrays[0])
        assert_all(arrays[0], total(values[0]))
    assert list(kv._ready) == [1, "1", 2, "2", "a", "b"]


def test_the_same_arrays_are_prepared_once():
    kv = Store("tree")
    values = values_of(4)
    arrays = [np.array(value, ctx=device) for value, device in zip(values, DEVICES)]
    kv.pushpull(0, arrays)
    ready = kv._ready[0]
    kv.pushpull(0, list(arrays))
    assert kv._ready[0] is ready
    assert_all(arrays, total(values) * 4)
    for others in ((arrays, [array.copy() for array in arrays]), (arrays[:3],)):
        kv.pushpull(0, *others)
        assert kv._ready[0] is not ready


@pytest.mark.parametrize("out_of_place", [False, True])
def test_other_objects_for_the_same_arrays(out_of_place):
    """``param.grad`` is a new object each time."""
    kv = Store("ring")
    weights = [np.zeros((400, 400), ctx=device) for device in DEVICES[:2]]
    for w in weights:
        w.attach_grad()
    outs = [np.zeros((400, 400), ctx=device) for device in DEVICES[:2]]
    for step in range(1, 5):
        with autograd.record():
            losses = [(w * 0 + np.dot(w, w) + w * (step + rank)).sum() for rank, w in enumerate(weights)]
        autograd.backward(losses)
        grads = [w.grad for w in weights]
        kv.pushpull(0, grads, [out[:] for out in outs] if out_of_place else None)
        assert_all(outs if out_of_place else grads, onp.full((400, 400), 2 * step + 1))


def test_other_memory_is_never_taken_for_the_same():
    """Parts of one array, and arrays whose memory is not allocated yet."""
    kv = Store("ring")
    values = values_of(2, (10,))
    whole = [np.array(value, ctx=device) for value, device in zip(values, DEVICES)]
    for start in (0, 5, 2):
        before = [x[start : start + 3].asnumpy() for x in whole]
        kv.pushpull(0, [x[start : start + 3] for x in whole])
        assert_all([x[start : start + 3] for x in whole], total(before))
    kv.pushpull(0, [x[2:4] for x in whole])
    busy = [np.ones((700, 700), ctx=device) for device in DEVICES[:2]]
    products = [[np.dot(x, x)[0, :4].copyto(x.ctx) for x in busy] for _ in range(3)]
    for arrays in products:
        kv.pushpull(0, [x[1:] for x in arrays])
    for x in [x for arrays in products for x in arrays]:
        assert x.asnumpy().tolist() == [700, 1400, 1400, 1400]


def test_other_arrays_under_the_same_key():
    """A new array may get the id of a dead one; calls prepared for the old array must not be used for the new one."""
    kv = Store("ring")
    for salt in range(100):
        values = values_of(2, (3,), salt=salt)
        arrays = [np.array(value, ctx=device) for value, device in zip(values, DEVICES)]
        kv.pushpull(0, arrays)
        assert_all(arrays, total(values))
        del arrays
        gc.collect(0)
    assert len(kv._ready) == 1


def test_no_more_keys_are_kept_than_a_bound(monkeypatch):
    monkeypatch.setattr(store, "MOST_KEYS", 3)
    kv = Store("ring")
    values = values_of(2)
    arrays = {key: [np.array(value, ctx=device) for value, device in zip(values, DEVICES)] for key in range(5)}
    for key in (0, 1, 2, 0, 3, 4):
        kv.pushpull(key, arrays[key])
    assert list(kv._ready) == [0, 3, 4]
    assert_all(arrays[4], total(values))
    assert_all(arrays[0], total(values) * 2)


def test_inside_record():
    x = [np.zeros((3,), ctx=device) for device in DEVICES]
    for array in x:
        array.attach_grad()
    kv = Store("ring")
    with autograd.record():
        kv.broadcast(0, np.ones((3,)), x)
        losses = [(array * array).sum() for array in x]
        kv.pushpull(0, [np.ones((3,), ctx=device) for device in DEVICES])
    autograd.backward(losses)
    kv.pushpull(1, [array.grad for array in x], x)
    assert_all(x, onp.full(3, 8.0))


def test_what_it_is():
    kv = Store()
    assert (kv.type, kv.rank, kv.num_workers) == ("mxdpauto", 0, 1)
    assert [mx.kv.create(name).type for name in NAMES] == NAMES
    assert isinstance(kv, mx.kv.KVStoreBase)
    assert not any("dist" in name for name in NAMES)
    assert Store("ring").is_capable("Optimizer") is False
    with pytest.raises(ValueError, match=r"'optimizer', not 'sparsity'$"):
        kv.is_capable("sparsity")
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        Store("rnig")


@pytest.mark.parametrize(
    ("method", "arguments", "cure"),
    [
        ("set_optimizer", [mx.optimizer.create("sgd")], "update_on_kvstore"),
        ("save_optimizer_states", ["file"], "save_states"),
        ("load_optimizer_states", ["file"], "load_states"),
        ("set_gradient_compression", [{"type": "2bit", "threshold": 0.5}], "leave compression_params out"),
        ("init", [0, None], "broadcast"),
        ("push", [0, []], "pushpull"),
        ("pull", [0, []], "pushpull"),
        ("row_sparse_pull", [0], "'device' store"),
    ],
)
def test_what_is_not_supported_says_so_in_one_sentence(method, arguments, cure):
    with pytest.raises(NotImplementedError) as caught:
        getattr(Store("ring"), method)(*arguments)
    message = str(caught.value)
    assert message.startswith("the store mxdpring ")
    assert cure in message
    assert ". " not in message


def test_wrong_arrays_are_refused_in_one_sentence():
    kv = Store("ring")
    dense = [np.ones((2, 3), ctx=device) for device in DEVICES[:2]]
    sparse = mx.nd.ones((2, 3)).tostype("row_sparse")
    wrong = [
        (lambda: kv.pushpull(0, [sparse, sparse.copy()]), "row_sparse.*'device' store"),
        (lambda: kv.pushpull(0, dense, sparse), "row_sparse"),
        (lambda: kv.broadcast(0, sparse, [mx.nd.zeros((2, 3))]), "row_sparse"),
        (lambda: kv.pushpull(0, []), "at least one array"),
        (lambda: kv.pushpull(0, [onp.ones(2), onp.ones(2)]), "MXNet's arrays, or lists of them, not ndarray"),
        (lambda: kv.pushpull(0, [dense[0], np.ones((3, 2))]), r"\(2, 3\).*\(3, 2\)"),
        (lambda: kv.pushpull(0, dense, np.ones((2, 3), dtype="float64")), "float32.*float64"),
        (lambda: kv.broadcast(0, dense, dense), "one array to copy from for each key, not 2"),
        (lambda: kv.pushpull([0, 1], [dense]), "2 keys needs as many values and outs, not 1 and 2"),
        (lambda: kv.broadcast([0], [dense[0]], []), "1 keys needs as many values and outs, not 1 and 0"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()
    assert_all(dense, 1)
    assert len(kv._ready) == 0


@pytest.mark.parametrize("name", ["nadam", "lbsgd", "sgld"])
def test_gluons_own_trainer_is_refused_an_optimiser_that_it_cannot_run_on_each_device(name):
    for n, make in ((1, gluon.Trainer), (2, mxdp.Trainer), (2, gluon.Trainer)):
        x = gluon.Parameter("x", shape=(3,))
        x.initialize(ctx=[mx.cpu(device) for device in range(n)])
        trainer = make([x], name, kvstore="mxdpring")
        for data in x.list_data():
            with autograd.record():
                loss = data.sum()
            loss.backward()
        if (n, make) == (2, gluon.Trainer):
            with pytest.raises(ValueError, match=r"on each device apart.*use mxdp.Trainer, or kvstore='device'"):
                trainer.step(1)
        else:
            trainer.step(1)


def test_keys_that_are_known_are_summed_as_the_new_choice_says():
    kv, arrays = Store("auto"), [np.ones((1 << 18,), ctx=mx.cpu(device)) for device in range(4)]
    made = []
    for cores, maker in ((1, "AuthenticAMD"), (4, "AuthenticAMD")):
        kv.choose_for(cores, maker)
        kv.pushpull("key", arrays)
        made.append(len(kv._ready["key"][-1]))
    assert made[0] != made[1], "naive with one core, else shared-memory"
    assert [float(x[0]) for x in arrays] == [16.0] * 4
