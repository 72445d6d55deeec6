from __future__ import annotations

import gc
from collections import OrderedDict
from unittest import mock

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import NAMES

import mxdp
from mxdp.backend import autograd, gluon, mx, np, npx
from mxdp.gluon import Store, store

SHAPE = (4, 4)
POOL = 7
DEVICES = [mx.cpu(rank) for rank in range(4)]


def values_of(ranks, shape=SHAPE, dtype="float32", salt=0):
    """Integers that depend on rank and index: their sums are exact, and no two are equal."""
    size = int(onp.prod(shape))
    return [(onp.arange(size).reshape(shape) % 97 + 100 * rank + salt).astype(dtype) for rank in range(ranks)]


def total(values):
    return sum(value.astype("float64") for value in values)


def assert_all(arrays, expected):
    for actual in arrays:
        onp.testing.assert_array_equal(actual.asnumpy().astype("float64"), expected)


def changes_of(draw):
    """What is done with a store: keys, and for each the numbers of arrays that are its values and its outs."""
    numbers = st.lists(st.integers(0, POOL - 1), min_size=1, max_size=4, unique=True)
    some = st.tuples(st.sampled_from([1, "1", 2, "b", 7]), numbers, st.one_of(st.none(), numbers))
    lists = st.booleans().flatmap(
        lambda inside: st.lists(
            st.tuples(st.sampled_from([1, "1", 2, "b", 7]), numbers, st.none() if inside else numbers),
            min_size=1,
            max_size=3,
        )
    )
    return draw(st.lists(st.one_of(some.map(lambda one: [one]), lists), min_size=1, max_size=6))


@settings(max_examples=60)
@given(st.data(), st.sampled_from(NAMES), st.booleans(), st.sampled_from([SHAPE, (7,), (2, 0), ()]))
def test_a_store_sums_into_any_arrays_under_any_keys_and_prepares_each_once(data, name, classic, shape):
    """Values and outs lie on any devices, several on one, and may be the same. Neither int32 nor float32 can hold the
    sums. MXNet's own tests ask it of a custom store (tests/python/unittest/test_kvstore_custom.py in its 1.9.1)."""
    prepared = []

    class Counted(Store):
        def _prepare(self, values, outs):
            prepared.append(1)
            return super()._prepare(values, outs)

    classic = classic and len(shape) > 0 < min(shape)  # else MXNet takes it for unknown
    (npx.reset_np if classic else npx.set_np)()
    make = mx.nd.array if classic else np.array
    kv = Counted(name[len("mxdp") :])
    arrays = [make(onp.zeros(shape), dtype="int64", ctx=mx.cpu(number % 4)) for number in range(POOL)]
    kept = OrderedDict()
    salt = 0
    with mock.patch.object(store, "MOST_KEYS", 3):
        for calls in changes_of(data.draw):
            salt += 1
            host = values_of(POOL, shape, "int64", salt=(1 << 30) + salt)
            for array, value in zip(arrays, host):
                array[()] = make(value, dtype="int64", ctx=array.ctx)
            expected = 0
            done = []
            for key, values, outs in calls:
                again = outs is None and values in done
                done.append(values)
                if again:  # the same arrays under several keys are summed once
                    continue
                summed = sum(host[number] for number in values)
                for number in outs or values:
                    host[number] = summed
                expected += kept.get(key) != (values, outs)
                kept[key] = values, outs
                kept.move_to_end(key)
                if len(kept) > 3:
                    kept.popitem(last=False)
            prepared.clear()
            push(kv, calls, arrays)
            assert len(prepared) == expected
            for array, value in zip(arrays, host):
                onp.testing.assert_array_equal(array.asnumpy(), value)
        assert list(kv._ready) == list(kept)
        first, *numbers = data.draw(st.lists(st.integers(0, POOL - 1), min_size=2, max_size=5))
        kv.broadcast(3, arrays[first], [arrays[number] for number in numbers])
        assert_all([arrays[number] for number in numbers], host[first])
    npx.set_np()


def push(kv, calls, arrays):
    """A single call has no lists; of one array none at all."""
    keys, values, outs = zip(*calls)
    values = [[arrays[number] for number in some] for some in values]
    outs = [some and [arrays[number] for number in some] for some in outs]
    if len(calls) > 1:
        kv.pushpull(list(keys), values, out=None if None in outs else outs)
    else:
        kv.pushpull(keys[0], *[some[0] if some and len(some) == 1 else some for some in (values[0], outs[0])])


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


@pytest.mark.parametrize(("name", "options"), [("nadam", {}), ("lbsgd", {}), ("sgld", {}), ("lars", {"momentum": 0.5})])
def test_gluons_own_trainer_is_refused_an_optimiser_that_it_cannot_run_on_each_device(name, options):
    for n, make in ((1, gluon.Trainer), (2, mxdp.Trainer), (2, gluon.Trainer)):
        x = gluon.Parameter("x", shape=(3,))
        x.initialize(ctx=[mx.cpu(device) for device in range(n)])
        trainer = make([x], name, options, kvstore="mxdpring")
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
