"""Makes ``import faulty`` work in these tests, as ``MXDP_EXPERIMENTS=faulty`` does in the processes that they start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mxdp.experiments.harness import results, runner
from mxdp.experiments.harness.experiment import find

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """``measured(name)``: the folder and the result of that experiment, run with little work, once for all tests."""
    folder, done = tmp_path_factory.mktemp("measured"), {}

    def measure(name):
        if name not in done:
            experiment = find(name)
            quick = experiment.presets["quick"]
            common = {key: value for key, value in dict(rounds=2, data="synthetic").items() if key in quick}
            done[name] = runner.run(experiment, "quick", {**quick, **common, **experiment.little}, folder)
        return folder, done[name]

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
