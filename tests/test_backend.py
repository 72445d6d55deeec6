"""mxdp.backend: what importing it does, in processes of their own; and which devices it gives."""

import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import wrapt
from children import child, distribution, printed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp import backend, cuda, process
from mxdp.errors import BackendError

V100, H100 = cuda.Gpu(0, "Tesla V100", (7, 0)), cuda.Gpu(1, "NVIDIA H100", (9, 0))


# What importing does


def test_mxnet_is_imported_after_the_variables_are_set_and_the_installed_distributions_are_listed_once():
    """To list them reads a file of each, which takes as long as a tenth of MXNet's import."""
    code = """
import os, sys
from importlib import metadata
from unittest import mock
from mxdp.backend import mx, np
print("mxnet" in sys.modules, os.environ["MXNET_CPU_TEMP_COPY"], os.environ["OMP_NUM_THREADS"])
with mock.patch.object(metadata, "distributions", wraps=metadata.distributions) as listed:
    mx.nd, np.ones, mx.nd
print(listed.call_count)
"""
    assert printed(code) == "False 128 1\n1\n"


OVERLAP = """
from mxdp.backend import devices, np, npx
from mxdp.tracing import record
two = devices(2, "cpu")
matrices = [np.ones((1000, 1000), ctx=device) for device in two]
for matrix in matrices:
    np.dot(matrix, matrix)
npx.waitall()
with record(two) as recording:
    for matrix in matrices:
        for _ in range(4):
            np.dot(matrix, matrix)
products = [event for event in recording.timeline.events if "dot" in event.name]
first, second = [[event for event in products if event.device == str(device)] for device in two]
assert len(first) == len(second) == 4, products
print(min(event.start for event in second) < min(event.end for event in first))
"""
"""Did the second device begin before the first had done the first product of its queue?"""


def test_two_cpu_devices_multiply_at_the_same_time_and_end():
    """np.dot on both, which hangs with two OpenMP threads. A busy machine may start one late, so it has three tries."""
    assert "True\n" in (printed(OVERLAP) for _ in range(3)), "cpu(1) never began before cpu(0) had done a product"


def test_with_mxnets_own_temporary_space_the_second_device_waits():
    """Four copies: the first product on cpu(1) takes the one of the first on cpu(0), so it has to wait for its end."""
    done = child(OVERLAP, MXNET_CPU_TEMP_COPY="4")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert "MxdpWarning: CPU devices wait for each other, since they share 4 copies" in done.stderr


# Installations that can't work: ``-S`` leaves out the installed packages, and ``path`` brings what there is instead.


@pytest.mark.parametrize(
    ("wheels", "words"),
    [
        ([], "MXNet is not installed"),
        (["mxnet", "mxnet_cu112"], "mxnet and mxnet-cu112 are both installed"),
        (["mxnet"], "NumPy is not installed, and MXNet needs it: `pip install numpy`."),
    ],
)
def test_an_installation_without_mxnet_with_both_wheels_or_without_numpy(tmp_path, wheels, words):
    (tmp_path / "wrapt").symlink_to(Path(wrapt.__file__).parent)  # which `import mxdp` itself needs
    for wheel in wheels:
        distribution(tmp_path, wheel, "1.9.1")
    done = child("import mxdp; mxdp.devices(1)", "-S", path=[tmp_path])
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(f"mxdp.errors.BackendError: {words}")


@given(wheel=st.sampled_from(["mxnet", "mxnet-cu112"]), driver=st.booleans(), lost=st.booleans(), gone=st.booleans())
def test_an_mxnet_that_can_not_be_loaded(wheel, driver, lost, gone):
    """The driver is said first, whichever library the loader stumbled over."""
    error = ImportError("gone") if gone else OSError("libz.so.1: cannot open shared object file")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "installed_backends", lambda: {wheel: "1.9.1"})
        patch.setattr(process, "prepare_process", lambda: SimpleNamespace(warnings=[]))
        patch.setattr(cuda, "preload", lambda: ["it needs libcublas"] * lost)
        patch.setattr(cuda, "driver_installed", lambda: driver)
        patch.setattr(backend, "importlib", SimpleNamespace(import_module=Mock(side_effect=error)))
        with pytest.raises(BackendError) as raised:
            backend._import_mxnet()
    said = cuda.import_problem(error)
    if gone:
        said = "MXNet can't be imported (gone): install it again."
    elif wheel == "mxnet-cu112" and not driver:
        said = cuda.NO_DRIVER
    elif wheel == "mxnet-cu112" and lost:
        said = "it needs libcublas"
    assert str(raised.value) == said


# Devices


@pytest.fixture
def machine(monkeypatch):
    """A function that makes this machine one with these GPUs; MXNet counts ``seen`` of them."""

    def make(*gpus, seen=None, build="CUDA", problem=None):
        def count():
            if isinstance(seen, Exception):
                raise seen
            return len(gpus) if seen is None else seen

        monkeypatch.setattr(backend.mx.context, "num_gpus", count)
        monkeypatch.setattr(cuda, "query_driver", lambda: cuda.Driver(problem, gpus))
        features = type("Features", (), {"is_enabled": lambda self, name: name == build})
        monkeypatch.setattr(backend.mx.runtime, "Features", features)

    return make


@given(
    codes=st.lists(st.booleans(), max_size=4),
    seen=st.none() | st.integers(0, 4),
    n=st.integers(1, 4),
    kind=st.sampled_from(["auto", "cpu", "gpu"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_gpus_with_code_that_mxnet_counts_where_n_are_there_and_never_a_mix(machine, codes, seen, n, kind):
    there = [cuda.Gpu(index, "", (7, 0) if code else (9, 0)) for index, code in enumerate(codes)]
    machine(*there, seen=backend.mx.MXNetError("CUDA: unknown error") if seen is None else seen)
    counted = seen or 0
    usable = [f"gpu({gpu.index})" for gpu in there[:counted] if gpu.usable]
    assert backend.num_gpus() == counted
    assert [str(device) for device in backend.usable_gpus()] == usable
    if kind == "gpu" and len(usable) < n:
        words = rf"{n} GPUs? w\w+ asked for, this machine has {len(codes)} and MXNet can use {len(usable)}: "
        with pytest.raises(BackendError, match=words):
            backend.devices(n, kind)
        return
    found = usable[:n] if kind != "cpu" and len(usable) >= n else [f"cpu({number})" for number in range(n)]
    assert [str(device) for device in backend.devices(n, kind)] == found


@pytest.mark.parametrize(
    ("setting", "cure"),
    [
        ({"build": "none"}, "CPU build; use kind='cpu'."),
        ({"there": [V100], "seen": 0, "build": "none"}, 'CPU build; `pip install ".[cu112]"`'),
        ({"there": [V100]}, "ask for fewer, or use kind='cpu'."),
        ({"there": [V100, H100]}, cuda.gpu_problem(H100)),
        ({"problem": cuda.NO_GPU}, cuda.NO_GPU),
        ({"there": [V100], "seen": 0}, "MXNet itself counts 0 (CUDA does not start): see `nvidia-smi`"),
        ({"there": [V100], "seen": backend.mx.MXNetError("T\n\nCUDA: bad\n")}, "counts 0 (CUDA: bad)"),
    ],
)
def test_gpus_that_are_not_there(machine, setting, cure):
    machine(*setting.get("there", []), **{name: value for name, value in setting.items() if name != "there"})
    with pytest.raises(BackendError, match=re.escape(cure)):
        backend.devices(2, "gpu")


SPOILT = {"MXNET_CPU_TEMP_COPY": "4", "OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize(
    ("n", "kind", "variables", "count"),
    [(1, "cpu", SPOILT, 0), (2, "cpu", SPOILT, 2), (2, "auto", SPOILT, 0), (2, "cpu", process.SETTINGS, 0)],
)
def test_two_cpu_devices_with_settings_that_spoil_them_are_warned_of(machine, monkeypatch, n, kind, variables, count):
    machine(V100, V100)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process, "_issued", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        backend.devices(n, kind)
        backend.devices(n, kind)
    assert [item.category for item in caught] == [process.MxdpWarning] * count
    assert all(item.filename == __file__ for item in caught)


# What a training takes

mx, np = backend.mx, backend.np
FAULTS = {  # what replaces a parameter, and the words of the refusal
    "another device": (lambda x: np.zeros(x.shape, ctx=mx.cpu(7)), "replica {} lies on "),
    "another shape": (
        lambda x: np.zeros((9, *x.shape), ctx=x.ctx),
        "replica .* has other shapes or dtypes than replica 0",
    ),
    "another dtype": (lambda x: x.astype("float64"), "replica .* has other shapes or dtypes than replica 0"),
    "of NumPy": (lambda x: x.asnumpy(), "replica {} must be a list of arrays"),
    "no gradient": (lambda x: x.copy(), "replica {} lacks a gradient"),
}
OTHERS = {
    "": "",
    "twice": "replica {} holds one array as two parameters",
    "none": "replica {} must be a list of arrays",
    "one too few": "replicas for .* there must be one for each",
}


@given(data=st.data(), n=st.integers(1, 4), fault=st.sampled_from([*OTHERS, *FAULTS]))
def test_replicas_that_can_not_be_trained_are_refused_and_others_are_not(data, n, fault):
    shapes = data.draw(st.lists(st.sampled_from([(1,), (2,), (2, 3)]), min_size=1, max_size=3))
    devices = [mx.cpu(number) for number in range(n)]
    replicas = [[np.zeros(shape, ctx=device) for shape in shapes] for device in devices]
    which, place = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, len(shapes) - 1))
    params = replicas[which]
    change, words = FAULTS.get(fault, (lambda x: x, OTHERS.get(fault)))
    params[place] = change(params[place])
    for each in (x for params in replicas for x in params if isinstance(x, np.ndarray)):
        if fault != "no gradient" or each is not params[place]:
            each.attach_grad()
    if fault == "twice":
        params.append(params[place])
    elif fault == "none":
        params.clear()
    elif fault == "one too few":
        replicas.pop()
    if not fault or (fault in ("another shape", "another dtype") and n == 1):
        assert backend.check_replicas(replicas, devices) == backend.check_replicas(replicas) == devices
        twice = [*devices, devices[which]]
        with pytest.raises(ValueError, match=f"different ones, .*not {re.escape(', '.join(map(str, twice)))}:"):
            backend.check_replicas(replicas, twice)
        return
    with pytest.raises((TypeError, ValueError), match=words.format(which)):
        backend.check_replicas(replicas, devices)
    if fault == "no gradient":  # nor is one needed to look at them
        assert backend.check_replicas(replicas) == devices


@given(numbers=st.lists(st.integers(0, 3), max_size=4), samples=st.integers(1, 5))
def test_a_batch_has_a_sample_for_each_of_several_different_devices(numbers, samples):
    devices = tuple(map(mx.cpu, numbers))
    different = numbers and len(set(numbers)) == len(numbers)
    if different and len(numbers) <= samples:
        assert backend.check_device_list(devices, samples) == list(devices)
        return
    with pytest.raises(ValueError, match=f"a batch of {samples} has too few" if different else "must be different"):
        backend.check_device_list(devices, samples)
