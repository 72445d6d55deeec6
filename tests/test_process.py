"""mxdp.process: what is set, what is left alone, and that it reaches the process."""

import ctypes
import os
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from children import distribution, printed
from hypothesis import given
from hypothesis import strategies as st

from mxdp import process, processor

NUMBERS = {"MXNET_CPU_TEMP_COPY": "128", "OMP_NUM_THREADS": "1", "MXNET_CPU_WORKER_NTHREADS": "1"}
OURS = {**NUMBERS, **processor.kernels()}


TUNED = dict.fromkeys([*process.MALLOPT, "MADV_HUGEPAGE"], True)
HEAP = 3 << 20, 1 << 30
LOST = {  # without it; MXNet's own number of workers is ours
    "MXNET_CPU_TEMP_COPY": "CPU devices wait for each other",
    "OMP_NUM_THREADS": "two CPU devices that run a large np.dot may hang for ever",
    "OPENBLAS_CORETYPE": "a large np.dot may take more than twice as long",
}


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


USERS = st.fixed_dictionaries(
    {"PATH": st.just("/bin")}, optional={x: st.sampled_from(["", OURS[x], "7"]) for x in OURS}
)


@given(user=USERS, other=st.sampled_from(sorted(OURS)))
def test_sets_what_the_user_has_not_set_and_gives_the_users_environment_back(user, other):
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
    environ[other] = "4"  # changed between, it is the user's
    assert prepare(environ).kept == {**kept, other: "4"}
    assert process.unprepared(environ) == {**{name: value for name, value in user.items() if value}, other: "4"}
    del environ[other]  # taken away, it is set again, and marked once
    assert prepare(environ).set == {**ours, other: OURS[other]}
    assert sorted(environ["MXDP_PREPARED"].split(",")) == sorted({*ours, other})


def test_switched_off_nothing_is_touched():
    environ = {"MXDP_PREPARE": "0", "MXNET_CPU_TEMP_COPY": "abc", "MXNET_ENGINE_TYPE": "NaiveEngine"}
    before, libc = dict(environ), Libc()
    assert process.prepare_process(environ, modules={"mxnet": None}, libc=libc) == process.Prepared({}, {}, [], {})
    assert (environ, libc.calls) == (before, [])
    assert process.concurrency_warnings({"MXDP_PREPARE": "0", "OMP_NUM_THREADS": "8"}) == []


@given(user=USERS)
def test_after_mxnet_it_is_too_late_and_it_is_said_what_is_lost(user):
    environ = dict(user)
    prepared = prepare(environ, modules=["mxnet"])
    missing = [name for name in OURS if not user.get(name)]
    assert environ == user
    assert prepared.set == {}
    lost = [effect for name, effect in LOST.items() if name in missing]
    assert len(prepared.warnings) == bool(lost)
    exports = [f"{name}={OURS[name]}" for name in missing]
    assert not lost or all(words in prepared.warnings[0] for words in (*exports, ", and ".join(lost)))


STOPS = "not a whole number of at least 1, and MXNet may stop or hang: correct it or unset it."
SAID = {
    **{(name, value): f"is {value!r}, {STOPS}" for name in NUMBERS for value in ("abc", "0", "-3", "1.5", "4,2", "٣")},
    ("MALLOC_ARENA_MAX", "many"): "is 'many', not a whole number: correct it or unset it.",
    ("MXNET_ENGINE_TYPE", "NaiveEngine"): "is NaiveEngine, which runs each operator alone, so no two devices ever work",
    ("MALLOC_TRIM_THRESHOLD_", "-1"): None,
    ("MXNET_ENGINE_TYPE", "ThreadedEnginePerDevice"): None,
}


@pytest.mark.parametrize(("name", "value"), SAID)
def test_a_value_that_stops_mxnet_or_means_nothing_to_glibc_is_named(name, value):
    words, warnings = SAID[name, value], prepare({name: value}).warnings
    assert len(warnings) == bool(words)
    assert all(text.startswith(f"{name} {words}") for text in warnings)


def test_the_heap_s_end_gets_huge_pages_from_the_next_multiple_on():
    libc = Libc()
    assert process.tune_malloc({}, libc) == TUNED
    assert libc.calls[-2:] == [(-2, 1 << 30), (-2, 128 << 10)]
    assert (libc.advised, libc.freed) == ([(4 << 20, (1 << 30) - (4 << 20), 14)], [3 << 20])
    assert process.tune_malloc({}, object()) == dict.fromkeys(TUNED, False)  # a C library without mallopt


VALUES = {-3: [1 << 30, 32 << 20], -1: [2**31 - 1], -8: [1]}
"""By mallopt's number, what is tried in turn. glibc before 2.35 takes at most 32 MiB of the first."""
USERS_OWN = [{variable: "65536"} for _, _, variable, _ in process.MALLOPT.values()]
USERS_OWN += [
    {"GLIBC_TUNABLES": f"glibc.malloc.tcache_count=0:{tunable}=2"} for *_, tunable in process.MALLOPT.values()
]
NO_HUGE_PAGES = [{"MALLOC_TOP_PAD_": "0"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}]


@given(
    environ=st.sampled_from([{}, *USERS_OWN, *NO_HUGE_PAGES]),
    refuse=st.sets(st.sampled_from([(option, value) for option, values in VALUES.items() for value in values])),
    heap=st.sampled_from([HEAP, (None, 1 << 30), (1 << 31, 1 << 30), (4 << 20, 4 << 20)]),
    madvise=st.sampled_from([0, -1]),
)
def test_what_the_user_told_glibc_is_left_and_what_is_refused_is_reported(environ, refuse, heap, madvise):
    libc = Libc(refuse, heap, madvise)
    done, tried = {}, []
    for name, (option, _, variable, tunable) in process.MALLOPT.items():
        mine = [] if variable in environ or tunable in environ.get("GLIBC_TUNABLES", "") else VALUES[option]
        taken = [value for value in mine if (option, value) not in refuse]
        done[name] = bool(taken)
        tried += [(option, value) for value in (mine[: mine.index(taken[0]) + 1] if taken else mine)]
    huge = all(done.values()) and environ not in NO_HUGE_PAGES
    done["MADV_HUGEPAGE"] = huge and heap == HEAP and not madvise
    prepared = process.prepare_process(dict(environ), modules={"mxnet": None}, libc=libc)
    assert prepared.malloc == done
    assert [call for call in libc.calls if call[0] != -2] == tried
    assert bool(libc.freed) == huge
    assert prepared.kept == {name: value for name, value in environ.items() if name != "MALLOC_TOP_PAD_"}


COUNTS = st.one_of(st.sampled_from(["", "x", "0", "99", "100"]), st.integers(0, 999).map(str))


@given(
    copies=COUNTS,
    threads=COUNTS,
    pinned=st.booleans(),
    machine=st.sampled_from(["x86_64", "AMD64", "aarch64"]),
    processors=st.integers(1, 64),
)
def test_what_spoils_two_cpu_devices(copies, threads, pinned, machine, processors):
    environ = {"MXNET_CPU_TEMP_COPY": copies, "OMP_NUM_THREADS": threads, "GOMP_CPU_AFFINITY": "0-3" * pinned}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "machine", lambda: machine)
        patch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)), raising=False)
        said = process.concurrency_warnings({**environ, "OMP_PLACES": "cores" if pinned else "sockets"})
    usual = processors if machine == "aarch64" else processors // 2  # MXNet's own number
    number = usual if threads == "" else int(threads) if threads.isdecimal() else 0
    shared = 4 if copies == "" else int(copies) if copies.isdecimal() else 100
    words = [f"since they share {shared} copies"] * (0 < shared < 100) + [f"MXNet uses {number} OpenMP"] * (number > 1)
    words += [
        "share one core, on which OpenMP keeps MXNet's threads (OMP_PLACES=cores, GOMP_CPU_AFFINITY=0-3)"
    ] * pinned
    assert len(said) == len(words)
    assert all(word in text for word, text in zip(words, said))


@given(mask=st.sets(st.integers(0, 999), min_size=1))
def test_a_part_of_the_machine_counts_as_that_part(mask):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda process: mask, raising=False)
        patch.setattr(os, "cpu_count", lambda: 2000)
        assert process.cores() == len(mask)
        patch.delattr(os, "sched_getaffinity")  # as on macOS
        assert process.cores() == 2000
        patch.setattr(os, "cpu_count", lambda: None)
        assert process.cores() == 1


@pytest.mark.skipif(process.cores() < 2 or not hasattr(os, "sched_getaffinity"), reason="needs two cores, and Linux")
@pytest.mark.parametrize("environ", [{"OMP_PROC_BIND": "true"}, {"OMP_PLACES": "{%d,%d}", "OMP_PROC_BIND": "close"}])
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
    assert said or cores == f"{process.cores()} processors"


def test_describe_names_what_counts_and_nothing_else():
    counting = {"OMP_NUM_THREADS": "1", "MXNET_CPU_TEMP_COPY": "4", "MXDP_PREPARE": "0", "MALLOC_ARENA_MAX": "1"}
    variables = process.describe({**counting, "KMP_AFFINITY": "x", "PATH": "/bin", "MY_MXNET_TOKEN": "secret"})
    assert list(variables.items()) == sorted([*counting.items(), ("KMP_AFFINITY", "x")])


def test_installed_backends_knows_wheels_by_name(tmp_path, monkeypatch):
    for name in ("MXNet", "mxnet_cu112", "mxnet_cutlass", "not-mxnet", "numpy"):
        distribution(tmp_path, name, "1.9.1")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert process.installed_backends() == {"mxnet": "1.9.1", "mxnet-cu112": "1.9.1"}


@pytest.mark.parametrize("minor", [8, 12, 13, 14])
def test_what_to_do_without_mxnet(minor, monkeypatch):
    monkeypatch.setattr(process, "sys", SimpleNamespace(version_info=(3, minor)))
    assert process.install_problem({"mxnet": "1.9.1"}) is None
    monkeypatch.setattr(process, "find_spec", lambda name: object())
    assert process.install_problem({}) is None  # built from source it is no distribution
    monkeypatch.setattr(process, "find_spec", lambda name: None)
    text = process.install_problem({})
    assert text.startswith("MXNet is not installed")
    excluded = f"exclude every NumPy for Python 3.{minor}", "pip install --no-deps mxnet==1.9.1", "mxnet-cu112==1.9.1"
    cures = ('pip install ".[cpu]"', 'pip install ".[cu112]"') if minor < 13 else excluded
    assert all(cure in text for cure in (*cures, "make run"))


LIBC = """
import ctypes, resource, threading
from mxdp import process
process.prepare_process()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
"""
FAULTS = f"""{LIBC}
def work():
    for turn in range(8):
        if turn == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [libc.malloc(8 << 20) for _ in range(12)]  # 96 MiB: more than one heap of a worker's arena
        for block in blocks:
            libc.memset(block, 1, 8 << 20)
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
    for own in ({"MALLOC_MMAP_THRESHOLD_": "131072"}, {"MALLOC_TRIM_THRESHOLD_": "131072"}, {"MALLOC_ARENA_MAX": "8"}):
        assert int(printed(FAULTS, **own)) > MANY


HUGE = f"""{LIBC}
libc.memset(libc.malloc(64 << 20), 1, 64 << 20)
print(*[line.split()[1] for line in open("/proc/self/smaps_rollup") if line.startswith("AnonHugePages")])
"""
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not THP.exists() or "[madvise]" not in THP.read_text(), reason="Linux gives huge pages never, or always"
)
def test_what_is_allocated_has_huge_pages():
    assert int(printed(HUGE)) > 0
    assert int(printed(HUGE, MALLOC_TOP_PAD_="0")) == 0
