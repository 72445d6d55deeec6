import gc
from collections import OrderedDict
from contextlib import nullcontext
from unittest import mock

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import NAMES, backward, parameters

import mxdp
from mxdp.backend import autograd, gluon, mx, np, npx
from mxdp.gluon import Store, store

SHAPE = (4, 4)
POOL = 7
DEVICES = [mx.cpu(rank) for rank in range(4)]


def changes_of(draw):
    """What is done with a store: keys, and for each the numbers of arrays that are its values and its outs."""
    numbers = st.lists(st.integers(0, POOL - 1), min_size=1, max_size=4, unique=True)
    keys = st.sampled_from([1, "1", 2, "b", 7])
    some = st.tuples(keys, numbers, st.one_of(st.none(), numbers))
    lists = [st.lists(st.tuples(keys, numbers, outs), min_size=1, max_size=3) for outs in (st.none(), numbers)]
    return draw(st.lists(st.one_of(some.map(lambda one: [one]), *lists), min_size=1, max_size=6))


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
    for array in arrays:
        array.attach_grad()
    kept = OrderedDict()
    salt = 0
    with mock.patch.object(store, "MOST_KEYS", 3):
        for calls in changes_of(data.draw):
            salt += 1
            index = onp.arange(int(onp.prod(shape))).reshape(shape)
            host = [(index % 97 + 100 * number + (1 << 30) + salt).astype("int64") for number in range(POOL)]
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
            with autograd.record():  # nothing is recorded
                push(kv, calls, arrays)
            assert len(prepared) == expected
            for array, value in zip(arrays, host):
                onp.testing.assert_array_equal(array.asnumpy(), value)
        assert list(kv._ready) == list(kept)
        first, *numbers = data.draw(st.lists(st.integers(0, POOL - 1), min_size=2, max_size=5))
        with autograd.record():
            kv.broadcast(3, arrays[first], [arrays[number] for number in numbers])
        for number in numbers:
            onp.testing.assert_array_equal(arrays[number].asnumpy(), host[first])
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


def on_devices(host, n=2):
    return [np.array(host + rank, ctx=device) for rank, device in enumerate(DEVICES[:n])]


def test_the_same_arrays_by_other_objects_and_other_arrays_in_the_same_place():
    """``param.grad`` is a new object each time. Parts of one array are others; a new array may get a dead one's id."""
    kv, whole = Store("ring"), on_devices(onp.arange(10.0))
    for start in (0, 5, 5, 2):
        expected = sum(x[start : start + 3].asnumpy() for x in whole)
        kv.pushpull(0, [x[start : start + 3] for x in whole])
        for x in whole:
            onp.testing.assert_array_equal(x[start : start + 3].asnumpy(), expected)
    for number in range(100):
        arrays = on_devices(onp.full(3, number))
        kv.pushpull(0, arrays)
        assert [x.asnumpy().tolist() for x in arrays] == [[2 * number + 1] * 3] * 2
        del arrays
        gc.collect(0)
    assert len(kv._ready) == 1


def test_arrays_whose_memory_is_not_allocated_yet():
    kv, busy = Store("ring"), [np.ones((700, 700), ctx=device) for device in DEVICES[:2]]
    products = [[np.dot(x, x)[0, :4].copyto(x.ctx) for x in busy] for _ in range(3)]
    for arrays in products:
        kv.pushpull(0, [x[1:] for x in arrays])
    for x in [x for arrays in products for x in arrays]:
        assert x.asnumpy().tolist() == [700, 1400, 1400, 1400]


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
    assert [array.asnumpy().tolist() for array in x] == [[8.0] * 3] * 4


def test_what_it_is():
    kv = Store()
    assert (kv.type, kv.rank, kv.num_workers) == ("mxdpauto", 0, 1)
    assert Store("ring").is_capable("Optimizer") is False
    with pytest.raises(ValueError, match=r"'optimizer', not 'sparsity'$"):
        kv.is_capable("sparsity")
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        Store("rnig")


def test_what_is_not_supported_says_so_in_one_sentence():
    methods = {"init": 2, "push": 2, "pull": 2, "row_sparse_pull": 1, "set_optimizer": 1, "set_gradient_compression": 1}
    for method, arguments in {**methods, "save_optimizer_states": 1, "load_optimizer_states": 1}.items():
        with pytest.raises(NotImplementedError, match=r"^the store mxdpring [^.]*: (use|leave|save|load) [^.]*\.$"):
            getattr(Store("ring"), method)(*[0] * arguments)


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
    assert all((x.asnumpy() == 1).all() for x in dense)
    assert len(kv._ready) == 0


@pytest.mark.parametrize(("name", "options"), [("nadam", {}), ("lbsgd", {}), ("sgld", {}), ("lars", {"momentum": 0.5})])
def test_gluons_own_trainer_is_refused_an_optimiser_that_it_cannot_run_on_each_device(name, options):
    for n, make in ((1, gluon.Trainer), (2, mxdp.Trainer), (2, gluon.Trainer)):
        params = parameters(n)
        trainer = make(params, name, options, kvstore="mxdpdirect")
        backward(params)
        refused = pytest.raises(ValueError, match=r"on each device apart.*use mxdp.Trainer, or kvstore='device'")
        with refused if (n, make) == (2, gluon.Trainer) else nullcontext():
            trainer.step(1)
