"""mxdp.cuda, without a GPU: stand-ins for the loader and the driver."""

import configparser
import ctypes
import os
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp import cuda

ROOT = Path(__file__).resolve().parents[1]
NAMES = list(cuda.LIBRARIES)
GONE = ": cannot open shared object file: No such file or directory"


def fake_cuda(gpus, version=11040, **fails):
    """Stands in for libcuda: writes through byref as the driver does. ``fails``: functions that return this status."""

    def write(out, value):
        out.value = value
        return 0

    functions = dict(
        cuInit=lambda flags: 0,
        cuDriverGetVersion=lambda out: write(out._obj, version),
        cuDeviceGetCount=lambda out: write(out._obj, len(gpus)),
        cuDeviceGet=lambda out, index: write(out._obj, index + 100),
        cuDeviceGetName=lambda buffer, length, handle: write(buffer, gpus[handle.value - 100][0].encode()),
        cuDeviceGetAttribute=lambda out, what, handle: write(out._obj, gpus[handle.value - 100][1][what - 75]),
        cuGetErrorName=lambda status, out: write(out._obj, b"CUDA_ERROR_OUT_OF_LUCK"),
    )
    functions.update({name: lambda *_, status=status: status for name, status in fails.items()})
    return SimpleNamespace(**functions)


V100, A10, H100 = ("Tesla V100", (7, 0)), ("NVIDIA A10", (8, 6)), ("NVIDIA H100", (9, 0))


def test_the_packages_are_those_of_the_extra():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = re.findall(r"^nvidia-[\w-]+", setup["options.extras_require"]["cu112"], re.MULTILINE)
    assert {package.split("<")[0] for package in cuda.LIBRARIES.values()} == set(wanted)


def test_a_library_is_loaded_after_those_it_needs():
    assert NAMES.index("libcublasLt.so.11") < NAMES.index("libcublas.so.11") < NAMES.index("libcusolver.so.11")
    assert NAMES.index("libcublas.so.11") < NAMES.index("libcudnn.so.8")


PLACES = st.sampled_from(["package", "damaged", "system", "missing"])


@given(places=st.tuples(*[PLACES for _ in NAMES]))
def test_a_library_is_the_package_s_or_else_the_system_s_and_others_are_named(places):
    where, loaded = dict(zip(NAMES, places)), []

    def loader(path, mode):
        loaded.append(path)
        assert mode == ctypes.RTLD_GLOBAL
        if where[os.path.basename(path)] in ("damaged", "missing"):
            raise OSError("bad")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "lib")
        folder.mkdir()
        for library, place in where.items():
            if place in ("package", "damaged"):
                (folder / library).touch()
        said = cuda.preload([Path(name), folder], loader)
    paths = {library: str(folder / library) for library in NAMES if where[library] in ("package", "damaged")}
    assert loaded == [paths.get(library, library) for library in NAMES]
    missing = [library for library in NAMES if where[library] == "missing"]
    if missing:
        needs, cure = said.pop(0).split(", which ")
        assert needs == f"mxnet-cu112 needs {', '.join(missing)}"
        wanted = dict.fromkeys(cuda.LIBRARIES[library] for library in missing)
        assert re.findall('"(.*?)"', cure) == list(wanted)
    damaged = [library for library in NAMES if where[library] == "damaged"]
    assert [text.split(" (bad)")[0] for text in said] == [f"{paths[library]} can't be loaded" for library in damaged]
    assert all(cuda.LIBRARIES[library] in text for library, text in zip(damaged, said))


def test_the_packages_folders_are_found_in_every_place(tmp_path, monkeypatch):
    folders = [tmp_path / place / "lib" for place in ("user/nvidia/cudnn", "site/nvidia/cublas", "site/nvidia/nccl")]
    for folder in (*folders, tmp_path / "site/nvidia/other/no"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "user"), str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert cuda.package_folders() == folders


@given(
    compiled=st.sets(st.tuples(st.integers(3, 9), st.integers(0, 7)), min_size=1),
    capability=st.tuples(st.integers(1, 12), st.integers(0, 9)),
)
def test_code_runs_within_its_generation_from_its_minor_version_on_and_a_gpu_without_is_named(compiled, capability):
    gpu = cuda.Gpu(1, "Some GPU", capability)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "COMPILED", tuple(sorted(compiled)))
        usable, text = gpu.usable, cuda.gpu_problem(gpu)
    assert usable is any(major == capability[0] and minor <= capability[1] for major, minor in compiled)
    assert usable is (text is None)
    if not usable:
        number = ".".join(map(str, capability))
        assert text.startswith(f"gpu(1), Some GPU, has compute capability {number}, and mxnet-cu112")
        other = "an older" if capability > max(compiled) else "a newer"
        assert text.endswith(f"kind='cpu', or {other} GPU.")


FUNCTIONS = st.sampled_from(["cuInit", "cuDeviceGetCount", "cuDriverGetVersion"])


@given(
    gpus=st.lists(st.sampled_from([V100, A10, H100]), max_size=3),
    version=st.sampled_from([9020, 10020, 11000, 11040, 12000]),
    fails=st.dictionaries(FUNCTIONS, st.sampled_from([100, 999]), max_size=1),
)
def test_the_driver_names_its_gpus_or_its_problem(gpus, version, fails):
    driver = cuda.query_driver(lambda name: fake_cuda(gpus, version, **fails))
    if fails or not gpus:
        ((function, status),) = fails.items() or [("", 100)]
        failed = f"NVIDIA's driver fails ({function}: CUDA_ERROR_OUT_OF_LUCK 999): see `nvidia-smi`."
        assert driver == cuda.Driver(cuda.NO_GPU if status == 100 else failed)
        return
    assert driver.gpus == tuple(cuda.Gpu(index, *gpu) for index, gpu in enumerate(gpus))
    assert (driver.problem is None) == (version >= 11000)
    assert version >= 11000 or f"CUDA {version // 1000}.{version // 10 % 10}, and mxnet-cu112" in driver.problem


def test_without_a_driver():
    def loader(path):
        raise OSError(path)

    assert cuda.query_driver(loader) == cuda.Driver(cuda.NO_DRIVER)
    assert not cuda.driver_installed(loader)
    assert cuda.driver_installed(lambda path: path == "libcuda.so.1" or loader(path))


def test_problems_lists_libraries_driver_and_gpus():
    def loader(path, *mode):
        if path == "libnccl.so.2":
            raise OSError(path)
        return fake_cuda([V100, H100], version=10010)

    assert cuda.problems([], lambda path, *mode: fake_cuda([V100, A10])) == []
    names = [text.split(",")[0] for text in cuda.problems([], loader)]
    assert names == ["mxnet-cu112 needs libnccl.so.2", "NVIDIA's driver is for CUDA 10.1", "gpu(1)"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (f"libcuda.so.1{GONE}", cuda.NO_DRIVER),
        (f"libcublas.so.11{GONE}", 'libcublas.so.11, which is missing: `pip install "nvidia-cublas-cu11"`.'),
        (f"libgomp.so.1{GONE}", "`apt-get install libgomp1`"),
        (f"libodd.so.3.2{GONE}", "libodd.so.3.2, which is missing: install the package of your system"),
        (f"libarmpl_lp64_mp.so{GONE}", "tools/aarch64.sh"),
        ("file too short", "can't be loaded (file too short): install MXNet again."),
    ],
)
def test_what_an_import_error_means(message, text):
    assert text in cuda.import_problem(OSError(message))
