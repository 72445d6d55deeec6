"""mxdp.processor: the kernels of MXNet's OpenBLAS."""

import platform

import pytest
from children import printed

from mxdp import processor

CPUINFO = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nflags\t\t: fpu sse2 {}\n\nsecond\t: 1\n"
AVX2, AVX512 = "avx2 fma", "avx2 fma avx512f avx512dq avx512cd avx512bw avx512vl"


@pytest.mark.parametrize(
    ("cpuinfo", "kernels"),
    [
        (("GenuineIntel", "6", AVX512), "SkylakeX"),
        (("GenuineIntel", "6", AVX512.replace(" avx512vl", "")), "Haswell"),  # Knights Landing
        (("GenuineIntel", "6", AVX2), "Haswell"),
        (("GenuineIntel", "6", "avx2"), None),
        (("GenuineIntel", "6", "avx fma"), None),
        (("AuthenticAMD", "25", AVX512), None),
        (("AuthenticAMD", "26", AVX512), "SkylakeX"),
        (("AuthenticAMD", "26", AVX2), "Haswell"),
        (("HygonGenuine", "24", AVX2), None),
    ],
)
def test_openblas_is_told_of_a_processor_that_it_does_not_know(cpuinfo, kernels, monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert processor.kernels() == {}  # no such file, as on macOS
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nCPU implementer\t: 0x41\n")  # ARM
    assert processor.kernels() == {}
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(*cpuinfo))
    assert processor.kernels() == ({"OPENBLAS_CORETYPE": kernels} if kernels else {})
    assert (processor.cpuinfo("vendor_id"), processor.cpuinfo("second")) == (cpuinfo[0], "")


CORE = """
import ctypes, glob
from mxdp.backend import mx
core = ctypes.CDLL(*glob.glob(mx.__path__[0] + "/libopenblas*")).openblas_get_corename
core.restype = ctypes.c_char_p
print(core().decode(), end="")
"""


@pytest.mark.skipif(platform.machine() != "x86_64" or "avx2" not in processor.cpuinfo("flags"), reason="needs AVX2")
def test_mxnet_computes_by_kernels_that_use_the_processor():
    assert printed(CORE) in ("Haswell", "Zen", "SkylakeX", "Cooperlake")
    assert printed(CORE, OPENBLAS_CORETYPE="Nehalem") == "Nehalem"  # the user's own
