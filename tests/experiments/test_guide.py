"""CONTRIBUTING's guide to a new experiment, followed to the letter, but in a folder of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mxdp.experiments.harness import experiment as harness
from mxdp.experiments.harness import runner
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.report import page, tables

ROOT = Path(__file__).parents[2]


@pytest.fixture
def guide(tmp_path, monkeypatch):
    """The experiment of the guide."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = re.findall(r"```python\n# mxdp/experiments/data_parallel/(\S+)\n(.*?)```", text, re.S)
    assert [name for name, _ in files] == ["batch_size.py", "work/batch_size.py"]
    for name, code in files:
        path = tmp_path / "guide" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    harness.discover()
    monkeypatch.setattr(harness, "_registry", dict(harness._registry))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(harness.EXTRA_MODULES, "guide.batch_size")
    yield harness.find("batch-size")
    for name in [name for name in sys.modules if name.partition(".")[0] == "guide"]:
        del sys.modules[name]


def test_the_experiment_of_the_guide_runs_meets_its_oracle_and_is_shown(guide, tmp_path):
    result = runner.run(guide, "quick", {**guide.presets["quick"], "rounds": 2, **guide.little}, tmp_path)
    assert (result["status"], result["error"], result["oracle"]["wrong"]) == ("ok", None, 0)
    assert result["oracle"]["checked"] > 0
    assert tables.table(result, guide).rows[0][2] == "1.00"
    page.write_report(tmp_path)
    assert (tmp_path / "batch-size.svg").exists()


def test_its_quick_sizes_meet_their_oracle_and_train(guide):
    """In this process, since loading MXNet for each size would take longer than all else."""
    settings = dict(guide.presets["quick"], samples=256)
    for case in guide.cases(settings):
        checked, wrong = count(guide.oracle(case, settings))
        assert (checked > 0, wrong) == (True, 0), case.label
        guide.set_up(case, settings).round()
