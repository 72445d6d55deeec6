from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import find
from mxdp.experiments.harness.results import TIMELINE
from mxdp.experiments.report import style
from mxdp.experiments.report.pictures import marked, timelines
from mxdp.tracing import Event, Timeline, read_trace

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"
RECORDED = Timeline(
    0.003, (Event("cpu(0)", "dot", "compute", 0.0, 0.002), Event("cpu(1)", "dot", "compute", 0.001, 0.003))
)


def result(*metrics):
    rows = [{"label": f"Row {number}, so", "metrics": each} for number, each in enumerate(metrics)]
    return {"experiment": "some", "rows": rows[:1], "references": rows[1:]}


def test_rows_say_which_rounds_were_disturbed_if_any_were():
    for elsewhere in ([], [0.0, None]):
        calm = {**result({}, {}), "disturbance": {"elsewhere": elsewhere}}
        assert marked(calm) == calm
    rows = marked({**result({}, {}), "disturbance": {"elsewhere": [0.5, 0.0]}})
    assert [row["disturbed"] for row in rows["rows"] + rows["references"]] == [[True, False]] * 2


def test_a_row_with_a_timeline_gets_a_picture_and_a_trace(tmp_path):
    (shown,) = timelines(result({TIMELINE: RECORDED.to_json()}, {}), tmp_path)
    assert shown["label"] == "Row 0, so"
    assert "<svg" in shown["picture"]
    assert shown["trace"] == "timelines/some.row-0-so.trace.json"
    assert read_trace(tmp_path / shown["trace"]) == RECORDED
    assert (tmp_path / "timelines" / "some.row-0-so.svg").read_text().count("<path") > 4


def test_references_have_theirs_too(tmp_path):
    assert len(timelines(result({TIMELINE: RECORDED.to_json()}, {TIMELINE: RECORDED.to_json()}), tmp_path)) == 2


def test_labels_that_differ_in_signs_alone_share_neither_a_file_nor_an_id(tmp_path):
    rows = [{"label": label, "metrics": {TIMELINE: RECORDED.to_json()}} for label in ("2 devices", "2 Devices!", "+")]
    shown = timelines({"experiment": "some", "rows": rows[:1], "references": rows[1:]}, tmp_path)
    assert len({each["trace"] for each in shown}) == 3
    assert len(list((tmp_path / "timelines").iterdir())) == 6
    ids = [name for each in shown for name in re.findall(r'\bid="([^"]*)"', each["picture"])]
    assert len(ids) == len(set(ids)) > 3


def test_without_one_nothing_is_written(tmp_path):
    assert timelines(result({}, {TIMELINE: None}), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_one_is_named_in_its_place(tmp_path):
    damaged = json.loads(json.dumps(RECORDED.to_json()))
    del damaged["lanes"][0]["steps"]
    (shown,) = timelines(result({TIMELINE: damaged}), tmp_path)
    assert (shown["picture"], shown["trace"]) == (None, "")
    assert "could not be drawn (TraceError: this timeline is damaged" in shown["problem"]


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*/*.json")), ids=lambda path: path.stem)
def test_in_a_committed_results_picture_no_text_is_cut_off_or_covered_by_another(path):
    result = results.read(path)
    found = []

    def draw(figure):
        find(result["experiment"]).draw(result, figure)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        legends = [text for legend in figure.legends for text in legend.get_texts()]
        texts = [text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label, axes.yaxis.label)]
        boxes = [text.get_window_extent() for text in texts + legends if text.get_text()]
        found.append((figure.bbox, boxes))

    style.svg(draw, "a")
    whole, boxes = found[0]
    assert boxes
    for number, box in enumerate(boxes):
        assert whole.padded(1).contains(*box.min), box
        assert whole.padded(1).contains(*box.max), box
        # A box has room for letters that go below the line: boxes of lines without them may touch.
        assert not any(box.padded(-2).overlaps(other.padded(-2)) for other in boxes[:number])
