"""mxdp.compat: MXNet gets the NumPy that it was written for, and nobody else notices."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from children import printed

from mxdp import compat
from mxdp.backend import gluon, mx, np, npx

UNTOUCHED = """
import sys
import numpy, scipy.sparse  # which MXNet imports if it is there, and which brings in more of NumPy
import numpy.testing, numpy.fft, numpy.linalg, numpy.random
names, options, scalar = dict(vars(numpy)), numpy.get_printoptions(), repr(numpy.float32(0.5))
import mxdp
from mxnet import np
np.ones(3).sum().item()
assert vars(numpy) == names and numpy.get_printoptions() == options and repr(numpy.float32(0.5)) == scalar
assert sys.modules["numpy"] is numpy and "distutils.version" not in sys.modules
"""


def test_the_users_numpy_stays_as_it_is():
    assert printed(UNTOUCHED) == ""


def test_mxnet_loads_no_scikit_learn_and_loads_scipy_and_requests_when_it_uses_them():
    pytest.importorskip("scipy")
    code = """
import sys, mxdp.backend, numpy
from mxnet.contrib import quantization
print([name for name in ("sklearn", "pandas", "scipy", "requests") if name in sys.modules])
print(quantization.stats.entropy([1, 1]) == numpy.log(2), "scipy.stats" in sys.modules)
print(quantization.__builtins__["__import__"]("scipy.stats", fromlist=("entropy",)).entropy([1]))
print(mxdp.backend.gluon.utils.requests.get.__name__, "requests" in sys.modules)
import sklearn.base  # others get it
"""
    assert printed(code) == "[]\nTrue True\n0.0\nget True\n"


def test_only_mxnets_modules_get_the_other_numpy():
    theirs = mx.numpy.multiarray._np
    assert theirs is compat.numpy_for_mxnet()
    assert theirs is not numpy
    assert theirs.ndarray is numpy.ndarray
    assert mx.test_utils.npt is theirs.testing is numpy.testing
    assert not hasattr(theirs, "no_such_name")


@pytest.mark.parametrize("name", compat.FINANCIAL)
def test_a_function_that_mxnet_only_lists_says_where_it_is_when_it_is_called(name):
    with pytest.raises(NotImplementedError) as raised:
        getattr(compat.numpy_for_mxnet(), name)(0.1, 2)
    assert str(raised.value) == (
        f"{name} is not in NumPy since 1.20, and MXNet only passes it on: use numpy_financial.{name}."
    )


def test_the_removed_names_mean_what_they_meant():
    old = compat.numpy_for_mxnet()
    numbers = numpy.array([[3.0, 1.0], [2.0, 4.0]])
    assert (old.bool, old.Inf, old.PINF, old.NINF, old.PZERO) == (bool, numpy.inf, numpy.inf, -numpy.inf, 0)
    assert str(old.NZERO) == "-0.0"
    assert old.isnan(old.NaN)
    assert old.isnan(old.NAN)
    assert (old.alltrue(numbers > 1), old.sometrue(numbers > 3), old.product(numbers)) == (False, True, 24)
    assert old.round_(2.6) == 3
    assert old.in1d(numbers, [1, 4]).tolist() == [False, True, False, True]
    assert old.msort(numbers).tolist() == [[2, 1], [3, 4]]
    assert old.trapz([1, 2, 3]) == 4
    assert isinstance("text", old.compat.basestring)


def test_numpys_scalars_are_taken_where_numbers_are():
    x = np.arange(6).reshape(numpy.int64(2), numpy.int32(3))
    assert [part.shape for part in np.split(x, [numpy.int64(1)], axis=1)] == [(2, 1), (2, 2)]
    assert mx.sym.var("x", shape=(numpy.int64(2), 3)).attr("__shape__") == "(2, 3)"
    pooled = npx.pooling(np.ones((1, 1, 4, 4)), kernel=(numpy.int64(2), 2), stride=(numpy.int32(2), 2))
    assert pooled.shape == (1, 1, 2, 2)
    net = gluon.nn.Conv2D(numpy.int64(2), kernel_size=(numpy.int64(3), 3))
    net.initialize()
    net.hybridize()
    assert net(np.ones((1, 1, 4, 4))).shape == (1, 2, 2, 2)


OPERATORS = """
import sys, types
import mxdp.backend
from mxdp import compat

def waiting(function):
    return isinstance(function, types.FunctionType) and function.__code__ is compat._call.__code__

mx, dot = mxdp.backend.mx, mxdp.backend.mx.nd.dot
print(sum(waiting(each) for name, module in sys.modules.items() if "mxnet." in name for each in vars(module).values()))
assert waiting(dot)
assert dot(mx.nd.ones((1, 2)), mx.nd.ones((2, 1))).asscalar() == 2.0
print(waiting(dot), mx.nd.dot is dot, dot.__code__.co_varnames[:2], dot.__doc__[:11])
"""


def test_operators_are_compiled_by_their_first_call():
    before, after = printed(OPERATORS).splitlines()
    assert int(before) > 2000
    assert after == "False True ('lhs', 'rhs') Dot product"


def test_threads_may_call_a_function_first_together():
    local, names, start = {}, {}, threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            compat.compile_later(names, f"\ndef add(x, y={number}):\n    return x + y\n", None, local)
            sums = pool.map(lambda x, add=local["add"]: (start.wait(), add(x))[1], range(8))
            assert list(sums) == [x + number for x in range(8)]
