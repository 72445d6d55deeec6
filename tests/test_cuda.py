"""mxdp.cuda, without a GPU: stand-ins for the driver, and libraries compiled here under CUDA's names."""

from __future__ import annotations

import configparser
import ctypes
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp import cuda

ROOT = Path(__file__).resolve().parents[1]
NAMES = list(cuda.LIBRARIES)


def loader_of(there=()):
    """Stands in for ctypes.CDLL: has only the libraries whose file name is in ``there``."""

    def load(path, mode=ctypes.DEFAULT_MODE):
        if os.path.basename(path) not in there:
            raise OSError(f"{path}: cannot open shared object file: No such file or directory")

    return Mock(side_effect=load)


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


def query(*arguments, **options):
    return cuda.query_driver(lambda name: fake_cuda(*arguments, **options))


V100, A10, H100 = ("Tesla V100", (7, 0)), ("NVIDIA A10", (8, 6)), ("NVIDIA H100", (9, 0))


def test_the_packages_are_those_of_the_extra():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = re.findall(r"^nvidia-[\w-]+", setup["options.extras_require"]["cu112"], re.MULTILINE)
    assert {package.split("<")[0] for package in cuda.LIBRARIES.values()} == set(wanted)


def test_a_library_is_loaded_after_those_it_needs():
    assert NAMES.index("libcublasLt.so.11") < NAMES.index("libcublas.so.11") < NAMES.index("libcusolver.so.11")
    assert NAMES.index("libcublas.so.11") < NAMES.index("libcudnn.so.8")


def test_preload_takes_the_packages_file_then_the_systems(tmp_path):
    folder = tmp_path / "cudnn" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudnn.so.8").touch()
    loader = loader_of(there=NAMES)
    assert cuda.preload([tmp_path, folder], loader) == []
    assert loader.call_args_list == [
        call(str(folder / name) if name == "libcudnn.so.8" else name, ctypes.RTLD_GLOBAL) for name in NAMES
    ]


def test_several_missing_libraries_are_one_sentence_and_each_package_once():
    loader = loader_of(there=[name for name in NAMES if "cublas" not in name and "nccl" not in name])
    assert cuda.preload([], loader) == [
        "mxnet-cu112 needs libcublasLt.so.11, libcublas.so.11, libnccl.so.2, which are missing:"
        ' `pip install "nvidia-cublas-cu11" "nvidia-nccl-cu11"`.'
    ]


def test_a_damaged_library_is_named(tmp_path):
    (tmp_path / "libcufft.so.10").write_text("not a library")
    others = loader_of(there=NAMES)

    def loader(path, mode):
        return ctypes.CDLL(path, mode) if path.startswith(str(tmp_path)) else others(path, mode)

    (text,) = cuda.preload([tmp_path], loader)
    assert text.startswith(f"{tmp_path / 'libcufft.so.10'} can't be loaded (")
    assert text.endswith(': `pip install --force-reinstall "nvidia-cufft-cu11"`.')


def test_the_packages_folders_are_found_in_every_place(tmp_path, monkeypatch):
    for place, package in (("user", "cudnn"), ("site", "nccl"), ("site", "cublas")):
        (tmp_path / place / "nvidia" / package / "lib").mkdir(parents=True)
    (tmp_path / "site" / "nvidia" / "other").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "user"), str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert [str(folder.relative_to(tmp_path)) for folder in cuda.package_folders()] == [
        "user/nvidia/cudnn/lib",
        "site/nvidia/cublas/lib",
        "site/nvidia/nccl/lib",
    ]


@given(
    compiled=st.sets(st.tuples(st.integers(3, 9), st.integers(0, 7)), min_size=1),
    capability=st.tuples(st.integers(1, 12), st.integers(0, 9)),
)
def test_code_runs_within_its_generation_from_its_minor_version_on_and_a_gpu_without_is_named(compiled, capability):
    gpu = cuda.Gpu(1, "Some GPU", capability)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "COMPILED", tuple(sorted(compiled)))
        usable, text = gpu.usable, cuda.gpu_problem(gpu) or ""
    assert usable is any(major == capability[0] and minor <= capability[1] for major, minor in compiled)
    assert usable is (not text)
    number = ".".join(map(str, capability))
    assert usable or text.startswith(f"gpu(1), Some GPU, has compute capability {number}, and mxnet-cu112")


@pytest.mark.parametrize(("other", "capability"), [("a newer", (3, 7)), ("an older", (9, 0))])
def test_what_to_do_about_a_gpu_without_code(other, capability):
    assert cuda.gpu_problem(cuda.Gpu(1, "", capability)).endswith(f"kind='cpu', or {other} GPU.")
    assert cuda.gpu_problem(cuda.Gpu(0, *A10)) is None


def test_the_drivers_gpus():
    gpus = (cuda.Gpu(0, *V100), cuda.Gpu(1, *A10), cuda.Gpu(2, *H100))
    assert query([V100, A10, H100]) == cuda.Driver(None, gpus)


def test_no_driver():
    assert cuda.query_driver(loader_of()) == cuda.Driver(cuda.NO_DRIVER)
    assert not cuda.driver_installed(loader_of())
    assert cuda.driver_installed(loader_of(there=["libcuda.so.1"]))


FAILS = "NVIDIA's driver fails ({}: CUDA_ERROR_OUT_OF_LUCK 999): see `nvidia-smi`."
FUNCTIONS = "cuInit", "cuDeviceGetCount", "cuDeviceGetAttribute"


@pytest.mark.parametrize(
    ("gpus", "fails", "problem"),
    [
        ([], {}, cuda.NO_GPU),
        ([V100], {"cuInit": 100}, cuda.NO_GPU),
        *(([V100], {function: 999}, FAILS.format(function)) for function in FUNCTIONS),
    ],
)
def test_a_driver_without_gpus_or_that_fails(gpus, fails, problem):
    assert query(gpus, **fails) == cuda.Driver(problem)


def test_a_driver_too_old():
    driver = query([V100], version=10020)
    assert driver.problem.startswith(
        "NVIDIA's driver is for CUDA 10.2, and mxnet-cu112 needs one for CUDA 11.0 or later"
    )
    assert query([V100], version=11000).problem is None


def test_problems_lists_libraries_driver_and_gpus():
    def loader(path, *mode):
        if path == "libnccl.so.2":
            raise OSError(path)
        return fake_cuda([V100, H100], version=10010)

    assert cuda.problems([], lambda path, *mode: fake_cuda([V100, A10])) == []
    names = [text.split(",")[0] for text in cuda.problems([], loader)]
    assert names == ["mxnet-cu112 needs libnccl.so.2", "NVIDIA's driver is for CUDA 10.1", "gpu(1)"]


GONE = ": cannot open shared object file: No such file or directory"


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
