"""mxdp.compat: MXNet gets the NumPy that it was written for, and nobody else notices."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from children import needs_mxnet_alone, printed

from mxdp import compat
from mxdp.backend import autograd, gluon, mx, np, npx

UNTOUCHED = """
import json, types
import numpy, scipy.sparse  # which MXNet imports if it is there, and which brings in more of NumPy
import numpy.testing, numpy.fft, numpy.linalg, numpy.random
names, options, scalar = dict(vars(numpy)), numpy.get_printoptions(), repr(numpy.float32(0.5))
import mxdp
from mxnet import np
np.ones(3).sum().item()
changed = [name for name, value in vars(numpy).items() if names.get(name, None) is not value]
import sys
print(json.dumps({
    "changed": changed, "lost": sorted(set(names) - set(vars(numpy))),
    "options": numpy.get_printoptions() == options, "scalar": repr(numpy.float32(0.5)) == scalar,
    "itself": sys.modules["numpy"] is numpy, "distutils": "distutils.version" in sys.modules,
}))
"""


def test_the_users_numpy_stays_as_it_is():
    assert json.loads(printed(UNTOUCHED)) == {
        "changed": [], "lost": [], "options": True, "scalar": True, "itself": True, "distutils": False,
    }  # fmt: skip


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
    assert mx.test_utils.npt is numpy.testing


@pytest.mark.parametrize(
    "first",
    [
        "import wrapt; wrapt.register_post_import_hook(print, 'mxnet')",
        "",
        pytest.param("import mxnet", marks=needs_mxnet_alone),
    ],
)
def test_mxnet_can_be_imported_directly_and_gets_its_stores(first):
    code = f"{first}\nimport mxdp\nfrom mxnet import kv, np, npx\nprint(type(kv.create('mxdpring')).__name__)"
    assert printed(code).splitlines()[-1] == "Store"


SPAWNED = """
import multiprocessing
import mxdp
from mxnet import np
def double(number):
    return float((np.ones(1) * 2 * number).item())
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [3, 4]))
"""


def test_a_spawned_process_of_a_script_gets_it_too(tmp_path):
    (tmp_path / "script.py").write_text(SPAWNED)
    code = "import subprocess, sys; print(subprocess.check_output([sys.executable, 'script.py'], text=True), end='')"
    assert printed(code, folder=tmp_path) == "[6.0, 8.0]\n"


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
    removed = compat._removed(numpy)["in1d"]  # also where this NumPy has its own
    for unique in (False, True):
        assert removed(numbers, [1, 4], assume_unique=unique).tolist() == [False, True, False, True]
        assert removed(numbers, [1, 4], assume_unique=unique, invert=True).tolist() == [True, False, True, False]
    assert old.msort(numbers).tolist() == [[2, 1], [3, 4]]
    assert old.trapz([1, 2, 3]) == 4
    assert isinstance("text", old.compat.basestring)


def test_a_name_that_numpy_loads_when_it_is_asked_for():
    assert compat.numpy_for_mxnet().testing is numpy.testing
    assert not hasattr(compat.numpy_for_mxnet(), "no_such_name")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((numpy.int64(2), 3), "(2, 3)"),
        ([numpy.float32(0.1), [numpy.float16(2)]], "[0.1, [2.0]]"),
        ((numpy.bool_(True), numpy.str_("a"), None), "(True, 'a', None)"),
        (numpy.float32(0.1), "0.1"),
        ("np.int64(2)", "np.int64(2)"),
    ],
)
def test_an_attribute_is_written_in_plain_numbers(value, text):
    assert compat.attribute_text(value) == text


def test_numpys_scalars_are_taken_where_numbers_are():
    x = np.arange(6).reshape(numpy.int64(2), numpy.int32(3))
    assert [part.shape for part in np.split(x, [numpy.int64(1)], axis=1)] == [(2, 1), (2, 2)]
    assert mx.sym.var("x", shape=(numpy.int64(2), 3)).attr("__shape__") == "(2, 3)"
    pooled = npx.pooling(np.ones((1, 1, 4, 4)), kernel=(numpy.int64(2), 2), stride=(numpy.int32(2), 2))
    assert pooled.shape == (1, 1, 2, 2)
    net = gluon.nn.Conv2D(numpy.int64(2), kernel_size=(numpy.int64(3), 3))
    net.initialize()
    net.hybridize()
    with autograd.record():
        y = net(np.ones((1, 1, 4, 4)))
    y.backward()
    assert y.shape == (1, 2, 2, 2)


def test_versions_compare_as_numbers():
    assert compat._version("1.17") < compat._version("1.23.5") < compat._version("2.0.0rc1") < compat._version("10.1")


def test_installing_twice_adds_one_finder():
    before = list(sys.meta_path)
    compat.install()
    assert sys.meta_path == before


OPERATORS = """
import sys, types
import mxdp.backend
from mxdp import compat

def waiting(function):
    return function.__code__ is compat._call.__code__

mx, found = mxdp.backend.mx, {}
mx.nd  # which loads MXNet
for name, module in list(sys.modules.items()):
    if name.startswith(("mxnet.ndarray", "mxnet.symbol", "mxnet.contrib")):
        own = vars(module).values()
        found.update({id(each): each for each in own if isinstance(each, types.FunctionType)
                      and each.__globals__["__name__"] in compat.DEFINES_OPERATORS})
made = [each for each in found.values() if each.__kwdefaults__ and "_first" in each.__kwdefaults__]
before = sum(map(waiting, made))
for each in made:
    (text,) = [cell.cell_contents for cell in each.__kwdefaults__["_first"].__closure__
               if isinstance(cell.cell_contents, str) and "def " in cell.cell_contents]
    local = {}
    exec(text, each.__globals__, local)
    (own,) = local.values()
    assert own.__name__ == each.__name__ and own.__closure__ is None, each
    assert own.__code__.co_kwonlyargcount == 0, each
dot = mx.nd.dot
assert waiting(dot)
assert dot(mx.nd.ones((1, 2)), mx.nd.ones((2, 1))).asscalar() == 2.0
print(before == len(made) > 2000, waiting(dot), mx.nd.dot is dot, dot.__code__.co_varnames[:2], dot.__doc__[:11])
"""


def test_operators_are_compiled_by_their_first_call():
    assert printed(OPERATORS) == "True False True ('lhs', 'rhs') Dot product\n"


def test_threads_may_call_a_function_first_together():
    local, names, start = {}, {}, threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            compat.compile_later(names, f"\ndef add(x, y={number}):\n    return x + y\n", None, local)
            sums = pool.map(lambda x, add=local["add"]: (start.wait(), add(x))[1], range(8))
            assert list(sums) == [x + number for x in range(8)]
