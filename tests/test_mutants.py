"""tools/mutants.py: which module is tested by what. (The mutants themselves are made by hand, by ``make mutants``.)"""

import collections
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)


def test_every_module_has_tests_of_its_own():
    modules = mutants.modules([])
    assert [name for name in modules if not mutants.tests_of(name)] == []
    assert {mutants.room_of(name) for name in modules} == set(mutants.ROOMS)
    assert "tests/plans/test_algorithms.py" in mutants.tests_of("plans/collective/rings.py")
    assert mutants.tests_of("gluon/trainer.py")[0] == "tests/gluon/test_trainer.py", "which imports mxdp.gluon alone"
    assert "tests/experiments/test_devices.py" not in mutants.tests_of("experiments/lab/rows.py"), "but other lab"
    assert "tests/processes/test_launcher_guard.py" in mutants.tests_of("launch/guard.py")
    arrays, question = (mutants.asked_of(f"experiments/allreduce/{name}.py") for name in ("arrays", "buckets"))
    assert (arrays, question, mutants.asked_of("scratch.py")) == (
        ["allreduce", *question, "parameter-server"],
        ["buckets"],
        [],
    )


def test_a_part_of_the_modules_and_none():
    assert mutants.modules(["plans/collective/r", "scratch"]) == ["scratch.py", "plans/collective/rings.py"]
    assert mutants.modules(["oracle", "lab"])[-2:] == ["experiments/lab/told.py", "experiments/oracle.py"]
    with pytest.raises(SystemExit, match="no module begins with 'ring'; there are: scratch"):
        mutants.modules(["ring"])


@pytest.mark.parametrize(
    ("sample", "expected"), [(12, [4, 4, 4]), (39, [5, 17, 17]), (3, [1, 1, 1]), (0, [5, 30, 50]), (99, [5, 30, 50])]
)
def test_a_sample_has_as_many_of_each_room(sample, expected):
    sizes = {"scratch.py": 5, "gluon/store.py": 30, "plans/pipeline.py": 50}
    made = [SimpleNamespace(module_path=f"mxdp/{name}", n=n) for name, count in sizes.items() for n in range(count)]
    drawn = mutants.drawn(made, sample, seed=0)
    counted = collections.Counter(mutants.module_of(mutant) for mutant in drawn)
    assert [counted[name] for name in sizes] == expected
    assert len({(mutant.module_path, mutant.n) for mutant in drawn}) == len(drawn)
    assert mutants.drawn(made, sample, seed=0) == drawn
    assert sample in (0, 99) or mutants.drawn(made, sample, seed=1) != drawn
