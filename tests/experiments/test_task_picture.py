from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.automatic_parallelism import task_picture
from mxdp.experiments.automatic_parallelism.task_graph import GraphTask
from mxdp.experiments.report import style
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


def test_boxes_have_names_and_times_in_their_devices_column():
    found = texts(drawn()[1])
    assert {"a", "b", "c", "d", "cpu(0)", "gpu(1)"} <= set(found)
    # Milliseconds since the first of them began.
    assert {"0.0 – 1000.0 ms", "1000.0 – 1500.0 ms", "1000.0 – 2250.0 ms", "2250.0 – 3000.0 ms"} <= set(found)
    assert found["b"][0] == found["gpu(1)"][0] == 1
    assert found["d"][0] == found["cpu(0)"][0] == 0


def test_columns_may_change_places():
    found = texts(drawn(columns=[1, 0])[1])
    assert found["b"][0] == found["gpu(1)"][0] == 0


def test_every_need_has_an_arrow_and_those_across_another_colour():
    arrows = [text.arrow_patch for text in drawn()[1].texts if getattr(text, "arrow_patch", None)]
    colours = [arrow.get_edgecolor() for arrow in arrows]
    assert len(colours) == 4
    assert len(set(colours)) == 2
    assert sum(colour == colours[0] for colour in colours) == 2


def test_the_figure_gets_the_height_that_both_parts_need():
    figure, _ = drawn()
    task_picture.fit(figure, bars=3)
    low = figure.get_figheight()
    task_picture.fit(figure, bars=5, width=7.0)
    assert figure.get_figheight() - low == pytest.approx(2 * style.BAR_HEIGHT)
    assert figure.get_figwidth() == 7.0


def test_a_simulated_graph_can_be_drawn_too():
    tasks = TASKS[:3]
    assert task_picture.rows_of(tasks, simulate([tasks], cores=2))["c 0"] == 1
