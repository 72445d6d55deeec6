"""The twins in PyTorch: their numbers, and, where PyTorch is installed, their work on the CPU."""

import sys
from importlib.util import find_spec
from unittest.mock import MagicMock

import pytest
from littles import little

from mxdp.experiments.lab import Case, Row, Skipped
from mxdp.experiments.lab.module import find
from mxdp.experiments.oracle import count
from mxdp.experiments.twins import places, torch_copy_overlap, torch_data_parallel, torch_two_jobs


@pytest.mark.parametrize(("names", "where"), [(["cuda:0", "cuda:1"], "2 GPUs"), (["cuda:0", "cuda:0"], "1 GPU")])
def test_where_the_work_was_is_told(names, where):
    assert places.tell_where(Row("", False, {"device_names": names})) == where


@pytest.mark.parametrize("module", [torch_two_jobs, torch_copy_overlap])
def test_the_work_needs_a_gpu_unless_told_otherwise(module):
    """The catalogue runs all on the CPU."""
    if not pytest.importorskip("torch").cuda.is_available():
        with pytest.raises(Skipped, match="finds no GPU"):
            module.set_up(next(iter(module.cases(None))), little(find("torch-two-jobs"), kind="auto"))


@pytest.mark.parametrize("run", [torch_two_jobs.TURN, torch_two_jobs.ONCE])
def test_jobs_in_turn_are_waited_for_one_by_one(monkeypatch, run):
    """Without PyTorch a stand-in is enough for the order of the calls."""
    done = []
    if find_spec("torch") is None:
        monkeypatch.setitem(sys.modules, "torch", MagicMock())
    monkeypatch.setattr(places, "wait_for_gpus", lambda: done.append("wait"))
    monkeypatch.setattr(places, "push", lambda *job: done.append("push"))
    one_round = torch_two_jobs.set_up(Case("", run=run), little(find("torch-two-jobs"))).round
    done.clear()
    one_round()
    between = ["wait"] * (run == torch_two_jobs.TURN)
    assert done == ["wait", "push", *between, "push", *between, "wait"]


@pytest.mark.parametrize("module", [torch_two_jobs, torch_copy_overlap])
def test_a_product_that_is_not_done_is_seen(monkeypatch, module):
    pytest.importorskip("torch")
    monkeypatch.setattr(places, "push", lambda place, x, w, results: [result.zero_() for result in results])
    case = list(module.cases(None))[-1]
    assert count(module.oracle(case, little(find("torch-two-jobs"))))[1] > 0


def test_a_process_that_differs_from_the_first_is_seen(monkeypatch):
    pytest.importorskip("torch")
    from mxdp.experiments.torch_ddp import TorchTraining

    monkeypatch.setattr(TorchTraining, "of_first", lambda self, arrays: [1.000001 * array for array in arrays])
    s = little(find("torch-data-parallel"), kind="cpu")
    assert count(torch_data_parallel.oracle(Case("", gpus=0), s))[1] > 0
