import importlib
import re

import pytest
from littles import little

from mxdp import process
from mxdp.backend import gluon, mx, np
from mxdp.errors import UsageError
from mxdp.experiments import networks
from mxdp.experiments.__main__ import main
from mxdp.experiments.data_parallel import break_even, resnet, sharded_optimizer, your_net
from mxdp.experiments.lab import Case, run
from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.told import told
from mxdp.experiments.oracle import count
from mxdp.plans.cost.machine import CPU

SETTINGS = little(Question(resnet), kind="cpu")
CASES = {case.label: case for case in resnet.cases(SETTINGS)}


def test_the_network_is_the_books():
    net = networks.resnet18()
    net.initialize()
    assert net(np.zeros((2, 1, 28, 28))).shape == (2, 10)
    sizes = [param.data().size for param in net.collect_params().values() if param.grad_req != "null"]
    assert sum(sizes) == 11175818  # convolutions with scales and shifts, three shortcuts, one dense layer


@pytest.mark.parametrize(
    ("question", "case"),
    [
        (resnet, CASES["2 devices, mxdp.Trainer, hybrid"]),
        (sharded_optimizer, Case("", 2, net="resnet", optimizer="sgd", sharded=False)),
        (break_even, Case("", 2, net="resnet", batch=2)),
    ],
)
def test_rounds_of_few_steps_begin_anywhere(monkeypatch, question, case):
    """Else one place, where a step takes half as long again, may be every process's."""
    begun = []
    monkeypatch.setattr(question, "begin_anywhere", begun.append)
    monkeypatch.setattr(break_even, "calibrated", lambda devices: CPU)
    work = question.set_up(case, little(Question(question), kind="cpu", units=8, at_least=0.01))
    for _ in range(2):
        work.round()
    assert begun == [mx.cpu(0)] * 2


def test_anywhere_is_each_place_of_the_turn(monkeypatch):
    taken, counts = [], []
    monkeypatch.setattr(networks.np, "dot", lambda a, b: taken.append(a.ctx))
    for _ in range(400):
        taken.clear()
        networks.begin_anywhere(mx.cpu(1))
        assert set(taken) <= {mx.cpu(1)}
        counts.append(len(taken))
    assert max(counts) < process.SMALL_TEMP_COPY
    assert len(set(counts)) > 80


MINE = """
from mxdp.backend import gluon

nn = gluon.nn


def make():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=3), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(), nn.Dense(5))
    net.initialize()  # it may be
    return net


make.shape, make.classes = (3, 8, 8), 5


def many():
    return make()


def drops():
    net = make()
    net.add(nn.Dropout(0.5))
    return net


many.shape = drops.shape = make.shape
drops.classes = 5


class Plain(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(5, in_units=3 * 8 * 8)

    def hybrid_forward(self, F, x):
        return self.dense(x.reshape(len(x), -1))  # a symbol has no length


def plain():
    return Plain()


plain.shape, plain.classes = make.shape, make.classes


def number():
    return 3


def breaks():
    raise ValueError("it is broken")
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the reader's, which processes find, too."""
    (tmp_path / "my_nets.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")


@pytest.mark.parametrize(
    ("label", "net"),
    [
        ("1 device", "make"),
        *((f"2 devices, {words}, hybrid", net) for words, net in zip(resnet.TRAINERS.values(), ("make", "drops") * 3)),
    ],
)
def test_a_network_of_ones_own_trains_to_equal_parameters(label, net, mine):
    s = little(Question(resnet), kind="cpu", net=f"my_nets:{net}")
    case = next(case for case in resnet.cases(s) if case.label == label)
    checked, wrong = count(resnet.oracle(case, s))
    assert checked > 500
    assert wrong == 0
    resnet.set_up(case, s).round()


def test_a_network_that_cannot_be_hybridised_has_an_answer_from_its_plain_rows(mine, tmp_path):
    question = Question(resnet)
    found = run.run(question, "quick", little(question, kind="cpu", net="my_nets:plain"), tmp_path, lambda *_: None)
    assert (found["status"], found["error"]) == ("ok", None)
    assert sum("hybrid" in label for label in found["skipped"]) == len(found["skipped"]) == 4
    assert all(why.startswith("my_nets:plain can't be hybridised: ") for why in found["skipped"].values())
    assert re.match("On 2 devices an epoch of my_nets:plain by mxdp.Trainer ", told(question, [found]).sentence)


def test_the_oracle_of_ones_own_network_finds_gradients_that_are_not_summed(mine, monkeypatch):
    monkeypatch.setattr(gluon.Trainer, "_allreduce_grads", lambda self: None)
    s = little(Question(resnet), kind="cpu", net="my_nets:make")
    assert count(resnet.oracle(CASES["2 devices, mxdp's store"], s))[1] > 0


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nosuch:make", r"can't be used \(ModuleNotFoundError: No module named 'nosuch'\): give a function"),
        ("my_nets:nosuch", "can't be used .AttributeError: .* has no attribute 'nosuch'"),
        ("my_nets:breaks", "can't be used .ValueError: it is broken.: give"),
        ("my_nets:number", "returns int: it must return a gluon network"),
        ("my_nets:many", r"makes scores of the shape \(2, 5\) of two samples, not \(2, 10\): write many.classes = "),
    ],
)
def test_a_network_that_cannot_be_trained_is_a_sentence(where, said, mine):
    your_net.try_out("my_nets:make")
    with pytest.raises(UsageError, match=f"^--net {where} {said}"):
        your_net.try_out(where)


def test_samples_of_another_shape_are_a_sentence(mine, monkeypatch):
    monkeypatch.setattr(importlib.import_module("my_nets").make, "shape", (1, 8, 8))
    with pytest.raises(UsageError) as error:
        your_net.try_out("my_nets:make")
    said = str(error.value)
    assert said.startswith("--net my_nets:make can't take samples of the shape (1, 8, 8) (")
    assert "write their shape below the function, make.shape = ..., and use operators" in said
    assert "\n" not in said


def test_such_a_network_is_refused_before_anything_is_measured(mine, capsys, tmp_path):
    with pytest.raises(UsageError, match="my_nets:number returns int"):
        list(resnet.cases(little(Question(resnet), net="my_nets:number")))
    assert main(["run", "resnet", "--net", "nosuch", "--out", str(tmp_path)]) == 2
    assert "resnet: net must be MODULE:FUNCTION, as in mine:make, not 'nosuch'" in capsys.readouterr().err
