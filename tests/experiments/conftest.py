"""Makes ``import faulty`` work in these tests, as ``MXDP_EXPERIMENTS=faulty`` does in the processes that they start."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mxdp.experiments.harness import results, runner
from mxdp.experiments.harness.experiment import Experiment, find

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def measured(request, tmp_path_factory):
    """``measured(name)``: the folder and the result of that experiment, run with little work, once for all tests.

    Those that later tests of this session ask for are run meanwhile, two at a time: most of it is starting processes.
    """
    folder, done = tmp_path_factory.mktemp("measured"), {}
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    later = [own["experiment"].name for own in params if isinstance(own.get("experiment"), Experiment)]

    def run(name):
        experiment = find(name)
        quick = experiment.presets["quick"]
        common = {key: value for key, value in dict(rounds=2, data="synthetic").items() if key in quick}
        return runner.run(experiment, "quick", {**quick, **common, **experiment.little}, folder)

    with ThreadPoolExecutor(2) as pool:

        def measure(name):
            for each in (name, *later):
                if each not in done:
                    done[each] = pool.submit(run, each)
            return folder, done[name].result()

        yield measure
        for each in done.values():
            each.cancel()


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
