"""What people see of results in a terminal and in pictures: every number, and nothing else."""

import io
import json
import re
import statistics
from itertools import chain

import matplotlib
import pytest
from fakes import RECORDED, failed, install, made, timed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from littles import record
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.lab import Number, Row, result
from mxdp.experiments.lab.provenance import BUSY
from mxdp.experiments.lab.told import Claim
from mxdp.experiments.show import pictures, style, terminal, words
from mxdp.tracing.chrome import chrome_trace

COLOURS = {"yes": "1;32", "no": "1;33", "unknown": "1;36", "bad": "1;31"}
DRAWN = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def known(monkeypatch):
    return install(monkeypatch)


def printed(runs, width=80, styles=False, why=True, **more):
    console = Console(width=width, record=True, file=io.StringIO(), color_system="standard", force_terminal=True)
    terminal.print_result(runs, console, why, **more)
    return console.export_text(styles=styles)


def in_a_line(text):
    return " ".join(text.split())


# The terminal


def letters(text):
    return sorted(re.sub(r"[\s─]", "", text))


@DRAWN
@given(width=st.integers(30, 200), why=st.booleans(), runs=st.integers(1, 6))
def test_a_terminal_loses_nothing_in_any_width(width, why, runs):
    lines = printed([record()] * runs, width, why=why).splitlines()
    assert max(map(len, lines)) <= width
    assert letters("".join(lines)) == letters(printed([record()] * runs, 300, why=why))


NUMBERS = st.sampled_from(["1", "83 %", "0.0512", "1.86 (1.85-1.89)", "12 ms", "1,234", "-5", "3e-07", "<1 ms", "–"])
WORDS = st.lists(st.sampled_from(["in", "sync", "devices", "shared-memory", "2", "(LeNet)"]), min_size=1, max_size=4)
TEXTS = WORDS.map(" ".join)


@st.composite
def tables(draw):
    """Of any size: numbers under one heading, words under another."""
    right = [False, *draw(st.lists(st.booleans(), min_size=1, max_size=6))]

    def lines(most):
        return draw(st.lists(st.tuples(*(NUMBERS if number else TEXTS for number in right)), max_size=most))

    headings = ["", *(draw(TEXTS) for _ in right[1:])]
    return terminal.Cells(headings, [(draw(TEXTS), *line[1:]) for line in lines(6)], lines(2), right)


@DRAWN
@given(tables(), st.integers(36, 140))
def test_a_table_keeps_every_letter_and_breaks_what_it_must_and_no_more(table, width):
    console = Console(width=width, file=io.StringIO())
    console.print(terminal.for_terminal(table, width))
    shown = console.file.getvalue()
    every = [table.headings, *table.rows, *table.references]
    assert max(map(len, shown.splitlines()), default=0) <= width
    assert letters(shown) == letters("".join(chain(*every)))
    columns = list(zip(*every))
    if sum(max(map(len, column)) + 2 for column in columns) - 1 <= width:
        assert all(text in shown for text in chain(*every))
        return
    least = []
    for (heading, *texts), number in zip(columns, table.right):
        headings = [heading] if not number and len(heading) <= terminal.SHORT else heading.split()
        least.append(max(map(len, headings + (texts if number else " ".join(texts).split())), default=0))
    if sum(least) + 2 * len(least) - 1 <= width:
        numbers = [text for column, right in zip(columns, table.right) if right for text in column[1:]]
        assert all(text in shown for text in numbers)


def test_a_newcomer_gets_the_answer_the_table_and_one_line():
    text = printed([record()], why=False, guess="3 times")
    assert "your guess 3 times prediction 2.0 on 2 cores" in in_a_line(text)
    assert "At least 1.8" not in text
    assert len(text.splitlines()) <= 20
    assert terminal.NO_SUM not in in_a_line(text)
    found = record()
    found["rows"][0]["processes"][1]["seconds"] = 4.0
    assert terminal.NO_SUM in in_a_line(printed([found], why=False))


@pytest.mark.parametrize(
    ("found", "said", "kind"),
    [
        (failed("timeout", "it hung"), "timed out", "bad"),
        (failed("skipped", "no GPU"), "skipped", "unknown"),
        (record(oracle={"checked": 9, "wrong": 1, "text": ""}), "wrong numbers", "bad"),
    ],
)
def test_each_ending_has_its_words_and_colour(found, said, kind, tmp_path):
    assert re.search(rf"\x1b\[{COLOURS[kind]}m{said} *\x1b\[0m", printed([found], styles=True))
    assert ("measured" in printed([found], why=False)) is bool(found["rows"])
    html = made(tmp_path, found)
    assert html.attributes("class").count(f"badge {kind}") >= 2  # in the summary and in its own section
    assert f"{said.capitalize()}." in made(tmp_path, slides=True).words()


def test_while_it_is_measured_the_table_and_the_answer_so_far_are_shown(monkeypatch):
    view, shown = terminal.View(), []
    monkeypatch.setattr(view, "update", shown.append)
    view.begin("fake")
    view._bar.tasks[0].start_time -= 500
    view.progress("fake, 1 device", 1, 4, so_far=record())
    assert view._bar.tasks[0].description == "fake, 1 device, about 25 min more"
    view.progress("fake, 2 devices", 4, 4, "writes", record())
    _, with_table = shown  # nothing more at the end
    console = Console(width=80, file=io.StringIO())
    console.print(with_table)
    said = in_a_line(console.file.getvalue())
    assert "prediction 2.0 on 2 cores devices median s" in said
    assert "so far Two devices are 2.00 times as fast. (one look: 3 processes" in said


def test_a_cell_is_written_as_its_column_says():
    column = terminal.Column
    for value, how, text in (
        (None, {}, "–"), (float("nan"), {}, "–"), (True, {}, "yes"), (Number([True, False]), {}, "no"),
        ([], {}, "none"), ([1, 2], {}, "1, 2"), ({"a": 1.5}, {}, "1.50"), ("x", {}, "x"),
        (0.5, {"scale": 1e3, "unit": " ms"}, "500 ms"),
        (-0.001, {"form": ".1f"}, "0.0"), (-0.06, {"form": ".1f"}, "-0.1"), (1234, {"form": ","}, "1,234"),
        (1.5, {"form": "no format"}, "?"),
        (Number([1, 3, 2]), {"spread": True, "form": ".1f"}, "2.0 (1.0, 2.0, 3.0)"), (Number([1, 3]), {}, "2.00"),
        (Number(range(1, 7)), {"spread": True, "form": ".1f", "unit": "x"}, "3.5x (1.0x-6.0x)"),
    ):  # fmt: skip
        assert terminal.written(value, column("x", "x", **how)) == text


# The words

SHARES = st.lists(st.sampled_from([None, 0.0, BUSY, BUSY + 0.01, 0.3]), max_size=9)


@DRAWN
@given(processes=st.integers(1, 4), runs=st.integers(1, 6), shares=SHARES)
def test_an_answer_says_whether_there_were_few_processes_or_the_machine_was_busy(processes, runs, shares):
    rows = [{**row, "processes": (row["processes"] * 2)[:processes]} for row in record()["rows"]]
    found = [record(rows=rows, elsewhere=[], started=f"2025-01-0{day}T03:04:05+00:00") for day in range(1, runs + 1)]
    found[0]["elsewhere"] = shares
    s = words.shown(found)
    every = processes * runs
    measured = [share for share in shares if share is not None]
    busy = [share for share in measured if share > BUSY]
    looks = "one look" if runs == 1 else f"{runs} runs"
    answer = words.answer(s)
    assert answer.startswith(s.told.sentence)
    assert (f"({looks}: {every} process" in answer) is ("no interval" in answer) is (every < 6)
    assert ("measured on a busy machine)" in answer) is (bool(busy) and 4 * len(busy) >= len(measured))
    assert words.answer(s, "So.") == answer.replace(s.told.sentence, "So.")
    said = f"In {len(busy)} of {len(measured)} process{'es' * (len(measured) > 1)} other programs took "
    assert (said in words.explanation(s)) is bool(busy)
    sure = words.sureness(s)
    assert f"{every} process{'es' * (every > 1)} in " in sure
    assert ("too few for an interval" in sure) is (every < 6)
    assert ("an interval is one of runs" in sure) is (runs == 6)


def side(values, bound, least, exact):
    """Of six to eight different values, the interval is from the least to the largest; of fewer there is none."""
    if not exact and len(values) < 6:
        return None
    if (min(values) >= bound) if least else (max(values) <= bound):
        return True
    wrong = exact or ((max(values) < bound) if least else (min(values) > bound))
    return False if wrong else None


@DRAWN
@given(
    numbers=st.lists(st.lists(st.integers(1, 9), unique=True, min_size=2, max_size=8), max_size=5),
    bound=st.integers(0, 10),
    least=st.booleans(),
    exact=st.booleans(),
    busy=st.booleans(),
)
def test_the_verdict_of_a_claim_follows_from_its_values_and_its_bound(numbers, bound, least, exact, busy):
    s = words.shown([record(elsewhere=[0.3] if busy else [])])
    claim = Claim("Few.", "ours", bound, least, exact, [Number(values, label="x") for values in numbers])
    s.told.claims = {"Few.": claim}
    sides = {side(values, bound, least, exact) for values in numbers}
    expected = ("unknown", "undecided")
    if not numbers:
        expected = "unknown", "not judged here"
    elif busy and not exact:
        expected = "unknown", "can't tell: other programs took 30%"
    elif False in sides:
        expected = "no", "does not hold"
    elif sides == {True}:
        expected = "yes", "holds"
    (line,) = words.claim_lines(s)
    assert (line.kind, line.words) == expected
    assert line.text.count("x ") == min(len(numbers), words.SHOWN)
    for values in numbers[: words.SHOWN]:
        assert f"x {statistics.median(values):.3g}" in line.text
        assert exact or len(values) < 6 or f" ({min(values)} to {max(values)})" in line.text
    more = len(numbers) - words.SHOWN
    assert (f", and {more} more row{'s' * (more > 1)}" in line.text) is (more > 0)
    counted = f"; {int(expected[0] == 'yes')} of 1 claim holds"
    assert (counted in words.summary(s)) is bool(numbers)
    assert words.summary(s).endswith(", 1 undecided") is (bool(numbers) and expected[0] == "unknown")
    assert f"\x1b[{COLOURS[expected[0]]}m{expected[1]}" in printed_claim(s)


def printed_claim(s):
    console = Console(width=200, record=True, file=io.StringIO(), color_system="standard", force_terminal=True)
    console.print(next(text for term, text in terminal._after(s, why=True) if term == "claim"))
    return console.export_text(styles=True)


CLAUSES = st.lists(st.tuples(st.sampled_from(["; ", ", and ", ", but ", ", while "]), st.integers(1, 12)), max_size=4)


@given(st.integers(1, 30), CLAUSES)
def test_a_slide_has_the_leading_clauses_that_fit(first, clauses):
    """Of so many words each, beside a number with its interval."""
    starts = ["so " * first + "2.0 (1.0 to 3.0)"]
    for joint, more in clauses:
        starts.append(f"{starts[-1]}{joint}{'so ' * more}3")
    fitting = [start for start in starts if len(re.findall("[a-z]+", start.replace(" to ", " "))) <= words.SPOKEN]
    assert words.spoken(f"{starts[-1]}. And more.") == f"{fitting[-1] if fitting else starts[0]}."


@given(st.floats(1e-20, 1e20), st.booleans(), st.integers(2, 5))
def test_a_number_for_a_reader_has_its_digits_and_no_exponent_without_need(size, negative, digits):
    value = -size if negative else size
    text = style.number(value, digits)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.5001 * 10 ** (1 - digits), abs=0)
    assert ("e" in text) is (not 1e-4 <= size < 1e12)
    if "e" not in text:
        whole = text.lstrip("-").replace(",", "").replace(".", "").lstrip("0")
        assert len(whole) == digits or (size >= 10 ** (digits - 1) and "." not in text)


# Pictures


def test_a_drawing_that_fails_leaves_matplotlib_as_it_was():
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


def test_a_panel_has_the_whole_of_a_slides_picture():
    about, figures = words.shown([record()]).told, []
    about.draw(lambda axes: axes.annotate("small", (0, 0), size=4))
    pictures.saved(
        lambda figure: figures.append(figure) or pictures.draw_told(about, figure, 3), "a", "svg", slide=True
    )
    ((axes,),) = [figure.axes for figure in figures]
    assert list(axes.figure.get_size_inches()) == list(style.SLIDE)
    assert axes.get_tightbbox().height > 0.6 * axes.figure.bbox.height
    assert min(text.get_fontsize() for text in axes.figure.findobj(Text)) >= style.SMALLEST


@pytest.mark.parametrize(
    ("name", "panel", "error", "said"),
    [
        ("fak", None, UsageError, r"no result of 'fak' in .*; did you mean 'fake'\?"),
        ("fake", 3, UsageError, "has panels 1 to 2, and no panel 3; give one that it has"),
        ("broken", None, MxdpError, "the picture of broken can't be drawn"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(name, panel, error, said, tmp_path):
    for question_name in ("fake", "broken"):
        result.write(record(question_name), tmp_path)
    assert pictures.export(tmp_path, "fake", "pdf") == tmp_path / "fake.pdf"
    with pytest.raises(error, match=said):
        pictures.export(tmp_path, name, "png", panel)


VALUES = st.lists(st.integers(1, 999), min_size=1, max_size=4)


@DRAWN
@given(rows=st.lists(VALUES, min_size=1, max_size=5), scale=st.sampled_from([1, 1000]), above=st.booleans())
def test_bars_show_medians_whiskers_values_and_labels(rows, scale, above):
    figure = Figure(figsize=(5, len(rows) * style.BAR_HEIGHT + (0.9 if above else 0.8)))
    axes = figure.subplots()
    named = [Row(f"row {at}", at == 1, {"ms": Number(values), "kind": at % 2 == 0}) for at, values in enumerate(rows)]
    style.row_bars(axes, named, "ms", "ms", scale, title="T", colour="kind")
    dots = [[value * scale for value in values] for values in rows]
    middles = list(map(statistics.median, dots))
    assert [patch.get_width() for patch in axes.patches] == middles
    assert [list(line.get_xdata()) for line in axes.lines[0::2]] == [[min(own), max(own)] for own in dots]
    assert [list(line.get_xdata()) for line in axes.lines[1::2]] == dots
    labels, said = [row.label for row in named], [f"{style.number(float(middle))} ms" for middle in middles]
    assert [text.get_text() for text in axes.texts] == (list(chain(*zip(labels, said))) if above else said)
    assert [label.get_text() for label in axes.get_yticklabels()] == ([] if above else labels)
    assert (axes.get_xlabel(), axes.get_title()) == ("ms (bar: median, dots: processes)", "T")
    assert axes.get_xlim()[1] > 1.2 * max(chain(*dots))  # room for what stands behind a bar
    lowest, highest = axes.get_ylim()
    assert highest < 0 <= len(rows) - 1 < lowest
    colours = [matplotlib.colors.to_hex(patch.get_facecolor()).upper() for patch in axes.patches]
    own = style.COLOURS[0], style.GREY, style.COLOURS[0], style.COLOURS[1], style.COLOURS[0]
    assert colours == [colour.upper() for colour in own[: len(rows)]]


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


def test_ticks_of_a_logarithmic_axis_are_plain():
    axes = Figure().subplots()
    axes.set(xscale="log", xlim=(1, 20_000))
    style.plain_logarithmic(axes.xaxis)
    axes.figure.draw_without_rendering()
    assert {"1", "2", "5", "10", "20", "50", "20,000"} <= {tick.get_text() for tick in axes.get_xticklabels()}
