"""mxdp.process: what is set, what is left alone, and that it reaches the process."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from children import distribution, printed

from mxdp import process

OURS = {"MXNET_CPU_TEMP_COPY": "128", "OMP_NUM_THREADS": "1", "MXNET_CPU_WORKER_NTHREADS": "1"}


TUNED = dict.fromkeys([*process.MALLOPT, "MADV_HUGEPAGE"], True)
HEAP = 3 << 20, 1 << 30


class Libc:
    """Stands in for the C library: takes note of each mallopt, and refuses what ``refuse`` names. ``heap``: the block
    that malloc gives, and the heap's end."""

    def __init__(self, refuse=(), heap=HEAP, madvise=0):
        self.calls, self.advised, self.freed = [], [], []
        self.refuse = refuse
        self.malloc, self.sbrk, self.free = lambda size: heap[0], lambda by: heap[1], lambda at: self.freed.append(at)
        self.madvise = lambda *order: self.advised.append(order) or madvise

    def mallopt(self, option, value):
        self.calls.append((option, value))
        return 0 if (option, value) in self.refuse else 1


def prepare(environ, modules=()):
    return process.prepare_process(environ, modules=dict.fromkeys(modules), libc=Libc())


USERS = [{"PATH": "/bin", "OMP_NUM_THREADS": "2"}, OURS, {"OMP_NUM_THREADS": ""}, *({name: "7"} for name in OURS)]


@pytest.mark.parametrize("user", USERS)
def test_sets_what_the_user_has_not_set_and_gives_the_users_environment_back(user):
    environ = dict(user)
    first = prepare(environ)
    kept = {name: value for name, value in user.items() if value and name in OURS}
    ours = {name: value for name, value in OURS.items() if name not in kept}
    assert first == process.Prepared(ours, kept, [], TUNED)
    prepared = {**user, **ours, **({"MXDP_PREPARED": ",".join(ours)} if ours else {})}
    assert environ == prepared
    assert prepare(environ) == first  # again, or in a child
    assert environ == prepared
    assert process.unprepared(environ) == {name: value for name, value in user.items() if value}


def test_a_value_changed_between_is_the_users():
    environ = {}
    prepare(environ)
    environ["MXNET_CPU_TEMP_COPY"] = "4"
    assert prepare(environ).kept == {"MXNET_CPU_TEMP_COPY": "4"}
    assert process.unprepared(environ) == {"MXNET_CPU_TEMP_COPY": "4"}


def test_a_variable_taken_away_is_set_again_and_marked_once():
    environ = {}
    prepare(environ)
    del environ["OMP_NUM_THREADS"]
    assert prepare(environ).set == OURS
    assert sorted(environ["MXDP_PREPARED"].split(",")) == sorted(OURS)


def test_switched_off_nothing_is_touched():
    environ = {"MXDP_PREPARE": "0", "MXNET_CPU_TEMP_COPY": "abc", "MXNET_ENGINE_TYPE": "NaiveEngine"}
    before, libc = dict(environ), Libc()
    assert process.prepare_process(environ, modules={"mxnet": None}, libc=libc) == process.Prepared({}, {}, [], {})
    assert environ == before
    assert libc.calls == []
    assert process.concurrency_warnings({"MXDP_PREPARE": "0", "OMP_NUM_THREADS": "8"}) == []


def test_after_mxnet_it_is_too_late():
    environ = {"OMP_NUM_THREADS": "1"}
    prepared = prepare(environ, modules=["mxnet"])
    assert prepared.set == {}
    assert environ == {"OMP_NUM_THREADS": "1"}
    assert prepared.warnings == [
        "MXNet was imported before mxdp and no longer takes MXNET_CPU_TEMP_COPY=128 MXNET_CPU_WORKER_NTHREADS=1, so"
        " CPU devices wait for each other. Restart the kernel (or Python), and import mxdp before MXNet."
    ]


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("MXNET_CPU_TEMP_COPY", "so CPU devices wait for each other."),
        ("OMP_NUM_THREADS", "so two CPU devices that run a large np.dot may hang for ever."),
        ("MXNET_CPU_WORKER_NTHREADS", None),  # MXNet's own value is ours
    ],
)
def test_after_mxnet_it_is_said_what_is_lost(name, lost):
    warnings = prepare({other: "200" for other in OURS if other != name}, modules=["mxnet"]).warnings
    assert [lost in text for text in warnings] == [True] * (lost is not None)


@pytest.mark.parametrize("value", ["abc", "0", "-3", "1.5", "4,2", "٣"])
@pytest.mark.parametrize("name", OURS)
def test_a_value_that_stops_mxnet_is_named(name, value):
    assert prepare({name: value}).warnings == [
        f"{name} is {value!r}, not a whole number of at least 1, and MXNet may stop or hang: correct it or unset it."
    ]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"MALLOC_ARENA_MAX": "many"}, ["MALLOC_ARENA_MAX is 'many', not a whole number: correct it or unset it."]),
        ({"MALLOC_TRIM_THRESHOLD_": "-1"}, []),
        ({"MXNET_ENGINE_TYPE": "NaiveEngine"}, ["MXNET_ENGINE_TYPE is NaiveEngine, which runs each operator alone"]),
        ({"MXNET_ENGINE_TYPE": "ThreadedEnginePerDevice"}, []),
    ],
)
def test_what_means_nothing_to_glibc_and_the_naive_engine_are_named(environ, words):
    warnings = prepare(environ).warnings
    assert [text[: len(start)] for text, start in zip(warnings, words)] == words
    assert len(warnings) == len(words)


def test_mallopt_gets_the_three_options_and_the_heaps_end_from_the_next_multiple_on_huge_pages():
    libc = Libc()
    assert process.tune_malloc({}, libc) == TUNED
    assert libc.calls == [(-3, 1 << 30), (-1, 2**31 - 1), (-8, 1), (-2, 1 << 30), (-2, 128 << 10)]
    assert (libc.advised, libc.freed) == ([(4 << 20, (1 << 30) - (4 << 20), 14)], [3 << 20])


@pytest.mark.parametrize(
    ("environ", "libc"),
    [
        ({}, Libc(heap=(None, 1 << 30))),  # no memory
        ({}, Libc(heap=(1 << 31, 1 << 30))),  # the block is outside the heap, which couldn't grow
        ({}, Libc(madvise=-1)),  # a kernel without huge pages
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, Libc()),
        ({"MALLOC_TOP_PAD_": "0"}, Libc()),
    ],
)
def test_without_huge_pages(environ, libc):
    assert process.tune_malloc(environ, libc) == {**TUNED, "MADV_HUGEPAGE": False}


def test_an_older_glibc_gets_the_largest_threshold_that_it_takes():
    libc = Libc(refuse=[(-3, 1 << 30)])
    assert process.tune_malloc({}, libc) == TUNED
    assert libc.calls[:2] == [(-3, 1 << 30), (-3, 32 << 20)]


def test_a_refused_option_is_reported():
    refused = dict.fromkeys(["M_ARENA_MAX", "MADV_HUGEPAGE"], False)
    assert process.tune_malloc({}, Libc(refuse=[(-8, 1)])) == {**TUNED, **refused}


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({"MALLOC_MMAP_THRESHOLD_": "65536"}, "M_MMAP_THRESHOLD"),
        ({"MALLOC_TRIM_THRESHOLD_": "65536"}, "M_TRIM_THRESHOLD"),
        ({"MALLOC_ARENA_MAX": "2"}, "M_ARENA_MAX"),
        ({"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=2"}, "M_ARENA_MAX"),
    ],
)
def test_what_the_user_told_glibc_is_left(environ, left):
    libc = Libc()
    prepared = process.prepare_process(dict(environ), modules={}, libc=libc)
    assert prepared.malloc == {name: name not in (left, "MADV_HUGEPAGE") for name in TUNED}
    assert process.MALLOPT[left][0] not in [option for option, _ in libc.calls]
    assert prepared.kept == environ


def test_a_c_library_without_mallopt():
    assert process.tune_malloc({}, object()) == dict.fromkeys(TUNED, False)


@pytest.mark.parametrize(
    ("environ", "machine", "processors", "words"),
    [
        ({"MXNET_CPU_TEMP_COPY": "100", "OMP_NUM_THREADS": "1"}, "x86_64", 64, []),
        ({"MXNET_CPU_TEMP_COPY": "99", "OMP_NUM_THREADS": "1"}, "x86_64", 64, ["share 99 copies"]),
        ({"OMP_NUM_THREADS": "1"}, "x86_64", 64, ["share 4 copies"]),
        ({"MXNET_CPU_TEMP_COPY": "128", "OMP_NUM_THREADS": "2"}, "x86_64", 1, ["uses 2 OpenMP threads"]),
        ({"MXNET_CPU_TEMP_COPY": "4", "OMP_NUM_THREADS": "8"}, "x86_64", 1, ["share 4 copies", "uses 8 OpenMP"]),
        ({"MXNET_CPU_TEMP_COPY": "128"}, "x86_64", 1, []),
        ({"MXNET_CPU_TEMP_COPY": "128"}, "x86_64", 8, ["MXNet uses 4 OpenMP threads"]),  # its own number
        ({"MXNET_CPU_TEMP_COPY": "128"}, "aarch64", 8, ["MXNet uses 8 OpenMP threads"]),
        ({"MXNET_CPU_TEMP_COPY": "x", "OMP_NUM_THREADS": "x"}, "x86_64", 1, []),
        ({**OURS, "GOMP_CPU_AFFINITY": "0-3"}, "x86_64", 4, ["share one core, .*GOMP_CPU_AFFINITY=0-3.: unset it"]),
    ],
)
def test_what_spoils_two_cpu_devices(monkeypatch, environ, machine, processors, words):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(process, "cores", lambda: processors)
    sentences = process.concurrency_warnings(environ)
    assert len(sentences) == len(words)
    assert all(re.search(word, text) for word, text in zip(words, sentences))


@pytest.mark.skipif(process.cores() < 2 or not hasattr(os, "sched_getaffinity"), reason="needs two cores, and Linux")
@pytest.mark.parametrize(
    "environ",
    [
        {"OMP_PROC_BIND": "true"},
        {"OMP_PLACES": "{%d}"},
        {"OMP_PLACES": "{%d,%d}", "OMP_PROC_BIND": "close"},
        {"GOMP_CPU_AFFINITY": "%d", "OMP_PROC_BIND": "FALSE"},
    ],
)
def test_openmp_keeps_mxnet_on_one_core_where_that_is_said(environ):
    first = sorted(os.sched_getaffinity(0))[:2]
    environ = {name: value % tuple(first[: value.count("%")]) for name, value in environ.items()}
    code = """
from mxdp import process, tracing
from mxdp.backend import np
x = np.ones((200, 200))
(x @ x).wait_to_read()
print(process.pinning())
print(tracing.recording.processors())
"""
    said, cores = printed(code, **environ).splitlines()
    assert bool(said) == (cores == f"1 processor (because of {said})")
    assert said or cores.startswith(f"{process.cores()} processors")


def test_describe_names_what_counts_and_nothing_else():
    counting = {"OMP_NUM_THREADS": "1", "MXNET_CPU_TEMP_COPY": "4", "MXDP_PREPARE": "0", "MALLOC_ARENA_MAX": "1"}
    variables = process.describe({**counting, "KMP_AFFINITY": "x", "PATH": "/bin", "MY_MXNET_TOKEN": "secret"})
    assert list(variables.items()) == sorted([*counting.items(), ("KMP_AFFINITY", "x")])


def test_installed_backends_knows_wheels_by_name(tmp_path, monkeypatch):
    for name in ("MXNet", "mxnet_cu112", "mxnet_cutlass", "not-mxnet", "numpy"):
        distribution(tmp_path, name, "1.9.1")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert process.installed_backends() == {"mxnet": "1.9.1", "mxnet-cu112": "1.9.1"}


def problem(backends, python=(3, 11), importable=True):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "installed_backends", lambda: dict.fromkeys(backends, "1.9.1"))
        patch.setattr(process, "find_spec", lambda name: object() if importable else None)
        patch.setattr(process, "sys", SimpleNamespace(version_info=python))
        return process.install_problem()


@pytest.mark.parametrize("backends", [["mxnet"], []])  # built from source it is no distribution
def test_a_good_installation_has_no_problem(backends):
    assert problem(backends) is None


@pytest.mark.parametrize("minor", [8, 12, 13, 14])
def test_no_mxnet(minor):
    text = problem((), python=(3, minor), importable=False)
    assert text.startswith("MXNet is not installed")
    excluded = f"exclude every NumPy for Python 3.{minor}", "pip install --no-deps mxnet==1.9.1", "mxnet-cu112==1.9.1"
    cures = ('pip install ".[cpu]"', 'pip install ".[cu112]"') if minor < 13 else excluded
    assert all(cure in text for cure in (*cures, "make run"))


FAULTS = """
import ctypes, resource, threading
from mxdp import process
process.prepare_process()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
SIZE = 8 << 20
def work():
    for turn in range(8):
        if turn == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [libc.malloc(SIZE) for _ in range(12)]  # 96 MiB: more than one heap of a worker's arena
        for block in blocks:
            libc.memset(block, 1, SIZE)
        for block in blocks:
            libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
FEW, MANY = 50, 200  # six turns fault 6 * 24576 pages of 4 KiB, or 6 * 48 of 2 MiB


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="glibc's allocator only")
def test_a_worker_thread_keeps_its_memory_by_all_three_options_together():
    assert int(printed(FAULTS)) < FEW
    threshold = "131072"
    assert int(printed(FAULTS, MXDP_PREPARE="0")) > MANY
    assert int(printed(FAULTS, MALLOC_MMAP_THRESHOLD_=threshold)) > MANY
    assert int(printed(FAULTS, MALLOC_TRIM_THRESHOLD_=threshold)) > MANY
    assert int(printed(FAULTS, MALLOC_ARENA_MAX="8")) > MANY


HUGE = """
import ctypes
from mxdp import process
process.prepare_process()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset(ctypes.c_void_p(libc.malloc(64 << 20)), 1, 64 << 20)
print(*[line.split()[1] for line in open("/proc/self/smaps_rollup") if line.startswith("AnonHugePages")])
"""
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not THP.exists() or "[madvise]" not in THP.read_text(), reason="Linux gives huge pages never, or always"
)
def test_what_is_allocated_has_huge_pages():
    assert int(printed(HUGE)) > 0
    assert int(printed(HUGE, MXDP_PREPARE="0")) == 0
    assert int(printed(HUGE, MALLOC_TOP_PAD_="0")) == 0
