"""The twins in PyTorch: their numbers, and, where PyTorch is installed, their work on the CPU."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from unittest.mock import MagicMock

import pytest

from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import Case, Skipped
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.twins.torch_copy_overlap import TorchCopyOverlap
from mxdp.experiments.twins.torch_data_parallel import DP, TorchDataParallel
from mxdp.experiments.twins.torch_two_jobs import ALONE, ONCE, TURN, TorchTwoJobs


def row(seconds, label="", rounds=(), **case):
    kept = {name: [value] * 6 for name, value in dict(rounds).items()}
    return Row(label, {"processor": "X", **case}, [seconds] * 6, rounds=kept)


def judged(experiment, rows):
    return {name: claims.judged(name, claim, rows)["holds"] for name, claim in experiment.claims.items()}


@pytest.mark.parametrize(
    ("devices", "once", "holds"),
    [(["cuda:0", "cuda:1"], 1.02, True), (["cuda:0", "cuda:1"], 1.5, False), (["cuda:0", "cuda:0"], 1.9, None)],
)
def test_two_jobs_are_judged_on_two_gpus_alone(devices, once, holds):
    rows = [
        row(1.0, run=ALONE, job=0, devices=devices[:1]),
        row(1.0, run=ALONE, job=1, devices=devices[1:]),
        row(2.0, run=TURN, devices=devices),
        row(once, run=ONCE, devices=devices),
    ]
    TorchTwoJobs().finish(rows, [], {})
    assert judged(TorchTwoJobs, rows) == {"both_over_one": holds}


SETTINGS = dict(
    kind="cpu", seed=0, products=3, size=40, data="synthetic", data_dir=None, lr=0.1, batch_size=24, steps=2
)


@pytest.mark.parametrize("experiment", [TorchTwoJobs, TorchCopyOverlap, TorchDataParallel])
def test_the_work_equals_its_oracle_and_needs_a_gpu_unless_told_otherwise(experiment):
    torch = pytest.importorskip("torch")
    own = experiment()
    ran = 0
    for case in own.cases(SETTINGS):
        if case.settings.get("engine") == DP:
            with pytest.raises(Skipped, match="DataParallel needs 2 GPUs"):
                own.set_up(case, SETTINGS)
            continue
        checked, wrong = count(own.oracle(case, SETTINGS))
        assert (checked > 0, wrong) == (True, 0)
        work = own.set_up(case, SETTINGS)
        done = work.round()
        assert done is None or done.seconds > 0
        ran += 1
    assert ran >= 2
    if experiment is not TorchDataParallel and not torch.cuda.is_available():
        with pytest.raises(Skipped, match="finds no GPU"):
            own.set_up(own.cases(SETTINGS)[0], {**SETTINGS, "kind": "auto"})


@pytest.mark.parametrize("run", [TURN, ONCE])
def test_jobs_in_turn_are_waited_for_one_by_one(monkeypatch, run):
    rooms = "mxdp.experiments.twins.work"
    if find_spec("torch") is None:  # a stand-in is enough for the order of the calls
        monkeypatch.setitem(sys.modules, "torch", MagicMock())
        for name in ("places", "torch_two_jobs"):
            monkeypatch.setitem(sys.modules, f"{rooms}.{name}", None)  # which monkeypatch takes out again
            del sys.modules[f"{rooms}.{name}"]
    places, work = (import_module(f"{rooms}.{name}") for name in ("places", "torch_two_jobs"))
    done = []
    for module in (places, work):
        monkeypatch.setattr(module, "wait", lambda: done.append("wait"))
    monkeypatch.setattr(work, "push", lambda *job: done.append("push"))
    one_round = work.set_up(Case("", settings={"run": run}), SETTINGS).round
    done.clear()
    one_round()
    between = ["wait"] * (run == TURN)
    assert done == ["wait", "push", *between, "push", *between, "wait"]


def test_a_product_that_is_not_done_is_seen(monkeypatch):
    pytest.importorskip("torch")
    from mxdp.experiments.twins.work import torch_two_jobs as work

    monkeypatch.setattr(work, "push", lambda place, arrays, products: arrays[2].zero_())
    assert count(work.oracle(Case("", settings={"run": ONCE}), SETTINGS))[1] > 0
