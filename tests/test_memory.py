from __future__ import annotations

from types import SimpleNamespace

import pytest

from mxdp import memory
from mxdp.backend import mx
from mxdp.errors import MemoryShortage, MxdpError

CPU = mx.cpu(0)


@pytest.fixture
def left(monkeypatch):
    """Have the system, and this container, so many bytes left."""

    def have(system, container=None):
        monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=system))
        monkeypatch.setattr(memory, "cgroup_bytes", lambda: container)

    return have


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def version_2(root, group="", limit="max", used=0, cached=0):
    write(
        root / group,
        memory__max=f"{limit}\n",
        memory__current=f"{used}\n",
        memory__stat=f"anon 5\ninactive_file {cached}\n",
    )


def version_1(root, group="", limit=2**63 - 4096, used=0, cached=0):
    write(
        root / "memory" / group,
        memory__limit_in_bytes=f"{limit}\n",
        memory__usage_in_bytes=f"{used}\n",
        memory__stat=f"inactive_file 7\ntotal_inactive_file {cached}\n",
    )


def of(tmp_path, line):
    file = tmp_path / "cgroup"
    file.write_text(f"5:devices:/\n{line}\n")
    return memory.cgroup_bytes(file, tmp_path)


def test_what_is_available_here_is_a_plausible_number():
    assert 1 << 20 < memory.available_bytes(CPU) <= memory.psutil.virtual_memory().total


@pytest.mark.parametrize(("container", "available"), [(None, 1000), (700, 700), (5000, 1000), (0, 0)])
def test_a_cpu_has_what_the_system_and_the_container_leave(left, container, available):
    left(1000, container)
    assert memory.available_bytes(CPU) == available
    assert memory.available_bytes(mx.cpu(3)) == available


def test_a_gpu_has_what_its_driver_says(monkeypatch):
    monkeypatch.setattr(memory.mx.context, "gpu_memory_info", lambda number: (100 + number, 999))
    assert memory.available_bytes(mx.gpu(2)) == 102


@pytest.mark.parametrize(("needed", "limit"), [(1000, None), (400, 400), (1000, 5000)])
def test_a_job_that_fits_goes_on(left, needed, limit):
    left(1000)
    assert memory.check_fits(needed, CPU, limit) is None


@pytest.mark.parametrize(
    ("needed", "limit", "words"),
    [
        (5_200, None, r"this job needs 5\.20 kB and cpu\(0\) has 5\.00 kB left, so it was not start"),
        (5_001, 10_000, r"cpu\(0\) has 5\.00 kB left"),
        (1_000, 999, r"needs 1\.00 kB and may take 999 B of the 5\.00 kB that cpu\(0\) has"),
        (1_000, 0, "may take 0 B of"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_with_both_numbers(left, needed, limit, words):
    left(5_000)
    with pytest.raises(MxdpError, match=words) as raised:
        memory.check_fits(needed, CPU, limit)
    assert raised.type is MemoryShortage


@pytest.mark.parametrize(
    ("items", "available", "expected"),
    [
        (5, 50, [(0, 5)]),
        (5, 49, [(0, 3), (3, 5)]),
        (5, 20, [(0, 2), (2, 4), (4, 5)]),
        (5, 10, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        (1, 10, [(0, 1)]),
    ],
)
def test_slices_are_as_few_as_fit(items, available, expected):
    assert memory.slices(items, 10, available) == expected


def test_every_slice_fits_and_nothing_is_left_out():
    for available in range(7, 120):
        cut = memory.slices(17, 7, available)
        assert [start for start, _ in cut] == [0, *(stop for _, stop in cut[:-1])]
        assert cut[-1][1] == 17
        assert all(0 < (stop - start) * 7 <= available for start, stop in cut)


@pytest.mark.parametrize(("available", "words"), [(63, "63 B"), (0, "0 B"), (-5, "0 B")])
def test_one_item_has_to_fit(available, words):
    with pytest.raises(MemoryShortage, match=f"one slice needs 64 B at least and {words} are left"):
        memory.slices(50, 64, available)


@pytest.mark.parametrize(("items", "size"), [(0, 1), (-1, 1), (1, 0)])
def test_nothing_can_not_be_cut(items, size):
    with pytest.raises(ValueError, match=f"not {items} of {size}"):
        memory.slices(items, size, 10)


@pytest.mark.parametrize(
    ("version", "groups", "line", "left_over"),
    [
        (version_2, {"a/b": (1000, 400, 150)}, "0::/a/b", 750),
        (version_2, {"a": (500, 450, 0), "a/b": (1000, 400, 0)}, "0::/a/b", 50),  # the one above is the tighter
        (version_1, {"docker/x": (1000, 400, 100)}, "9:cpu,memory:/docker/x", 700),
        (version_1, {"": (1000, 100, 0)}, "9:memory:/only/on/the/host", 900),  # as inside a container
        (version_2, {"": (100, 180, 0)}, "0::/", 0),
    ],
)
def test_a_container_leaves_its_limit_without_what_is_used_and_not_cache(tmp_path, version, groups, line, left_over):
    for group, (limit, used, cached) in groups.items():
        version(tmp_path, group, limit=limit, used=used, cached=cached)
    assert of(tmp_path, line) == left_over


def test_without_a_limit_there_is_none(tmp_path):
    version_1(tmp_path, "a", used=5)
    version_2(tmp_path, "a", used=5)
    assert of(tmp_path, "9:memory:/a") is None
    assert of(tmp_path, "0::/a") is None
    assert of(tmp_path, "3:cpuset:/a") is None
    assert memory.cgroup_bytes(tmp_path / "no such file", tmp_path) is None


def test_a_file_above_the_mount_point_is_never_asked(tmp_path):
    version_2(tmp_path, limit=7, used=0)
    file = tmp_path / "cgroup"
    file.write_text("0::/a\n")
    assert memory.cgroup_bytes(file, tmp_path / "mounted") is None


@pytest.mark.parametrize(
    ("ranks", "total", "free", "enough"),
    [(1, 64, 2, True), (1, 64, 1, False), (4, 5, 2, True), (4, 4, 4, False), (4, 64, 1, False)],
)
def test_too_little_shared_memory_for_mpi_is_a_sentence(monkeypatch, ranks, total, free, enough):
    """All in MiB. A rank takes a bit more than one. Those of other ranks may be taken already."""
    disk = SimpleNamespace(total=total << 20, free=free << 20)
    monkeypatch.setattr(memory.psutil, "disk_usage", lambda path: disk)
    monkeypatch.setenv("MPI_LOCALNRANKS", str(ranks))
    if enough:
        memory.need_shared_memory()
        return
    with pytest.raises(MemoryShortage, match=f"^/dev/shm has {free << 10} of {total << 10} KiB left, .*--shm-size"):
        memory.need_shared_memory()
