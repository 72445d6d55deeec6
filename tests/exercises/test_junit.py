"""What the checker writes for other programs: JUnit's counts are those of its elements, and every text is read back."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from mxdp.exercises.__main__ import COUNTS, PARTS, grades, junit

TEXT = st.text(alphabet="a1 <>&\"',;\n]]é", min_size=1, max_size=9).map(str.strip)
VALUES = st.lists(st.lists(TEXT, min_size=2, max_size=2), max_size=2)
STATES = ("right", *PARTS)


@st.composite
def cases(draw):
    state = draw(st.sampled_from(STATES))
    case = dict(title=draw(TEXT), state=state)
    if state == "wrong":
        case.update(problem=draw(TEXT), hint=draw(TEXT))
        case.update(given=draw(VALUES), expected=draw(VALUES), yours=draw(VALUES))
    return {**case, "problem": draw(TEXT)} if state == "error" else case


@st.composite
def reports(draw):
    exercises = [
        dict(function=draw(TEXT), number=number, cases=draw(st.lists(cases(), max_size=5)))
        for number in range(draw(st.integers(0, 3)))
    ]
    return dict(file=draw(TEXT), problem=draw(st.none() | TEXT), right=draw(st.booleans()), exercises=exercises)


@given(st.lists(reports(), max_size=4))
def test_junits_counts_are_those_of_its_elements_and_every_text_is_read_back(found):
    suites = ElementTree.fromstring(junit(found)).findall("testsuite")
    assert [suite.get("name") for suite in suites] == [report["file"] for report in found]
    for suite, report in zip(suites, found):
        tests = suite.findall("testcase")
        assert suite.get("tests") == str(len(tests))
        for state, name in COUNTS.items():
            elements = suite.findall(f"testcase/{PARTS[state]}")
            assert suite.get(name) == str(len(elements))
        of_file = [("file", dict(title="the file can be checked", state="error", problem=report["problem"]))]
        all_cases = [(each["function"], case) for each in report["exercises"] for case in each["cases"]]
        expected = all_cases + (of_file if report["problem"] else [])
        assert [(test.get("classname"), test.get("name")) for test in tests] == [
            (function, case["title"]) for function, case in expected
        ]
        for test, (_, case) in zip(tests, expected):
            parts = [] if case["state"] == "right" else [PARTS[case["state"]]]
            assert [part.tag for part in test] == parts
            said = f"{case.get('problem', 'not tried')} {case.get('hint', '')}".strip()
            assert all(part.get("message") == said for part in test)


@given(st.lists(reports(), min_size=1, max_size=4))
def test_a_table_of_marks_has_a_row_a_file_whose_counts_are_those_of_its_cases(found):
    rows = list(csv.DictReader(io.StringIO(grades(found), newline="")))
    assert [row["file"] for row in rows] == [report["file"] for report in found]
    for row, report in zip(rows, found):
        every = [case for each in report["exercises"] for case in each["cases"]]
        right = [case for case in every if case["state"] == "right"]
        assert (row["cases right"], row["cases"]) == (str(len(right)), str(len(every)))
        assert row["right"] == str(int(report["right"]))
        wrong = [f"{case['title']}: {case['problem']}" for case in every if case["state"] == "wrong"]
        assert row["problem"] == (report["problem"] or (wrong or [""])[0])
