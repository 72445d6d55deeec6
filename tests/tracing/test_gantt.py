from __future__ import annotations

import io

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mxdp.errors import TraceError
from mxdp.tracing.gantt import LOOKS, boxes, draw, shorten
from mxdp.tracing.timeline import build

MS = 1000
TIMELINE = build(
    100 * MS,
    [
        ("cpu(0)", "Convolution", "compute", 0, 50 * MS),
        ("cpu(0)", "CopyCPU2CPU", "copy", 40 * MS, 60 * MS),
        ("cpu(1)", "_npi_multiply_scalar", "compute", 20 * MS, 90 * MS),
        ("cpu(1)", "elemwise_add", "all-reduce", 90 * MS, 100 * MS),
        ("cpu(1)", "DeleteVariable", "engine", 5 * MS, 5 * MS + 3),
        ("python", "input", "section", 0, 30 * MS),
        ("python", "step", "section", 0, 100 * MS),
        ("python", "MXNDArrayWaitAll", "wait", 30 * MS, 100 * MS),
    ],
)

COLOURS = {kind: colour for kind, (_, colour) in LOOKS.items()}


def drawn(timeline=TIMELINE, width=10, **more):
    figure = Figure(figsize=(width, 3), layout="constrained")
    draw(figure, timeline, **more)
    return figure


def bars(figure):
    """Colour to the (left, right, top, bottom) of its bars."""
    spans = {}
    for collection in figure.axes[0].collections:
        for path in collection.get_paths():
            box = path.get_extents()
            spans.setdefault(to_hex(collection.get_facecolor()[0]).upper(), []).append(
                tuple(round(float(edge), 2) for edge in (box.x0, box.x1, box.y0, box.y1))
            )
    return spans


def test_a_lane_a_device_and_colours_that_tell_kinds_apart():
    figure = drawn(title="a step")
    figure.savefig(io.BytesIO(), format="png")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cpu(0)\n60% busy", "cpu(1)\n80% busy", "Python"]
    assert (axes.get_xlabel(), "a step" in (axes.get_title(), axes.get_title(loc="left"))) == ("ms", True)
    spans = bars(figure)
    assert [span[:2] for span in spans[COLOURS["compute"]]] == [(0, 49.9), (20, 89.9)]
    assert [spans[COLOURS[kind]][0][:2] for kind in ("copy", "all-reduce")] == [(40, 59.9), (90, 99.9)]
    # Copies are below compute in the lane, so that overlap is visible.
    assert spans[COLOURS["copy"]][0][2] >= spans[COLOURS["compute"]][0][3]
    assert COLOURS["engine"] not in spans
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["compute", "copy", "all-reduce (sums)", "Python waits", "input"]


def test_what_runs_at_the_same_time_on_one_device_lies_in_strips():
    events = [
        ("cpu(0)", "dot", "compute", 0, 40 * MS),
        ("cpu(0)", "dot", "compute", 10 * MS, 50 * MS),
        ("cpu(0)", "dot", "compute", 40 * MS, 80 * MS),
        ("cpu(0)", "CopyCPU2CPU", "copy", 20 * MS, 60 * MS),
        ("cpu(0)", "mxdp job", "engine", 0, 30 * MS),
    ]
    figure = drawn(build(100 * MS, events))
    (left, right, top, bottom), (_, _, *again), (other_left, other_right, other_top, other_bottom) = bars(figure)[
        COLOURS["compute"]
    ]
    assert (left, right, other_left, other_right) == (0, 39.9, 10, 49.9)
    assert [top, bottom] == again
    assert bottom < other_top < other_bottom <= bars(figure)[COLOURS["copy"]][0][2]
    # Copies keep their strip, and the engine all of the upper part: it is drawn behind the work.
    assert bars(figure)[COLOURS["copy"]] == [(20, 59.9, 0.64, 0.92)]
    assert bars(figure)[COLOURS["engine"]] == [(0, 29.9, 0.08, 0.64)]
    names = {(text.get_text(), round(float(text.get_position()[1]), 2)) for text in figure.axes[0].texts}
    assert names == {("dot", 0.21), ("dot", 0.51), ("CopyCPU2CPU", 0.78)}


def test_a_short_sum_is_seen_and_one_close_to_the_next_does_not_cover_it():
    sums = [("cpu(0)", "elemwise_add", "all-reduce", int(at * MS), int(at * MS) + 10) for at in (20, 60.0, 60.5)]
    alone = [("cpu(1)", "dot", "compute", 0, 90 * MS), ("cpu(1)", "CopyCPU2CPU", "copy", 95 * MS, 100 * MS)]
    figure = drawn(build(100 * MS, sums + alone))
    assert [span[:2] for span in bars(figure)[COLOURS["all-reduce"]]] == [(20, 20.8), (60, 60.4), (60.5, 61.3)]
    assert "drawn wider" in figure.axes[0].get_xlabel()
    assert "wider" not in drawn(build(100 * MS, alone)).axes[0].get_xlabel()


def test_a_networks_pass_has_the_pass_as_its_name():
    passes = [("[Convolution,Pooling,_npi_mean", 0, 40), ("[_npi_ones_like,_backward_mean,_backward_Pooli", 40, 100)]
    whole = build(100 * MS, [("cpu(0)", name, "compute", start * MS, end * MS) for name, start, end in passes])
    assert [text.get_text() for text in drawn(whole).axes[0].texts] == ["forward", "backward"]
    assert shorten("abcdef", 5) == "abcd…"
    assert boxes(whole)["names"] == [f"forward {passes[0][0]}", f"backward {passes[1][0]}"]


def test_many_events_are_few_bars():
    spans = [(0, 60_000), (90_000, 150_000), (190_000, 200_000)]
    events = [("cpu(0)", "a", "compute", at, at + 40) for span in spans for at in range(*span, 50)]
    figure = drawn(build(200_000, events))
    assert [bar[:2] for bar in bars(figure)[COLOURS["compute"]]] == [(0, 59.79), (90, 149.79), (190, 199.79)]
    assert (len(figure.axes[0].collections), len(figure.axes[0].texts)) == (1, 0)


def test_a_part_and_no_work_no_picture():
    figure = drawn(start=0.05, stop=0.07)
    assert figure.axes[0].get_xlim() == pytest.approx((50, 70))
    assert bars(figure)[COLOURS["copy"]] == [(50, 59.98, 0.64, 0.92)]
    with pytest.raises(TraceError, match="no device worked"):
        drawn(build(100, [("python", "waitall", "wait", 0, 100)]))
