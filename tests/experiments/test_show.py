"""What people see of results: every number, nothing else, and a page that stands alone."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import types
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import matplotlib
import pytest
from littles import record
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.lab import Number, Row, result
from mxdp.experiments.lab.module import EXTRA_MODULES, Question
from mxdp.experiments.lab.told import Claim
from mxdp.experiments.show import page, pictures, style, terminal, words
from mxdp.tracing import Event, Timeline
from mxdp.tracing.chrome import chrome_trace

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"
RECORDED = Timeline(
    0.003, (Event("cpu(0)", "dot", "compute", 0.0, 0.002), Event("cpu(1)", "x", "compute", 0.001, 0.003))
)


def question(**parts):
    module = types.ModuleType("fake", "Is it <b>faster</b> & [bold]right[/bold]?\n")
    usual = dict.fromkeys(("cases", "expect", "oracle", "set_up"))
    module.__dict__.update(usual, PRESETS={"quick": {}}, SOURCE="a <deck>", tell=tell)
    module.__dict__.update(parts)
    return Question(module)


def tell(t, s):
    one = t.one(label="1 device")
    for row in t:
        row.speedup = one.seconds / row.seconds
    t.column("device_names", "devices")
    t.column("seconds", "median s", about="the time of a <round>")
    t.column("speedup", "speed-up", form=".2f", unit="x", spread=True)
    t.column("accuracy", form=".1%")
    t.claim("At least 1.8 times as <fast>.", t.one(label="2 devices").speedup, at_least=1.8, source="a deck")
    t.answer(f"Two devices are {t.rows[-1].speedup:.2f} times as fast.")
    t.explain("They share nothing.")
    t.bars()
    t.bars("speedup", "x", title="Speed-up")


def broken(t, s):
    t.column("nosuch", "missing")
    t.column("seconds", "wrong", form="no format")
    t.answer("It is 1.")
    t.draw(lambda axes: axes["<nosuch>"])


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """The questions that are installed, for one test."""
    found = {name: question() for name in ("fake", "twin")}
    found["broken"] = question(tell=broken)
    monkeypatch.setattr(words, "discover", lambda: found)
    return found


def failed(status, error, name="fake"):
    return record(name, status=status, error=error, rows=[], oracle={"checked": 0, "wrong": 0, "text": ""})


def printed(runs, width=80, styles=False, why=True):
    console = Console(width=width, record=True, file=io.StringIO(), color_system="standard", force_terminal=True)
    terminal.print_result(runs, console, why)
    return console.export_text(styles=styles)


def cells(runs):
    about = words.shown(runs).told
    return terminal.tables(about, about.rows)[0]


class Page(HTMLParser):
    """The parts of a page that tests ask for; a tag that is not closed in order is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in {"meta", "link", "br", "img", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    def words(self):
        return " ".join(" ".join(self.text).split())

    def attributes(self, name):
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def made(folder, *found, slides=False):
    for one in found:
        result.write(one, folder)
    path = page.write_report(folder, slides=slides)
    assert path == folder / ("slides.html" if slides else "report.html")
    return Page(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_a_terminal_loses_nothing_in_any_width(width):
    lines = printed([record()] * 6, width).splitlines()
    assert max(map(len, lines)) <= width
    text = re.sub(r"[\s─]", "", "".join(lines))
    for cell in ("0.900", "2.00x", "84.0%", "1,234", "ceiling", "6runs,with18processesinall"):
        assert cell in text or width < 50, cell
    if width < 50:  # cells are folded over lines: then each character is still there
        assert sorted(text) == sorted(re.sub(r"[\s─]", "", printed([record()] * 6, 200)))


def test_a_newcomer_gets_the_answer_the_table_and_one_line():
    text = printed([record()], why=False)
    assert "Two devices are 2.00 times as fast." in text
    assert "3 processes in one run, too few for an interval; equal to the serial run; 0 of 1 claim" in " ".join(
        text.split()
    )
    assert "At least 1.8" not in text
    assert len(text.splitlines()) <= 20


@pytest.mark.parametrize(
    ("elsewhere", "busy"), [([0.3] + [0.0] * 3, True), ([0.3] + [0.1] * 4, False), ([None], False)]
)
def test_an_answer_that_a_busy_machine_gave_is_marked_wherever_it_is_shown(elsewhere, busy, tmp_path):
    found = record(elsewhere=elsewhere, rows=[{**row, "processes": row["processes"] * 2} for row in record()["rows"]])
    pages = [made(tmp_path, found, slides=slides).words() for slides in (False, True)]
    for text in (printed([found], why=False), *pages):
        assert ("as fast. (measured on a busy machine)" in " ".join(text.split())) is busy


@pytest.mark.parametrize(
    ("processes", "runs", "mark"),
    [
        (1, 1, "one look: 1 process, no interval"), (5, 1, "one look: 5 processes, no interval"), (6, 1, ""),
        (2, 2, "2 runs: 4 processes, no interval"), (3, 2, ""), (1, 6, ""),
    ],
)  # fmt: skip
def test_an_answer_of_too_few_processes_for_an_interval_says_so_wherever_it_is_shown(processes, runs, mark, tmp_path):
    rows = [{**row, "processes": (row["processes"] * 2)[:processes]} for row in record()["rows"]]
    found = [record(rows=rows, elsewhere=[], started=f"2025-01-0{day}T03:04:05+00:00") for day in range(1, runs + 1)]
    pages = [made(tmp_path, *(found if slides else ()), slides=slides).words() for slides in (True, False)]
    for text in (printed(found, why=False), *pages):
        (after,) = {after.strip() for after in re.findall(r"as fast\.( \([^)]*\))?", " ".join(text.split()))}
        assert after == (f"({mark})" if mark else "")


CLASSES = {"1;32": "yes", "1;33": "no", "1;36": "unknown", "1;31": "bad"}
ENDINGS = [
    (failed("failed", "it fell"), "failed", "1;31"),
    (failed("timeout", "it hung"), "timed out", "1;31"),
    (failed("skipped", "no GPU"), "skipped", "1;36"),
    (record(oracle={"checked": 9, "wrong": 1, "text": ""}), "wrong numbers", "1;31"),
]


@pytest.mark.parametrize(("found", "said", "colour"), ENDINGS, ids=[said for _, said, _ in ENDINGS])
def test_each_ending_has_its_words_and_colour(found, said, colour, tmp_path):
    assert re.search(rf"\x1b\[{colour}m{said} *\x1b\[0m", printed([found], styles=True))
    assert ("measured" in printed([found], why=False)) is bool(found["rows"])
    html = made(tmp_path, found)
    assert html.attributes("class").count(f"badge {CLASSES[colour]}") >= 2  # in the summary and in its own section
    assert f"{said.capitalize()}." in made(tmp_path, slides=True).words()


@pytest.mark.parametrize(
    ("seconds", "elsewhere", "said", "colour"),
    [
        ([0.5] * 6, 0.0, "holds", "1;32"),
        ([2.0] * 6, 0.0, "does not hold", "1;33"),
        ([0.2, 3.0] * 3, 0.0, "undecided", "1;36"),
        ([2.0] * 6, 0.3, "can't tell: other programs took 30%", "1;36"),
    ],
)
def test_each_claim_has_its_mark(seconds, elsewhere, said, colour, tmp_path):
    found = record(elsewhere=[elsewhere] * 6)
    found["rows"][0]["processes"] = [{"seconds": 1.0, "accuracy": 0.5} for _ in seconds]
    found["rows"][1]["processes"] = [{"seconds": own + 0.001 * n, "accuracy": 0.5} for n, own in enumerate(seconds)]
    found["rows"][2]["processes"] = [{"seconds": 1.0} for _ in seconds]
    assert f"\x1b[{colour}m{said}\x1b[0m: At least 1.8 times" in printed([found], styles=True)
    assert words.summary(words.shown([found])).endswith(", 1 undecided") is (colour == "1;36")
    html = made(tmp_path, found)
    assert [name for name in html.attributes("class") if name.startswith("badge")] == [
        f"badge {CLASSES[colour]}", "badge yes",
    ]  # fmt: skip
    assert f"{said} At least 1.8 times as <fast>. (a deck) Here: 2 devices" in html.words()


def test_a_claim_of_counts_is_judged_on_a_busy_machine_too():
    s = words.shown([record(elsewhere=[0.3])])
    s.told.claims = {"Equal.": Claim("Equal.", "ours", 0, False, True, [Number([0, 0])])}
    assert [line[1] for line in words.claim_lines(s)] == ["holds"]


def test_a_table_that_does_not_seem_to_add_up_says_why_and_no_other_does(tmp_path):
    found = record()
    assert terminal.NO_SUM not in printed([found], why=False)
    found["rows"][0]["processes"][1]["seconds"] = 4.0
    assert terminal.NO_SUM in " ".join(printed([found], why=False).split())
    assert terminal.NO_SUM in made(tmp_path, found).words()


def test_a_run_that_is_left_out_is_named():
    older, found = record(), record(started="2025-01-03T03:04:05+00:00")
    older["rows"][0]["processes"][1]["accuracy"] = None
    text = " ".join(printed([older, found]).split())
    assert "3 processes in one run, too few for an interval. The run of 2025-01-02T03:04:05+00:00 is left out" in text


def test_a_long_table_shows_the_rows_that_answer_and_the_page_has_all(tmp_path, known):
    known["fake"] = question(tell=lambda t, s: (tell(t, s), t.first(t.rows[1:])))
    text = printed([record()])
    assert "1 more row: in report.html" in text
    table, _ = text.split("1 more row")
    assert ("1 device " in table, "2 devices" in table, "ceiling" in table) == (False, True, True)
    html = made(tmp_path, record())
    assert re.search(r"accuracy 2 devices .*ceiling .*All 2 rows .*accuracy 1 device .*2 devices", html.words())


def test_the_colours_of_a_child_do_not_reach_the_reader(tmp_path):
    made(tmp_path, failed("failed", "it said \x1b[35mhelp\x1b[0m \udc80"))
    runs = result.read_folder(tmp_path)["fake"]
    for text in (printed(runs), (tmp_path / "report.html").read_text(encoding="utf-8")):
        assert "it said help \\udc80" in text
        assert "\x1b" not in text


def test_a_cell_that_raises_spoils_no_table():
    assert cells([record("broken")]).rows[0] == ["1 device", "–", "?"]


def test_truths_are_yes_or_no(known):
    found = record()
    for row, values in zip(found["rows"], ([True] * 3, [True, False, True])):
        row["processes"] = [{**own, "in_sync": value} for own, value in zip(row["processes"], values)]
    known["fake"] = question(tell=lambda t, s: t.column("in_sync"))
    assert [row[1] for row in cells([found]).rows] == ["yes", "no"]


@pytest.mark.parametrize(
    ("texts", "right"),
    [(["1.00x"], True), (["12 ms", "<1 ms"], True), (["1,234", "-5"], True), (["83 %", "3e-07"], True),
     (["2 devices"], False), (["1", "yes"], False), (["cpu(0)"], False)],
)  # fmt: skip
def test_columns_of_numbers_are_set_to_the_right(texts, right, known):
    found = record(rows=record()["rows"][: len(texts)])
    for row, text in zip(found["rows"], texts):
        row["facts"]["x"] = text
    known["fake"] = question(tell=lambda t, s: t.column("x"))
    assert cells([found]).right == [False, right]


def test_the_page_says_everything_of_a_result(tmp_path):
    said = made(tmp_path, record()).words()
    for text in (
        "mxdp: 1 experiment ", "a <deck>", "2.0 on 2 cores", "'median s': the time of a <round>.",
        "Measured at 0.2.0 (0123456), Example <CPU> (family 25, model 17, AVX-512), 2 cores, 2025-01-02: 1 run. It",
        "Machine Example <CPU> (family 25, model 17, AVX-512), 2 cores, 8.0 GiB of memory",
        "Python 3.11.7, mxnet 1.9.1, numpy 1.23.5", "Commit 0123456789ab",
        "devices median s speed-up accuracy 1 device cpu(0) 2.00 1.00x 83.0% 2 devices",
        "Equal to the serial run: 1,234 numbers checked, 0 wrong (every [red] gradient).",
        "Two devices are 2.00 times as fast. (one look: 3 processes, no interval; measured on a busy machine) They",
        "In 1 of 2 processes other programs took 31% to 31% of the processors' time.",
        "Preset quick: devices 1, 2; lr 0.2; data_dir –; processes 3. Measured 2025-01-02 03:04 UTC, in 12 s.",
        "OMP_NUM_THREADS: 1.", "1 device 2.000, 1.000, 4.000",
    ):  # fmt: skip
        assert text in said, text


def timed(name="fake"):
    found = record(name)
    found["rows"][0]["facts"]["timeline"] = RECORDED.to_json()
    return found


@pytest.mark.parametrize("slides", [False, True])
def test_a_page_stands_alone_and_only_its_own_script_may_run(slides, tmp_path):
    evil = "</script><script>alert(1)</script>"
    found = timed()
    found["rows"][0]["facts"]["timeline"] = Timeline(1.0, [Event("cpu(0)", evil, "compute", 0.0, 0.5)]).to_json()
    html = made(tmp_path, found, record("twin"), failed("failed", "it fell", "broken"), slides=slides)
    text = (tmp_path / ("slides.html" if slides else "report.html")).read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|\son\w+=", text)
    assert set(html.attributes("href")) <= {f"#{name}" for name in html.attributes("id")} | {"data:,"}
    assert {source.split(",")[0] for source in html.attributes("src")} == {"data:image/svg+xml"}
    script = re.findall(r"<script>(.*?)</script>", text, re.S)[-1]
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in text
    if not slides:
        (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.S)
        assert json.loads(data)["names"] == [evil]


def test_the_page_is_accessible_and_text_is_no_markup(tmp_path, known):
    evil = '<script>alert("x")</script>'
    wild = record("nosuch", prediction=evil, error=evil, status="failed", settings={evil: evil}, question=evil)
    wild["rows"][0]["label"] = evil
    html = made(tmp_path, record(), wild)
    assert "script" not in {tag for tag, _ in html.tags}
    assert html.words().count(evil) >= 6
    assert dict(html.tags)["html"] == {"lang": "en"}
    assert [tag for tag, _ in html.tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2", "h2"]
    assert {attrs.get("scope") for tag, attrs in html.tags if tag == "th"} == {"row", "col"}
    boxes = [attrs for _, attrs in html.tags if attrs.get("class") == "scroll"]
    assert boxes
    assert {(box["tabindex"], box["role"]) for box in boxes} == {("0", "region")}
    assert all(name in html.attributes("id") for name in html.attributes("aria-labelledby"))


def test_a_slide_has_a_sentence_and_a_picture_and_the_rest_is_in_notes(tmp_path):
    html = made(tmp_path, timed(), failed("timeout", "line one\nline two", "twin"), record("broken"), slides=True)
    assert sorted(path.name for path in tmp_path.glob("*.[hs]*")) == ["slides.html"]
    assert [tag for tag, _ in html.tags if tag in ("section", "h2", "figure", "aside")] == [
        *("section", "h2", "aside"),  # broken: its picture fails
        *("section", "h2", "figure", "aside", "section", "h2", "figure"),  # and its timeline
        *("section", "h2", "aside"),
    ]
    said = html.words()
    heading = (
        "Two devices are 2.00 times as fast. (one look: 3 processes, no interval; measured on a busy machine) fake"
    )
    assert f"{heading} preset quick, measured 2025-01-02 03:04 UTC They share" in said
    assert "Timed out. line one line two twin" in said
    assert "Recorded: 1 device." in said
    assert (
        "Measured: at 0.2.0 (0123456), Example <CPU> (family 25, model 17, AVX-512), 2 cores, 2025-01-02: 1 run."
        in said
    )


def test_the_same_results_give_the_same_files_and_no_picture_is_written_twice(tmp_path):
    made(tmp_path, timed(), record("twin"))
    first = {path: (path.read_bytes(), path.stat().st_ino) for path in tmp_path.rglob("*.*g")}
    assert [path.name for path in sorted(first)] == ["fake.svg", "fake.1-device.svg", "twin.svg"]
    page.write_report(tmp_path)
    assert {path: (path.read_bytes(), path.stat().st_ino) for path in first} == first
    shown = [unquote(source) for source in Page((tmp_path / "report.html").read_text("utf-8")).attributes("src")]
    assert f"data:image/svg+xml,{(tmp_path / 'twin.svg').read_text(encoding='utf-8')}" in shown


def test_a_picture_that_fails_is_a_sentence_and_the_rest_is_there(tmp_path):
    (tmp_path / "broken.svg").write_text("from a run before")
    html = made(tmp_path, record("broken"), record(), record("nosuch"), failed("failed", "it fell", "twin"))
    assert "The picture of broken can't be drawn (TypeError: 'Axes' object is not subscriptable)." in html.words()
    assert not (tmp_path / "broken.svg").exists()
    assert (
        "There is no picture of nosuch: this installation has no experiment of that name; MXDP_EXPERIMENTS names"
        in html.words()
    )
    assert "There is no picture of twin: nothing was measured; measure it again." in html.words()
    assert len(html.attributes("src")) == 1


def test_what_differs_between_machines_is_not_said_of_all(tmp_path):
    other = record("twin", started="2024-01-02T03:04:05+00:00")
    other["environment"]["commit"] = "feedfacecafe"
    said = made(tmp_path, record(), other).words()
    head = said[: said.index("The questions and what this run says")]
    assert "Commit differs: see each experiment" in head
    assert "Measured at 2 commits, feedfac to 0123456, Example" in head
    assert "2024-01-02 to 2025-01-02: 1 run. It took 25 s in all." in head
    assert said.count("feedfacecafe") == 1  # below its table


def test_a_report_says_of_a_result_what_it_has_otherwise_than_most(tmp_path):
    close = [record("twin", started=f"2025-01-02T03:{minute}:05+00:00") for minute in ("04", "24")]
    said = made(tmp_path, record(), record("broken"), *close).words()
    assert "2 cores, 2025-01-02: 1 run. It took 50 s in all." in said
    assert "another hour may differ by more than the interval. Here: 2 runs 20 min apart." in said
    assert said.count("Here: 1 run") == said.count("Here: 2 runs") - 1 == 0


OWN = """'How long does it take?'
PRESETS = {"quick": {}}
cases = expect = oracle = set_up = None
def tell(t, s):
    t.bars()
"""


def test_a_report_needs_no_mxnet_and_knows_a_teachers_own_question(tmp_path):
    (tmp_path / "mxnet.py").write_text("")  # whoever imports it is found out, with or without MXNet installed
    (tmp_path / "own.py").write_text(OWN)
    result.write(record("own"), tmp_path / "out")
    code = (
        "import sys; from mxdp.experiments.__main__ import main; main(['report', sys.argv[1]]); main(['list']); "
        "print(sorted({'mxnet', 'torch', 'scipy', 'sklearn', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(page.__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": path, EXTRA_MODULES: "own"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["own", "own.svg", "report.html"]


# Pictures


def one_line(figure):
    figure.subplots().plot([1, 2], [3, 4], "o-", clip_on=True)


def test_the_same_drawing_is_the_same_file_and_a_failed_one_leaves_matplotlib_as_it_was():
    for form in ("svg", "pdf", "png"):
        assert pictures.saved(one_line, "a", form) == pictures.saved(one_line, "a", form)
    assert b"dc:date" not in pictures.saved(one_line, "a", "svg")
    before = dict(matplotlib.rcParams)
    with pytest.raises(ZeroDivisionError):
        pictures.saved(lambda figure: 1 // 0, "a", "svg")
    assert dict(matplotlib.rcParams) == before


def test_a_timeline_gets_a_picture_and_a_trace_and_a_damaged_one_is_named(tmp_path):
    found = timed()
    found["rows"][1].update(label="1 Device!", facts={"timeline": json.loads(json.dumps(RECORDED.to_json()))})
    del found["rows"][1]["facts"]["timeline"]["lanes"][0]["steps"]
    whole, damaged = pictures.timelines(words.shown([found]), tmp_path)
    assert whole["trace"] == "timelines/fake.1-device.trace.json"
    assert json.loads((tmp_path / whole["trace"]).read_text()) == json.loads(json.dumps(chrome_trace(RECORDED)))
    assert (damaged["picture"].source, damaged["trace"]) == ("", "")
    assert "could not be drawn (TraceError: this timeline is damaged" in damaged["picture"].problem


@pytest.mark.parametrize("panel", [1, 2])
def test_a_panel_has_the_whole_of_a_slides_picture(panel):
    about, found = words.shown([record()]).told, []
    about.draw(lambda axes: axes.annotate("small", (0, 0), size=4))

    def draw(figure):
        pictures.draw_told(about, figure, panel)
        found.append(figure)

    pictures.saved(draw, "a", "svg", slide=True)
    ((axes,),) = [figure.axes for figure in found]
    assert list(axes.figure.get_size_inches()) == list(style.SLIDE)
    assert axes.get_tightbbox().height > 0.6 * axes.figure.bbox.height
    assert min(text.get_fontsize() for text in axes.figure.findobj(Text)) >= style.SMALLEST


@pytest.mark.parametrize(
    ("form", "panel", "name", "start"),
    [
        ("png", None, "fake.png", b"\x89PNG"),
        ("pdf", 2, "fake-panel-2.pdf", b"%PDF"),
        ("svg", 1, "fake-panel-1.svg", b"<?xml"),
    ],
)
def test_one_picture_or_one_panel_of_it_is_exported(form, panel, name, start, tmp_path):
    result.write(record(), tmp_path)
    path = pictures.export(tmp_path, "fake", form, panel)
    assert path == tmp_path / name
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("name", "panel", "error", "said"),
    [
        ("fak", None, UsageError, r"no result of 'fak' in .*; did you mean 'fake'\?"),
        ("fake", 3, UsageError, "has panels 1 to 2, and no panel 3; give one that it has"),
        ("broken", None, MxdpError, "the picture of broken can't be drawn"),
        ("twin", None, UsageError, "there is no picture of twin: nothing was measured"),
        ("nosuch", None, UsageError, "this installation has no experiment of that name"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(name, panel, error, said, tmp_path):
    for found in (record(), record("broken"), failed("failed", "it fell", "twin"), record("nosuch")):
        result.write(found, tmp_path)
    with pytest.raises(error, match=said):
        pictures.export(tmp_path, name, "png", panel)


def test_bars_show_medians_whiskers_values_and_labels():
    axes = Figure().subplots()
    rows = [Row(label, False, {"seconds": Number(values)}) for label, values in (("one", [1.5, 2, 3]), ("two", [1.0]))]
    style.row_bars(axes, rows)
    assert [patch.get_width() for patch in axes.patches] == [2.0, 1.0]
    assert [list(line.get_xdata()) for line in axes.lines[0::2]] == [[1.5, 3.0], [1.0, 1.0]]
    assert [list(line.get_xdata()) for line in axes.lines[1::2]] == [[1.5, 2.0, 3.0], [1.0]]
    assert [text.get_text() for text in axes.texts] == ["one", "2.00 s", "two", "1.00 s"]


def test_a_picture_of_bars_says_what_bar_and_dots_are():
    axes = Figure().subplots()
    style.row_bars(axes, words.shown([record()]).told.rows, unit="ms")
    assert axes.get_xlabel() == "ms (bar: median, dots: processes)"


SEEDS, EQUAL = [0.3, 0.1, 0.4] * 6, [0.5] * 18


@pytest.mark.parametrize(
    ("rows", "of", "dots"),
    [
        ([SEEDS, EQUAL], "seeds", [[0.3, 0.1, 0.4], [0.5] * 3]),
        ([SEEDS, [*SEEDS[:-1], 0.9]], "runs", [[0.3] * 6] * 2),
        ([EQUAL], "runs", [[0.5] * 6]),
    ],
)
def test_if_all_runs_repeat_what_differs_by_seeds_dots_are_seeds(rows, of, dots):
    axes, runs = Figure().subplots(), [run for run in range(6) for _ in range(3)]
    style.row_bars(axes, [Row("", False, {"accuracy": Number(row, runs)}) for row in rows], "accuracy", "")
    assert axes.get_xlabel() == f"(bar: median, dots: {of})"
    assert [list(line.get_xdata()) for line in axes.lines[1::2]] == dots


# Every committed result


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.undo()


FOLDERS = sorted({path.parent for path in REFERENCE.glob("*/*/*/*.json") if path.parent.name != "timelines"})


def told_together(folder):
    (runs,) = result.read_folder(folder).values()
    return words.shown(runs, across_commits=True).told


def titles(axes):
    """Those of one line: the box of two is as wide as the longer, and the other may have room beside it."""
    found = [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, axes._right_title]
    return [text for text in found if "\n" not in text.get_text()]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_in_a_committed_results_picture_no_text_is_cut_off_or_covered_by_another(folder, installed):
    about = told_together(folder)
    found = []

    def draw(figure):
        pictures.draw_told(about, figure)
        FigureCanvasAgg(figure).draw()
        legends = [text for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]
        texts = [text for axes in figure.axes for text in (*axes.texts, *titles(axes))]
        boxes = [text.get_window_extent() for text in texts + legends if text.get_text()]
        found.append((figure.bbox, boxes))

    if about.rows:
        pictures.saved(draw, "a", "svg")
    for whole, boxes in found:
        assert boxes
        for number, box in enumerate(boxes):
            assert whole.padded(1).contains(*box.min), box
            assert whole.padded(1).contains(*box.max), box
            # A box has room for letters that go below the line: boxes of lines without them may touch.
            assert not any(box.padded(-2).overlaps(other.padded(-2)) for other in boxes[:number])


INTERVAL = re.compile(r" \([^()]+(?: to |, )[^()]+\)")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_answer_is_a_sentence_that_can_be_read_aloud(folder, installed):
    about = told_together(folder)
    said = about.sentence
    if not about.rows:
        return
    plain = [word for word in INTERVAL.sub("", said).split() if not re.search(r"\d", word)]
    assert len(re.findall(r"[.!?](?=\s|$)", said)) == 1, said
    assert said.endswith(".")
    assert len(plain) <= 30, said
    assert len(INTERVAL.findall(said)) <= 2, said
    assert not re.match(r"\W*(can't tell|failed|holds|does not hold|undecided)\b", said, re.IGNORECASE)
    assert not re.search(r"\([^()]*\(", said)
    assert re.search(r"\d", said)
    slide = [word for word in INTERVAL.sub("", words.spoken(said)).split() if not re.search(r"\d", word)]
    assert len(slide) <= words.SPOKEN, words.spoken(said)


def test_no_text_on_a_slide_is_less_than_14_pixels_high(installed, tmp_path):
    """At 1280 x 720 a rem has 10 pixels, and a picture is as wide as a slide without its padding."""
    for folder in FOLDERS:
        shutil.copytree(folder, tmp_path / folder.name)
    text = page.write_report(tmp_path, slides=True, across_commits=True).read_text(encoding="utf-8")
    sizes = [10 * float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)rem", text)]
    width = 1280 - 2 * 10 * float(re.search(r"padding: [\d.]+rem ([\d.]+)rem", text)[1])
    shown = [unquote(source) for source in Page(text).attributes("src")]
    assert len(shown) >= len(FOLDERS) - 3
    for picture in shown:
        points = float(re.search(r'viewBox="0 0 ([\d.]+) ', picture)[1])
        # A letter's outline is drawn for 100 points.
        letters = [100 * float(scale) for scale in re.findall(r"scale\(([\d.]+) -[\d.]+\)", picture)]
        assert letters
        assert len(set(re.findall(r'id="(axes_\d+)"', picture))) <= 4
        sizes += [size * width / points for size in letters]
    assert min(sizes) >= 14


@pytest.mark.parametrize("shown", ["1.86 (1.85-1.89)", "1.86"])
@pytest.mark.parametrize("width", range(38, 50))
def test_a_short_heading_stays_in_a_line(width, shown):
    rows = [[f"{n} processes, nothing shared", shown, shown, "yes"] for n in (1, 2, 3, 4)]
    right = [False, shown == "1.86", shown == "1.86", False]
    table = terminal.for_terminal(terminal.Cells(["", "speed-up", "of ceiling", "in sync"], rows, [], right), width)
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    assert "in sync" in console.file.getvalue()
