"""What people see: every number of the JSON, nothing else, and a page that stands alone."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple
from urllib.parse import unquote

import pytest
from rich.console import Console

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.harness import experiment as registry
from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import Column, Experiment
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import page as report
from mxdp.experiments.report import style, words
from mxdp.tracing import Event, Timeline

VOID = {"meta", "link", "br", "img", "hr"}


class Fake(Experiment):
    name = "fake"
    question = "Is it <b>faster</b> & [bold]right[/bold]?"
    how_to_read = "Less is better."

    def columns(self) -> List[Column]:
        return [
            Column("devices", "devices"),
            Column("seconds", "median s"),
            Column("speedup", "speed-up", ".2f", unit="x"),
            Column("accuracy", "accuracy", ".1%"),
        ]

    def draw(self, result: Dict[str, Any], figure: Any) -> None:
        rows = result["rows"]
        low, high = [min(row.samples) for row in rows], [max(row.samples) for row in rows]
        axes = figure.subplots()
        style.bars(axes, [row.label for row in rows], [row.median for row in rows], low, high, "s")
        axes.plot([0, 1], [0, 1], "o-")


class Twin(Fake):
    name = "twin"


class Broken(Fake):
    name = "broken"

    def columns(self) -> List[Column]:
        return [Column("nosuch", "missing"), Column("seconds", "wrong", "no format")]

    def draw(self, result: Dict[str, Any], figure: Any) -> None:
        raise KeyError("<nosuch>")


@pytest.fixture(autouse=True)
def fakes() -> Iterator[None]:
    """The fakes are experiments for one test: others walk through all that are registered."""
    registry.discover()
    for cls in (Fake, Twin, Broken):
        registry.experiment(cls)
    yield
    for cls in (Fake, Twin, Broken):
        del registry._registry[cls.name]


def make(name: str = "fake", **changes: Any) -> Dict[str, Any]:
    result = json.loads((Path(__file__).parent / "result.json").read_text(encoding="utf-8"))
    return {**results.loaded(result), "experiment": name, **changes}


def failed(name: str, status: str, error: str) -> Dict[str, Any]:
    none = {"holds": None, "text": "", "claims": [], "busy": None, "noise": None}
    oracle = {"checked": 0, "wrong": 0, "text": ""}
    return make(name, status=status, error=error, rows=[], references=[], oracle=oracle, verdict=none)


def printed(result: Dict[str, Any], width: int = 80, styles: bool = False, explain: bool = False) -> str:
    console = Console(width=width, record=True, file=io.StringIO(), color_system="standard", force_terminal=True)
    report.print_result(result, console, explain)
    return console.export_text(styles=styles)


class Page(HTMLParser):
    """The parts of a page that tests ask for; a tag that is not closed in order is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: List[str] = []
        self.tags: List[Tuple[str, Dict[str, str]]] = []
        self.text: List[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def attributes(self, name: str) -> List[str]:
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def page(folder: Path, *found: Dict[str, Any], slides: bool = False) -> Page:
    for result in found:
        results.write(result, folder)
    path = report.write_report(folder, slides=slides)
    assert path == folder / ("slides.html" if slides else "report.html")
    return Page(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_print_result_loses_nothing_in_any_width(width: int) -> None:
    lines = printed(make(), width).splitlines()
    assert max(map(len, lines)) <= width
    text = re.sub(r"\s", "", "".join(lines))
    for cell in ("0.900", "2.22x", "84.0%", "1,234", "ceiling"):
        assert cell in text or width < 50, cell
    # In a narrow window cells are folded over lines: then each character is still there.
    if width < 50:
        wide = re.sub(r"[\s─]", "", printed(make(), 200))
        assert sorted(text.replace("─", "")) == sorted(wide)


def judged(holds: Optional[bool], **changes: Any) -> Dict[str, Any]:
    verdict = make()["verdict"]
    claims = [{**each, "holds": holds} for each in verdict["claims"]]
    return make(verdict={**verdict, "holds": holds, "claims": claims, **changes})


CLASSES = {"1;32": "yes", "1;33": "no", "1;36": "unknown", "1;31": "bad"}
ENDINGS = [
    (failed("fake", "failed", "it fell"), "failed", "1;31"),
    (failed("fake", "timeout", "it hung"), "timed out", "1;31"),
    (failed("fake", "skipped", "no GPU"), "skipped", "1;36"),
    (make(oracle={"checked": 9, "wrong": 1, "text": ""}), "wrong numbers", "1;31"),
]


@pytest.mark.parametrize(("result", "said", "colour"), ENDINGS, ids=[said for _, said, _ in ENDINGS])
def test_each_ending_has_its_words_and_colour(result: Dict[str, Any], said: str, colour: str, tmp_path: Path) -> None:
    assert re.search(rf"\x1b\[{colour}m{said} *\x1b\[0m", printed(result, styles=True))
    html = page(tmp_path, result)
    assert html.attributes("class").count(f"badge {CLASSES[colour]}") >= 2  # in the summary and in its own section
    assert f"Each leads to its numbers. {result['question']} {said}" in html.words()
    assert f"{said.capitalize()}." in page(tmp_path, result, slides=True).words()


JUDGED = [(True, "holds", "1;32"), (False, "does not hold", "1;33"), (None, "undecided", "1;36")]


@pytest.mark.parametrize(("holds", "said", "colour"), JUDGED)
def test_the_answer_stands_alone_and_each_claim_has_its_mark(
    holds: Optional[bool], said: str, colour: str, tmp_path: Path
) -> None:
    result = judged(holds)
    assert f"\x1b[{colour}m{said}\x1b[0m: At least 1.8 times" in printed(result, styles=True)
    html, answer = page(tmp_path, result), result["verdict"]["text"]
    assert [each for each in html.attributes("class") if each.startswith("badge")] == [
        f"badge {CLASSES[colour]}",
        "badge yes",  # equal to the serial run
    ]
    words = html.words()
    assert (
        f"Each leads to its numbers. {result['question']} {answer} fake {result['question']} {answer} {said}" in words
    )
    assert f"{said} At least 1.8 times as <fast>. (a deck) Here: 2 devices 2 (1.9 to 2.1)." in words


def sure(**changes: Any) -> Dict[str, Any]:
    result = make(disturbance={"elsewhere": [0.31, 0.0, 0.4]}, looks=2)
    for row in result["rows"] + result["references"]:
        row.rounds["repeat"] = [0] * len(row.samples)
    plan = {"why": "3 processes of 1 round, as the preset says."}
    return {**result, "settings": {**result["settings"], "looks": 3}, "plan": plan, **changes}


def test_it_says_how_sure_the_numbers_are(tmp_path: Path) -> None:
    noise = {"label": "1 device", "median": 1.0, "low": 0.99, "high": 1.02}
    result = sure(verdict={**make()["verdict"], "holds": None, "busy": 0.31, "noise": noise})
    sentences = (
        "3 rounds of each case, in 1 process: a single one gives no interval; more are added while a claim is open "
        "(once here).",
        "Rounds 1 and 3 were disturbed: 31% and 40% of the processors' time went elsewhere.",
        "1 device measured twice, as two cases: 1.000 (0.990 to 1.020) times as long.",
        "This machine was busy: 31% of its time went elsewhere.",
    )
    for text in (" ".join(printed(result).split()), page(tmp_path, result).words()):
        for sentence in sentences:
            assert sentence in text
    why = "3 processes of 1 round, as the preset says."
    assert why in page(tmp_path, result).words()
    assert (why in " ".join(printed(result, explain=True).split()), why in printed(result)) == (True, False)
    repeated = sure()
    for row in repeated["rows"] + repeated["references"]:
        row.samples, row.rounds["repeat"] = [1.0] * 12, [number // 2 for number in range(12)]
    assert "12 rounds of each case, in 6 processes; more" in words.sureness(repeated)


def test_a_long_table_shows_the_rows_that_answer_and_the_page_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fake, "answering", lambda self, rows: rows[1:])
    text = printed(make())
    assert "1 more row: in report.html and fake.json" in text
    table, _ = text.split("1 more row")
    assert ("1 device " in table, "2 devices" in table, "ceiling" in table) == (False, True, True)
    html = page(tmp_path, make())
    assert re.search(r"accuracy 2 devices .*ceiling .*All 2 rows .*accuracy 1 device .*2 devices", html.words())
    assert "Median times: 2 devices: 1.00 s." in html.attributes("alt")[0]


@pytest.mark.parametrize("answering", [lambda self, rows: rows, lambda self, rows: rows[0]["nosuch"]])
def test_a_table_is_whole_where_all_rows_answer_or_nobody_knows_which(
    answering: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fake, "answering", answering)
    assert "more row" not in printed(make())
    assert "1 device" in printed(make())
    assert "All 2 rows" not in page(tmp_path, make()).words()


def test_a_failure_says_why_in_red() -> None:
    text = printed(failed("fake", "failed", "the child [1] was killed (out of memory?)"), styles=True)
    assert "\x1b[31mthe child [1] was killed (out of memory?)\x1b[0m" in text
    assert "serial run" not in text


def test_the_colours_of_a_child_do_not_reach_the_reader(tmp_path: Path) -> None:
    result = failed("fake", "failed", "it said \x1b[35mhelp\x1b[0m \udc80")
    page(tmp_path, result)
    for text in (printed(results.read(tmp_path / "fake.json")), (tmp_path / "report.html").read_text(encoding="utf-8")):
        assert "it said help \\udc80" in text
        assert "\x1b" not in text


def test_an_unknown_experiment_has_columns_from_its_metrics() -> None:
    result = make("nosuch")
    result["rows"][0].metrics = {"in_sync": True, "loss": None, "deep": {"a": 1}, "rate": 12345.678, "n": 60000}
    cells = report.table(result, None)
    assert cells.headings == ["", "median s", "in sync", "loss", "rate", "n", "speedup", "accuracy"]
    assert cells.rows[0] == ["1 device", "2.00", "yes", "–", "12,345.7", "60,000", "–", "–"]
    assert cells.references == [["ceiling", "0.900", "–", "–", "–", "–", "2.2222", "–"]]
    assert cells.right == [False, True, False, False, True, True, True, True]
    assert "12,345.7" in printed(result)


def test_a_cell_that_raises_spoils_no_table() -> None:
    assert report.table(make("broken"), Broken()).rows[0] == ["1 device", "–", "?"]


NUMERIC = [
    (["1.00x", "–"], True),
    (["12 ms", "<1 ms"], True),
    (["1,234", "-5"], True),
    (["83 %", "3e-07"], True),
    (["2 devices"], False),
    (["1", "yes"], False),
    (["cpu(0)"], False),
    (["–"], False),
]


@pytest.mark.parametrize(("texts", "right"), NUMERIC)
def test_columns_of_numbers_are_set_to_the_right(texts: List[str], right: bool) -> None:
    result = make(rows=[Row("", metrics={"x": text}, samples=[1.0]) for text in texts], references=[])
    experiment = Fake()
    experiment.columns = lambda: [Column("x", "x")]  # type: ignore[method-assign]
    assert report.table(result, experiment).right == [False, right]


def test_the_page_says_everything_of_a_result(tmp_path: Path) -> None:
    result = make()
    words = page(tmp_path, result).words()
    for key in ("question", "source", "prediction", "how_to_read"):
        assert result[key] in words, key
    for text in (
        "mxdp: 1 experiment ",
        "2025-01-02 03:04 UTC, 12 s in all",
        "Example <CPU>, 2 cores, 8.0 GiB of memory",
        "Python 3.11.7, mxnet 1.9.1, numpy 1.23.5, mxdp 0.1.0",
        "Commit 0123456789ab",
        "devices median s speed-up accuracy 1 device cpu(0) 2.00 1.00x 83.0% 2 devices",
        "ceiling cpu(0) 0.900 2.22x –",
        "Equal to the serial run: 1,234 numbers checked, 0 wrong (every [red] gradient).",
        "Two devices are 2.00 times as fast.",
        "Preset quick: devices 1, 2; lr 0.2; data_dir –. Measured 2025-01-02 03:04 UTC, in 12.5 s.",
        "OMP_NUM_THREADS: 1.",
        "1 device 2.000, 1.000, 4.000",
    ):
        assert text in words, text


def test_the_page_stands_alone(tmp_path: Path) -> None:
    html = page(tmp_path, make(), make("twin"), failed("broken", "failed", "it fell"))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert not re.search(r"https?:|@import|<script|\son\w+=", text)
    local: Set[str] = {f"#{name}" for name in html.attributes("id")} | {"data:,"}
    assert set(html.attributes("href")) <= local
    assert {source.split(",")[0] for source in html.attributes("src")} == {"data:image/svg+xml"}
    assert all(target.startswith("%23") for target in re.findall(r"url\(([^)]*)\)", text))  # "#", inside a picture


def test_a_timeline_can_be_enlarged_by_the_only_script_that_may_run(tmp_path: Path) -> None:
    result = make()
    evil = "</script><script>alert(1)</script>"
    events = [Event("cpu(0)", evil, "compute", 0.001, 0.5), Event("cpu(0)", "sum", "all-reduce", 0.25, 0.75)]
    result["rows"][0].metrics["timeline"] = Timeline(1.0, events).to_json()
    page(tmp_path, result)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|\son\w+=", text)
    ((data, script),) = re.findall(
        r'<script type="application/json">(.*?)</script>.*<script>(.*?)</script>', text, re.S
    )
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in text
    found = json.loads(data)
    assert (found["length"], found["names"]) == (1_000_000, [evil, "sum"])
    (lane,) = found["lanes"]
    assert [(box[0], box[1], *box[4:]) for box in lane["boxes"]] == [(0, 0, 1000, 499_000), (1, 1, 249_000, 500_000)]
    assert [words for words, _ in found["kinds"]] == ["compute", "all-reduce (sums)"]


def test_a_slide_has_a_sentence_and_a_picture_and_the_rest_is_in_notes(tmp_path: Path) -> None:
    text = f"Two devices are 2.00 times as fast, 0.9 of the best; {'more ' * 20}words wait."
    result = sure(verdict={**make()["verdict"], "text": text, "explanation": "They share nothing."})
    stopped = failed("twin", "timeout", "line one\nline two")
    html = page(tmp_path, result, stopped, make("broken"), slides=True)
    assert sorted(path.name for path in tmp_path.glob("*.[hs]*")) == ["slides.html"]
    assert [tag for tag, _ in html.tags if tag in ("section", "h2", "figure", "aside")] == [
        *("section", "h2", "aside"),  # broken: its picture fails
        *("section", "h2", "figure", "aside"),
        *("section", "h2", "aside"),
    ]
    words = html.words()
    assert (
        f"Two devices are 2.00 times as fast, 0.9 of the best. fake preset quick, measured 2025-01-02 03:04 UTC {text} "
        "They share nothing. holds At least 1.8 times as <fast>. (a deck) Here: 2 devices 2 (1.9 to 2.1). Prediction: "
    ) in words
    assert "How to read it: Less is better. Rounds: 3 rounds of each case" in words
    assert "Timed out. line one line two twin" in words
    assert "The picture could not be drawn (KeyError: '<nosuch>')." in words
    source = (tmp_path / "slides.html").read_text(encoding="utf-8")
    assert "@page { size: 1280px 720px; margin: 0; }" in source
    assert not re.search(r"https?:|@import|\son\w+=", source)
    (script,) = re.findall("<script>(.*)</script>", source)
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in source


def test_a_page_made_again_writes_no_picture_that_is_there_already(tmp_path: Path) -> None:
    result = make()
    result["rows"][0].metrics["timeline"] = Timeline(1.0, [Event("cpu(0)", "sgd", "compute", 0.0, 0.5)]).to_json()
    page(tmp_path, result)
    pictures = sorted(tmp_path.rglob("*.svg"))
    before = {path: path.stat().st_ino for path in pictures}
    report.write_report(tmp_path)
    assert len(before) == 2
    assert {path: path.stat().st_ino for path in pictures} == before
    pictures[0].write_text("of another run")
    report.write_report(tmp_path, slides=True)
    assert pictures[0].read_text() == "of another run"
    assert sorted(tmp_path.rglob("*.svg")) == pictures
    report.write_report(tmp_path)
    assert "<svg" in pictures[0].read_text()


def test_slides_show_each_timeline(tmp_path: Path) -> None:
    result = make()
    result["rows"][0].metrics["timeline"] = Timeline(1.0, [Event("cpu(0)", "sgd", "compute", 0.0, 0.5)]).to_json()
    html = page(tmp_path, result, slides=True)
    assert [tag for tag, _ in html.tags if tag in ("section", "figure")] == ["section", "figure"] * 2
    assert f"{result['question']} Recorded: 1 device." in html.words()


def test_a_picture_is_in_the_page_and_has_words(tmp_path: Path) -> None:
    html = page(tmp_path, make(), make("twin"))
    start = "data:image/svg+xml,"
    shown = [unquote(source[len(start) :]) for source in html.attributes("src") if source.startswith(start)]
    assert shown == [(tmp_path / f"{name}.svg").read_text(encoding="utf-8") for name in ("fake", "twin")]
    assert "Median times: 1 device: 2.00 s; 2 devices: 1.00 s." in html.attributes("alt")[0]


def test_the_page_is_accessible(tmp_path: Path) -> None:
    html = page(tmp_path, make(), make("twin"))
    assert dict(html.tags)["html"] == {"lang": "en"}
    assert [tag for tag, _ in html.tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2", "h2"]
    assert {attrs.get("scope") for tag, attrs in html.tags if tag == "th"} == {"row", "col"}
    boxes = [attrs for _, attrs in html.tags if attrs.get("class") == "scroll"]
    assert [(box["tabindex"], box["role"], box["aria-label"]) for box in boxes] == [
        ("0", "region", "Table of fake"),
        ("0", "region", "Table of twin"),
    ]
    ids = html.attributes("id")
    assert all(name in ids for name in html.attributes("aria-labelledby"))


def test_text_cannot_become_markup(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    result = make("nosuch", source=evil, prediction=evil, error=evil, status="failed", settings={evil: evil})
    result["rows"][0].label = evil
    html = page(tmp_path, result)
    assert "script" not in {tag for tag, _ in html.tags}
    assert html.words().count(evil) >= 6


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    page(tmp_path, make(), make("twin"))
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(first) == ["fake.json", "fake.svg", "report.html", "twin.json", "twin.svg"]
    report.write_report(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_a_picture_that_fails_is_a_sentence_and_the_rest_is_there(tmp_path: Path) -> None:
    (tmp_path / "broken.svg").write_text("from a run before")
    html = page(tmp_path, make("broken"), make())
    assert "The picture could not be drawn (KeyError: '<nosuch>')." in html.words()
    assert len(html.attributes("src")) == 1
    assert not (tmp_path / "broken.svg").exists()
    assert "Two devices are 2.00 times as fast." in html.words()


def test_a_failed_and_an_unknown_experiment_have_no_picture(tmp_path: Path) -> None:
    words = page(tmp_path, failed("fake", "timeout", "line one\nline two"), make("nosuch")).words()
    assert "timed out line one line two" in words
    assert "The picture could not be drawn (nothing was measured)." in words
    assert "There is no picture: this installation has no experiment of that name." in words


def test_what_differs_between_machines_is_not_said_of_all(tmp_path: Path) -> None:
    other = make("twin", started="2024-01-02T03:04:05+00:00")
    other["environment"] = {**other["environment"], "commit": "feedfacecafe"}
    words = page(tmp_path, make(), other).words()
    head = words[: words.index("The questions and what this run says")]
    assert "Commit differs: see each experiment" in head
    assert "0123456789ab" not in head
    assert "Measured 2024-01-02 03:04 UTC, 25 s in all" in head
    assert words.count("feedfacecafe") == 1  # below its table


def test_the_earliest_start_is_found_across_time_zones(tmp_path: Path) -> None:
    east = make("twin", started="2025-01-02T04:00:00+02:00")
    assert "Measured 2025-01-02 04:00 UTC+02:00, 25 s in all" in page(tmp_path, make(), east).words()


def test_a_date_that_is_none_is_shown_as_it_is(tmp_path: Path) -> None:
    html = page(tmp_path, make(started="2025-01-02"), make("twin", started="yesterday"))
    assert "Measured 2025-01-02 00:00, 25 s in all" in html.words()
    assert "Measured yesterday, in 12.5 s" in html.words()


def test_a_folder_with_nothing_or_with_damage_gives_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no result in"):
        report.write_report(tmp_path)
    (tmp_path / "fake.json").write_text('{"experiment"')
    with pytest.raises(MxdpError, match=r"fake\.json is damaged"):
        report.write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fake.json"]


def test_foreign_files_are_noted(tmp_path: Path) -> None:
    results.write(make(), tmp_path)
    (tmp_path / "trace.json").write_text("[]")
    notes: List[str] = []
    report.write_report(tmp_path, notes.append)
    assert notes == [f"{tmp_path / 'trace.json'} is no result of mxdp and is passed over."]


MODULE = """
from mxdp.experiments.harness.experiment import Column, Experiment, experiment

@experiment
class Own(Experiment):
    name, question, how_to_read = "own", "How long does it take?", ""
    def columns(self):
        return [Column("seconds", "median", ".2f")]
    def draw(self, result, figure):
        figure.subplots().plot([1, 2])
"""


def test_a_report_needs_no_mxnet_and_knows_a_teachers_own_experiment(tmp_path: Path) -> None:
    # A stand-in that can be imported anywhere: whoever imports it is found out, with or without MXNet installed.
    (tmp_path / "mxnet.py").write_text("")
    (tmp_path / "teachers_own.py").write_text(MODULE)
    results.write(make("own"), tmp_path / "out")
    code = (
        "import sys; from rich.console import Console; from mxdp.experiments.harness import results; "
        "from mxdp.experiments.report import page as report; "
        "report.write_report(sys.argv[1]); "
        "report.print_result(results.read_folder(sys.argv[1])[0], Console()); "
        "print('mxnet' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(report.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, registry.EXTRA_MODULES: "teachers_own"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["own.json", "own.svg", "report.html"]
