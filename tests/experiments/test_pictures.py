from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import find
from mxdp.experiments.harness.results import TIMELINE
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import page, style
from mxdp.experiments.report.pictures import draw_result, export, marked, saved, timelines
from mxdp.tracing import Event, Timeline, read_trace

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"
RECORDED = Timeline(
    0.003, (Event("cpu(0)", "dot", "compute", 0.0, 0.002), Event("cpu(1)", "dot", "compute", 0.001, 0.003))
)


def result(*metrics):
    rows = [Row(f"Row {number}, so", metrics=each) for number, each in enumerate(metrics)]
    return {"experiment": "some", "rows": rows[:1], "references": rows[1:]}


def test_rows_say_which_rounds_were_disturbed_if_any_were():
    for elsewhere in ([], [0.0, None]):
        calm = {**result({}, {}), "disturbance": {"elsewhere": elsewhere}}
        assert marked(calm) == calm
    rows = marked({**result({}, {}), "disturbance": {"elsewhere": [0.5, 0.0]}})
    assert [row.disturbed for row in rows["rows"] + rows["references"]] == [[True, False]] * 2


def test_a_row_with_a_timeline_gets_a_picture_and_a_trace(tmp_path):
    (shown,) = timelines(result({TIMELINE: RECORDED.to_json()}, {}), tmp_path)
    assert shown["label"] == "Row 0, so"
    assert unquote(shown["picture"].source).endswith("</svg>\n")
    assert shown["trace"] == "timelines/some.row-0-so.trace.json"
    assert read_trace(tmp_path / shown["trace"]) == RECORDED
    assert (tmp_path / "timelines" / "some.row-0-so.svg").read_text().count("<path") > 4


def test_labels_that_differ_in_signs_alone_share_no_file(tmp_path):
    rows = [Row(label, metrics={TIMELINE: RECORDED.to_json()}) for label in ("2 devices", "2 Devices!", "+")]
    shown = timelines({"experiment": "some", "rows": rows[:1], "references": rows[1:]}, tmp_path)
    assert len({each["trace"] for each in shown}) == 3
    assert len(list((tmp_path / "timelines").iterdir())) == 6


def test_a_damaged_one_is_named_in_its_place(tmp_path):
    damaged = json.loads(json.dumps(RECORDED.to_json()))
    del damaged["lanes"][0]["steps"]
    (shown,) = timelines(result({TIMELINE: damaged}), tmp_path)
    assert (shown["picture"], shown["trace"]) == (None, "")
    assert "could not be drawn (TraceError: this timeline is damaged" in shown["problem"]


def one_line(figure):
    figure.subplots().plot([1, 2], [3, 4], "o-", clip_on=True)


def titles(axes):
    """Those of one line: the box of two is as wide as the longer, and the other may have room beside it."""
    found = [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, axes._right_title]
    return [text for text in found if "\n" not in text.get_text()]


def svg(draw, salt="a", panel=None):
    return saved(draw, salt, "svg", panel).decode("utf-8")


def test_the_same_drawing_is_the_same_text():
    first = svg(one_line)
    assert first == svg(one_line)
    assert first != svg(one_line, "b")
    assert "dc:date" not in first
    for form in ("pdf", "png"):
        assert saved(one_line, "a", form) == saved(one_line, "a", form)


def test_a_failed_drawing_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    with pytest.raises(ZeroDivisionError):
        svg(lambda figure: 1 // 0)
    assert dict(matplotlib.rcParams) == before


def figure_of(draw, panel):
    """The figure as it was saved."""
    found = []
    saved(lambda figure: (draw(figure), found.append(figure)), "a", "svg", panel)
    return found[0]


def two_above_one(figure):
    upper, middle = figure.subfigures(2).flat
    left, right = upper.subplots(1, 2)
    left.set(title="left", ylabel="numbers")
    left.plot([1, 2], [3, 4], label="own")
    right.plot([1, 2], [3, 4], label="foreign")
    image = right.imshow([[1, 2]])
    figure.colorbar(image, ax=right, label="scale", location="bottom")
    upper.suptitle("upper")
    lower = middle.subplots()
    lower.plot([1, 2], [5, 6], label="own")
    lower.annotate("small", (1, 5), size=4)
    figure.legend(*(left.get_legend_handles_labels()[0] + right.get_legend_handles_labels()[0], ["own", "foreign"]))


PANELS = [
    ({"left", "upper", "numbers", "own"}, {"foreign"}),
    ({"upper", "foreign"}, {"own"}),
    ({"small", "own"}, {"upper"}),
]


@pytest.mark.parametrize(("shown", "gone"), PANELS)
def test_a_panel_has_the_whole_of_a_slides_picture(shown, gone):
    panel = PANELS.index((shown, gone))
    figure = figure_of(two_above_one, panel)
    assert list(figure.get_size_inches()) == list(style.SLIDE)
    box = figure.axes[0].get_tightbbox()
    assert box.height > 0.6 * figure.bbox.height
    assert panel == 1 or box.width > 0.9 * figure.bbox.width  # pixels of an image stay square
    assert [axes.get_label() for axes in figure.axes] == ["", "<colorbar>"][: 1 + (panel == 1)]
    texts = figure.findobj(Text)
    said = {text.get_text() for text in texts}
    assert shown <= said
    assert not gone & said
    assert min(text.get_fontsize() for text in texts) >= style.SMALLEST


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    """Those of the committed results."""
    folder = tmp_path_factory.mktemp("reference")
    for path in REFERENCE.glob("*/*.json"):
        shutil.copy(path, folder)
    return page.write_report(folder, slides=True)


def pictures_of(text):
    return [unquote(html.unescape(source)) for source in re.findall(r'<img src="([^"]*)"', text)]


def test_no_text_on_a_slide_is_less_than_14_pixels_high(slides):
    """At 1280 x 720 a rem has 10 pixels, and a picture is as wide as a slide without its padding."""
    text = slides.read_text(encoding="utf-8")
    sizes = [10 * float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)rem", text)]
    width = 1280 - 2 * 10 * float(re.search(r"padding: [\d.]+rem ([\d.]+)rem", text)[1])
    pictures = pictures_of(text)
    all_results = [results.read(path) for path in slides.parent.glob("*.json")]
    skipped = sum(result["status"] == "skipped" for result in all_results)
    assert len(pictures) == text.count("<section>") - skipped >= len(all_results) - skipped
    for picture in pictures:
        points = float(re.search(r'viewBox="0 0 ([\d.]+) ', picture)[1])
        # A letter's outline is drawn for 100 points.
        letters = [100 * float(scale) for scale in re.findall(r"scale\(([\d.]+) -[\d.]+\)", picture)]
        assert letters
        sizes += [size * width / points for size in letters]
    assert min(sizes) >= 14


def test_a_slide_has_one_panel(slides):
    text = slides.read_text(encoding="utf-8")
    counts = [len(set(re.findall(r'id="(axes_\d+)"', picture))) for picture in pictures_of(text)]
    assert 1 in counts
    assert max(counts) <= 2  # a panel, and its colours' scale


EXPORTED = [
    ("png", None, "epochs.png", b"\x89PNG"),
    ("pdf", 2, "epochs-panel-2.pdf", b"%PDF"),
    ("svg", 1, "epochs-panel-1.svg", b"<?xml"),
]


@pytest.mark.parametrize(("form", "panel", "name", "start"), EXPORTED)
def test_one_picture_or_one_panel_of_it_is_exported(form, panel, name, start, tmp_path):
    shutil.copy(next(REFERENCE.glob("*/epochs.json")), tmp_path)
    path = export(tmp_path, "epochs", form, panel)
    assert path == tmp_path / name
    assert path.read_bytes().startswith(start)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["epochs.json", name])


def test_what_cannot_be_exported_is_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"there is no result of 'epoch' in .*; give a folder that"):
        export(tmp_path, "epoch", "png")
    shutil.copy(next(REFERENCE.glob("*/epochs.json")), tmp_path)
    with pytest.raises(
        UsageError, match=r"there is no result of 'epoch' in .*; did you mean 'epochs'\? There are: epochs"
    ):
        export(tmp_path, "epoch", "png")
    for panel in (0, 4):
        with pytest.raises(UsageError, match=rf"has panels 1 to 3, and no panel {panel}; give one that it has$"):
            export(tmp_path, "epochs", "png", panel)
    monkeypatch.setattr(type(find("epochs")), "draw", one_line)
    with pytest.raises(MxdpError, match=r"the picture of epochs can't be drawn \(TypeError: "):
        export(tmp_path, "epochs", "png")
    result = results.read(tmp_path / "epochs.json")
    results.write({**result, "rows": [], "references": []}, tmp_path)
    with pytest.raises(UsageError, match="there is no picture of epochs: nothing was measured; give"):
        export(tmp_path, "epochs", "png")
    results.write({**result, "experiment": "nosuch"}, tmp_path)
    with pytest.raises(UsageError, match="this installation has no experiment of that name"):
        export(tmp_path, "nosuch", "png")


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*/*.svg")), ids=lambda path: path.stem)
def test_in_a_committed_results_picture_no_text_is_cut_off_or_covered_by_another(path):
    result = results.read(path.with_suffix(".json"))
    found = []

    def draw(figure):
        draw_result(result, find(result["experiment"]), figure)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        legends = [text for legend in figure.legends for text in legend.get_texts()]
        texts = [text for axes in figure.axes for text in (*axes.texts, *titles(axes))]
        boxes = [text.get_window_extent() for text in texts + legends if text.get_text()]
        found.append((figure.bbox, boxes))

    svg(draw)
    whole, boxes = found[0]
    assert boxes
    for number, box in enumerate(boxes):
        assert whole.padded(1).contains(*box.min), box
        assert whole.padded(1).contains(*box.max), box
        # A box has room for letters that go below the line: boxes of lines without them may touch.
        assert not any(box.padded(-2).overlaps(other.padded(-2)) for other in boxes[:number])
