"""The committed results as people see them: what a text, a table, a claim and a picture say follows from the rows.

A few are also compared with ``golden.json``, as the terminal shows them. After a change that is meant, this file's
tests with ``MXDP_GOLDEN=write`` write it anew; what it changes is to be read like code."""

import io
import json
import os
import random
import re
import shutil
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from fakes import Page
from littles import MEASURED
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from mxdp import process
from mxdp.experiments.lab import result
from mxdp.experiments.show import page, pictures, terminal, words

FOLDERS = sorted({path.parent for folder in MEASURED for path in folder.glob("*/[0-9]*.json")})
GOLDEN = Path(__file__).with_name("golden.json")
COMMAND = "make golden ARGS='-k golden'"
KEPT = ("epochs", "less-traffic", "scaling", "torch-data-parallel")
"""Together they have every kind of line: two tables, rows that are left out, all verdicts, what was skipped."""
each_result = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@lru_cache(maxsize=None)
def shown(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "cores", lambda: 2)
        return words.shown([result.read(path) for path in folder.glob("*.json")], across_commits=True)


def printed(folder):
    s, console = shown(folder), Console(width=120, file=io.StringIO())
    terminal.print_result(s.runs, console, why=True, across_commits=True)
    bounds = [
        f"{claim.sentence}: {'>=' if claim.least else '<='} {claim.bound:g}{', exact' * claim.exact}"
        for claim in s.told.claims.values()
    ]
    return [line.rstrip() for line in console.file.getvalue().splitlines()] + bounds


def test_a_few_committed_results_are_shown_as_before():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "cores", lambda: 2)
        now = {folder.name: printed(folder) for folder in FOLDERS if folder.name in KEPT}
    if os.environ.get("MXDP_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(now, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    assert now == json.loads(GOLDEN.read_text(encoding="utf-8")), f"if this is meant: {COMMAND}"


# What a text says

CAN_BE_LOOKED_UP = re.compile(r"ours\b|.*https://[\w.-]+/\S+")
INTERVAL = re.compile(r" \([^()]+(?: to |, )[^()]+\)")


def plain_words(text):
    return [word for word in INTERVAL.sub("", text).split() if not re.search(r"\d", word)]


@each_result
def test_an_answer_is_a_sentence_that_can_be_read_aloud_and_sources_can_be_looked_up(folder):
    s = shown(folder)
    said = s.told.sentence
    assert len(re.findall(r"[.!?](?=\s|$)", said)) == 1, said
    assert said.endswith(".")
    assert len(plain_words(said)) <= 30, said
    assert len(plain_words(words.spoken(said))) <= words.SPOKEN, words.spoken(said)
    assert len(INTERVAL.findall(said)) <= 2, said
    assert not re.match(r"\W*(can't tell|failed|holds|does not hold|undecided)\b", said, re.IGNORECASE)
    assert not re.search(r"\([^()]*\(", said)
    assert re.search(r"\d", said)
    assert not re.search(r"\b0\.\d+( \([^()]*\))? times as fast", f"{said} {s.told.explanation}")
    assert CAN_BE_LOOKED_UP.match(s.question.SOURCE)
    for claim in s.told.claims.values():
        assert CAN_BE_LOOKED_UP.match(claim.source), claim.sentence
        if claim.exact:
            assert claim.holds is not None, claim.sentence
        if claim.source.startswith("ours"):
            # Whether a time decides it is up to the machine. Too few measurements would be up to us.
            assert claim.holds is not None or None not in [number.low for number in claim.numbers], claim.sentence
            assert claim.numbers, claim.sentence


@each_result
def test_a_table_has_the_columns_that_are_declared_and_none_is_empty(folder):
    about = shown(folder).told
    for table, more in zip(terminal.tables(about, about.rows), (False, True)):
        columns = [column for column in about.columns if column.more == more]
        assert table.headings == ["", *(column.heading for column in columns)]
        lines = [*table.rows, *table.references]
        assert more or [label for label, *_ in lines] == [row.label for row in about]
        for cells in list(zip(*lines))[1:]:
            assert {*cells} - {terminal.NOTHING}
            assert "?" not in cells


@each_result
def test_whichever_case_failed_numbers_are_shown_and_no_answer(folder):
    whole = shown(folder).latest
    rows = whole["rows"]
    for gone in {0, len(rows) // 2, len(rows) - 1} if len(rows) > 1 else ():
        s = words.shown([{**whole, "status": "failed", "error": "it fell", "rows": rows[:gone] + rows[gone + 1 :]}])
        assert len(list(s.told)) == len(rows) - 1
        assert s.told.columns
        assert not s.told.claims
        if s.told.rows:
            pictures.draw_told(s.told, Figure(layout="constrained"))


# Pictures


def titles(axes):
    """Those of one line: the box of two is as wide as the longer, and the other may have room beside it."""
    found = [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, axes._right_title]
    return [text for text in found if "\n" not in text.get_text()]


def size(folder):
    return max(path.stat().st_size for path in folder.glob("*.json"))


def test_in_a_picture_no_text_is_cut_off_or_covered_by_another(monkeypatch):
    """Of the largest results, and of others that are drawn at random."""
    found = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *where, **how: found.append(figure))
    *others, a, b, c, d = sorted(FOLDERS, key=size)
    for folder in (a, b, c, d, *random.sample(others, 6)):
        pictures.saved(lambda figure: pictures.draw_told(shown(folder).told, figure), "a", "svg")  # noqa: B023
        figure = found.pop()
        FigureCanvasAgg(figure).draw()
        legends = [text for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]
        texts = [text for axes in figure.axes for text in (*axes.texts, *titles(axes))]
        boxes = [text.get_window_extent() for text in texts + legends if text.get_text()]
        assert boxes
        for number, box in enumerate(boxes):
            assert figure.bbox.padded(1).contains(*box.min), (folder.name, box)
            assert figure.bbox.padded(1).contains(*box.max), (folder.name, box)
            # A box has room for letters that go below the line: boxes of lines without them may touch.
            assert not any(box.padded(-2).overlaps(other.padded(-2)) for other in boxes[:number]), folder.name


def test_no_text_on_a_slide_is_less_than_14_pixels_high(tmp_path):
    """At 1280 x 720 a rem has 10 pixels, and a picture is as wide as a slide without its padding."""
    some = FOLDERS[::14]
    for folder in some:
        shutil.copytree(folder, tmp_path / folder.name)
    text = page.write_report(tmp_path, slides=True, across_commits=True).read_text(encoding="utf-8")
    sizes = [10 * float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)rem", text)]
    width = 1280 - 2 * 10 * float(re.search(r"padding: [\d.]+rem ([\d.]+)rem", text)[1])
    drawn = [unquote(source) for source in Page(text).attributes("src")]
    assert len(drawn) >= len(some)
    for picture in drawn:
        points = float(re.search(r'viewBox="0 0 ([\d.]+) ', picture)[1])
        # A letter's outline is drawn for 100 points.
        letters = [100 * float(scale) for scale in re.findall(r"scale\(([\d.]+) -[\d.]+\)", picture)]
        assert letters
        assert len(set(re.findall(r'id="(axes_\d+)"', picture))) <= 4
        sizes += [size * width / points for size in letters]
    assert min(sizes) >= 14
