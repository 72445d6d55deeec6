from __future__ import annotations

import sys

import pytest

from mxdp.errors import UsageError
from mxdp.experiments.harness import experiment as registry
from mxdp.experiments.harness.experiment import Experiment, discover, experiment, find


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    discover()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


def test_every_room_has_experiments():
    modules = [type(each).__module__ for each in discover().values()]
    rooms = {module.split(".")[2] for module in modules if module.startswith("mxdp.")}
    assert rooms >= {"data_parallel", "allreduce", "automatic_parallelism", "other_splits"}
    assert not rooms & set(registry.NO_ROOMS)


def test_two_experiments_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two experiments are called 'epochs'"):

        @experiment
        class Epochs(Experiment):
            name = "epochs"


@pytest.mark.parametrize(("unfit", "said"), [("../x", r"'\.\./x' has other than"), ("all", "'all' runs every")])
def test_a_name_must_be_fit_for_a_file_and_a_command(unfit, said):
    with pytest.raises(ValueError, match=said):

        @experiment
        class Escapes(Experiment):
            name = unfit


def test_the_same_class_may_register_twice():
    cls = type(find("epochs"))
    assert experiment(cls) is cls


@pytest.mark.parametrize(("name", "near"), [("two-job", "two-jobs"), ("twojobs", "two-jobs"), ("Epochs", "epochs")])
def test_the_nearest_name_is_suggested(name, near):
    with pytest.raises(UsageError, match=f"did you mean '{near}'"):
        find(name)


def test_extra_modules(monkeypatch, tmp_path):
    (tmp_path / "mine_too.py").write_text(
        "from mxdp.experiments.harness.experiment import Experiment, experiment\n"
        "@experiment\nclass Mine(Experiment):\n    name = 'mine-too'\n"
    )
    (tmp_path / "mine_broken.py").write_text("def (:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MXDP_EXPERIMENTS", " mine_too, ")
    assert "mine-too" in discover()
    monkeypatch.setenv("MXDP_EXPERIMENTS", "mine_broken")
    with pytest.raises(UsageError, match="'mine_broken', which can't be imported: SyntaxError"):
        discover()


def test_the_work_of_an_experiment_outside_a_package_is_in_the_folder_work(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "lone_question.py").write_text("def oracle(case, settings):\n    return [(1, 1, 0.0)]\n")
    lone = type("Lone", (Experiment,), {"__module__": "lone_question"})()
    with pytest.raises(ModuleNotFoundError, match="No module named 'work'"):
        lone.oracle(None, {})
    monkeypatch.syspath_prepend(tmp_path)
    assert lone.oracle(None, {}) == [(1, 1, 0.0)]
    for name in ("work.lone_question", "work"):
        monkeypatch.delitem(sys.modules, name)
