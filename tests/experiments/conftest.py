"""Makes ``import faulty`` work in these tests, as ``MXDP_EXPERIMENTS=faulty`` does in the processes that they start."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from mxdp.experiments.harness import results, runner
from mxdp.experiments.harness.experiment import find

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items):
    """Who asks first waits for the whole experiment; beside other work some of them take minutes."""
    for item in items:
        if "measured" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """``measured(name)``: the folder and the result of that experiment, run with little work, once for all tests."""
    folder = tmp_path_factory.getbasetemp()
    # Each of pytest-xdist's processes has a folder of its own inside the session's.
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "measured"
    folder.mkdir(exist_ok=True)

    def measure(name):
        kept = folder / f"{name}.pickle"
        with FileLock(folder / f"{name}.lock"):
            if not kept.exists():
                experiment = find(name)
                quick = experiment.presets["quick"]
                common = {key: value for key, value in dict(rounds=2, data="synthetic").items() if key in quick}
                result = runner.run(experiment, "quick", {**quick, **common, **experiment.little}, folder)
                kept.write_bytes(pickle.dumps(result))
        return folder, pickle.loads(kept.read_bytes())

    return measure


@pytest.fixture
def timelines(measured):
    """``timelines(name)``: how many rows and references of that experiment have a timeline."""

    def count(name):
        _, result = measured(name)
        return sum(results.TIMELINE in row["metrics"] for row in result["rows"] + result["references"])

    return count


@pytest.fixture
def importable(monkeypatch):
    """The children import ``faulty`` by name."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
