import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp import memory
from mxdp.backend import mx
from mxdp.errors import MemoryShortage

VERSIONS = {  # the group's folder, its files, what stands for no limit, the line of cached files
    1: (
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        2**63 - 4096,
        "inactive_file 7\ntotal_inactive_file",
    ),
    2: (".", "memory.max", "memory.current", "max", "anon 5\ninactive_file"),
}


def write(version, root, group="", limit=None, used=0, cached=0):
    above, maximum, usage, unlimited, line = VERSIONS[version]
    folder = root / above / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        (maximum, unlimited if limit is None else limit),
        (usage, used),
        ("memory.stat", f"{line} {cached}"),
    ):
        (folder / name).write_text(f"{text}\n")


BYTES = st.integers(0, 10**6)


@given(system=BYTES, container=st.none() | BYTES, needed=BYTES, limit=st.none() | BYTES, number=st.integers(0, 3))
def test_a_job_fits_into_what_the_system_the_container_and_its_limit_leave(system, container, needed, limit, number):
    device = mx.cpu(number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=system))
        patch.setattr(memory, "cgroup_bytes", lambda: container)
        room = min(size for size in (system, container) if size is not None)
        assert memory.available_bytes(device) == room
        if needed <= room and (limit is None or needed <= limit):
            assert memory.check_fits(needed, device, limit) is None
            return
        has = f"{device} has {memory.in_words(room)} left"
        if limit is not None and limit < room:
            has = f"may take {memory.in_words(limit)} of the {memory.in_words(room)} that {device} has left"
        words = f"this job needs {memory.in_words(needed)} and {has}, so it was not started"
        with pytest.raises(MemoryShortage, match=re.escape(words)):
            memory.check_fits(needed, device, limit)


def test_a_gpu_has_what_its_driver_says(monkeypatch):
    monkeypatch.setattr(memory.mx.context, "gpu_memory_info", lambda number: (100 + number, 999))
    assert memory.available_bytes(mx.gpu(2)) == 102


@given(items=st.integers(1, 40), size=st.integers(1, 40), available=st.integers(-9, 2000))
def test_slices_fit_are_as_few_and_as_equal_as_can_be_and_nothing_is_left_out(items, size, available):
    if available < size:
        with pytest.raises(MemoryShortage, match=f"needs {size} B at least and {max(available, 0)} B are left"):
            memory.slices(items, size, available)
        return
    cut = memory.slices(items, size, available)
    assert [start for start, _ in cut] == [0, *(stop for _, stop in cut[:-1])]
    assert cut[-1][1] == items
    lengths = [stop - start for start, stop in cut]
    assert max(lengths) * size <= available
    assert max(lengths) - min(lengths) <= 1
    assert (len(cut) - 1) * (available // size) < items, "fewer would do"
    with pytest.raises(ValueError, match=f"not 0 of {size}"):
        memory.slices(0, size, available)
    with pytest.raises(ValueError, match=f"not {items} of 0"):
        memory.slices(items, 0, available)


GROUP = st.tuples(st.none() | BYTES, BYTES, BYTES)
"""A cgroup's limit, what it uses, and how much of that are cached files."""


@given(
    version=st.sampled_from([1, 2]),
    groups=st.dictionaries(st.sampled_from(["", "a", "a/b", "c"]), GROUP),
    path=st.sampled_from(["a/b", "a", "", "only/on/the/host"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_container_leaves_the_least_of_all_limits_above_it_without_cache(version, groups, path, tmp_path):
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    write(2, root, limit=0)  # above the mount point, where nobody asks
    mounted = root / "mounted"
    for group, numbers in groups.items():
        write(version, mounted, group, *numbers)
    above = [group for group in groups if group in ("", path) or path.startswith(f"{group}/")]
    rest = [groups[group] for group in above if groups[group][0] is not None]
    expected = min((max(0, limit - max(0, used - cached)) for limit, used, cached in rest), default=None)
    controllers = "0:" if version == 2 else "9:cpu,memory"
    for line, found in ((f"{controllers}:/{path}", expected), (f"3:cpuset:/{path}", None)):
        (root / "cgroup").write_text(f"5:devices:/\n{line}\n")
        assert memory.cgroup_bytes(root / "cgroup", mounted) == found
    assert memory.cgroup_bytes(root / "no such file", mounted) is None


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
