import pytest
from children import child, needs_mxnet_alone

from mxdp import plugin
from mxdp.backend import mx, npx
from mxdp.plans.collective.algorithms import ALGORITHMS

ALL = [f"mxdp{name}" for name in (*ALGORITHMS, "auto")]
CLASSIC_TRAINING = """
for make, options in ((mx.gluon.Trainer, {"kvstore": "mxdpring"}), (mxdp.Trainer, {})):
    net = mx.gluon.nn.Dense(2)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    trainer = make(net.collect_params(), "sgd", **options)
    with mx.autograd.record():
        losses = [net(mx.nd.ones((2, 3), ctx=device)).sum() for device in (mx.cpu(0), mx.cpu(1))]
    mx.autograd.backward(losses)
    trainer.step(2)
    for param in net.collect_params().values():
        first, second = param.list_data()
        assert (first.asnumpy() == second.asnumpy()).all()
        assert {type(x) for x in (first, second, *param.list_grad())} == {mx.nd.NDArray}
"""
CLASSIC = "assert not mx.util.is_np_array() and not mx.util.is_np_shape()\n"
NUMPY = "assert mx.util.is_np_array() and mx.util.is_np_shape()\n"


def run(code):
    """Run it in a process of its own, in which nothing has been imported; what it said on stderr."""
    done = child(code)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "imports",
    [
        "import wrapt; wrapt.register_post_import_hook(id, 'mxnet'); import mxdp, mxnet as mx",
        pytest.param("import mxnet as mx, mxdp", marks=needs_mxnet_alone),
    ],
)
def test_the_names_are_there_whatever_was_imported_first_and_a_classic_program_stays_classic(imports):
    printed = run(
        f"{imports}\n"
        "import importlib, sys\n"
        "assert 'mxdp.backend' not in sys.modules and 'mxdp.gluon' not in sys.modules\n"
        f"for name in {ALL}:\n"
        "    kv = mx.kv.create(name)\n"
        "    assert kv.type == name and type(kv).__name__ == 'Store', kv\n"
        "assert isinstance(kv, mx.kv.KVStoreBase)\n"
        "assert mx.kv.create('device').type == 'device' and mx.kv.create('teststore').type == 'teststore'\n"
        f"{CLASSIC}"
        "x = mx.nd.ones((2,))\n"
        "assert type(x * x) is mx.nd.NDArray\n"
        "importlib.reload(mxdp)\n"
        "assert mx.kv.create('MXDPring').type == 'mxdpring'"
    )
    assert "overriding" not in printed
    # Only where MXNet was first, its settings came too late: one warning, at the import's line.
    late = int(imports.endswith("mxdp"))
    assert printed.count("<string>:1: MxdpWarning: MXNet was imported before") == printed.count("MxdpWarning") == late


KEPT = """
mxdp.Trainer
mxdp.Checkpoint
from mxdp.gluon import Store
mxdp.world()
mxdp.world().devices(2)
mx.kv.create("mxdpring")
mxdp.allreduce([mx.np.ones(2, ctx=device) for device in (mx.cpu(0), mx.cpu(1))])
mxdp.get_params(mxdp.init_lenet(), mx.cpu(1))
mxdp.load("synthetic"), mxdp.Timer(), mxdp.Curves
"""
TURNED_ON = """
mxdp.devices(2)
mxdp.split_and_load(numpy.ones((2, 1), "float32"), [mx.cpu(0), mx.cpu(1)])
mxdp.split_batch(numpy.ones((2, 1), "float32"), numpy.ones(2, "float32"), [mx.cpu(0), mx.cpu(1)])
"""


@pytest.mark.parametrize("turn", [1, -1])
def test_functions_that_promise_numpy_semantics_turn_them_on_each_time_and_nothing_else_does(turn):
    """First and later uses, from the first or the last on, also in a thread, whose semantics are its own."""
    uses = [(use, CLASSIC) for use in KEPT.strip().splitlines()] + [
        (use, NUMPY) for use in TURNED_ON.strip().splitlines()
    ]
    code = "import mxdp, mxnet as mx, numpy, threading\n"
    for use, after in (uses * 2)[::turn]:
        code += f"{CLASSIC}{use}\n{after}mx.npx.reset_np()\n"
    code += "found = []\n"
    code += "def use(): mxdp.devices(2); found.append(mx.util.is_np_array())\n"
    code += "thread = threading.Thread(target=use); thread.start(); thread.join()\n"
    run(f"{code}assert found == [True], found")


def test_a_classic_network_is_trained():
    printed = run(f"import mxdp, mxnet as mx{CLASSIC_TRAINING}{CLASSIC}")
    assert "Warning" not in printed, printed


def test_mxnet_imported_in_a_thread_and_by_a_submodule():
    run(
        "import mxdp, threading, importlib.machinery\n"
        "thread = threading.Thread(target=importlib.import_module, args=['mxnet.gluon'])\n"
        "thread.start(); thread.join()\n"
        "import mxnet as mx\n"
        "assert mx.kv.create('mxdptree').type == 'mxdptree'\n"
        "assert isinstance(mx.__spec__.loader, importlib.machinery.SourceFileLoader), mx.__spec__"
    )


def test_without_mxnet_in_the_program_numpy_semantics_are_on_as_ever():
    run(f"from mxdp import Trainer\nfrom mxdp.backend import mx\n{NUMPY}")


@pytest.mark.parametrize(("shape", "array"), [(True, True), (True, False), (False, False)])
def test_semantics_are_kept_after_an_error_too(shape, array):
    @plugin.semantics_kept()
    def switch():
        mx.util.set_np(shape=True, array=not array)
        raise ZeroDivisionError

    try:
        mx.util.set_np(shape=shape, array=array)
        with pytest.raises(ZeroDivisionError):
            switch()
        assert (mx.util.is_np_shape(), mx.util.is_np_array()) == (shape, array)
    finally:
        npx.set_np()
