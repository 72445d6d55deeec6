from __future__ import annotations

from matplotlib.figure import Figure

from mxdp.experiments.automatic_parallelism import task_picture
from mxdp.experiments.automatic_parallelism.task_graph import GraphTask
from mxdp.plans.cost.simulate import simulate

TASKS = [
    GraphTask("a 0", 0),
    GraphTask("b 0", 1, ("a 0",)),
    GraphTask("c 0", 0, ("a 0",)),
    GraphTask("d 0", 0, ("b 0", "c 0", "not here")),
]
SPANS = {"a 0": (1.0, 2.0), "b 0": (2.0, 2.5), "c 0": (2.0, 3.25), "d 0": (3.25, 4.0)}


def drawn(columns=()):
    figure = Figure()
    axes = figure.subplots(2, 1)
    task_picture.graph(axes[0], TASKS, SPANS, ["cpu(0)", "gpu(1)"], lambda name: name[0], columns)
    return figure, axes[0]


def texts(axes):
    return {text.get_text(): text.get_position() for text in axes.texts if text.get_text()}


def test_a_task_is_below_what_it_needs_and_below_what_ran_before_it():
    assert task_picture.rows_of(TASKS, SPANS) == {"a 0": 0, "b 0": 1, "c 0": 1, "d 0": 2}


def test_every_need_has_an_arrow_and_those_across_another_colour():
    arrows = [text.arrow_patch for text in drawn()[1].texts if getattr(text, "arrow_patch", None)]
    colours = [arrow.get_edgecolor() for arrow in arrows]
    assert len(colours) == 4
    assert len(set(colours)) == 2
    assert sum(colour == colours[0] for colour in colours) == 2


def test_a_simulated_graph_can_be_drawn_too():
    tasks = TASKS[:3]
    assert task_picture.rows_of(tasks, simulate([tasks], cores=2))["c 0"] == 1
