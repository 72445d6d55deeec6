"""The checker survives what students' files do, and says what it was in one sentence."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from solutions import SOLUTIONS

from mxdp.exercises import EXERCISES, FOLDER, ORDER
from mxdp.exercises.__main__ import COUNTS, PARTS, grades, junit, main
from mxdp.exercises.check import check
from mxdp.exercises.judge import check_here

FIRST = """import os, sys, time

def fill_buckets(nbytes, room):
"""
LINE = FIRST.count("\n") + 1
ROOT = Path(__file__).parents[2]
REPORT = dict(file="", exercises=[], problem="", printed="", right=True)


def file_of(folder, text):
    file = folder / "student.py"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def solved(name):
    arguments = "data" if "allreduce" in name else "nbytes, room"
    return f"from mxdp.backend import np\ndef {name}({arguments}):{SOLUTIONS[name]}"


HANDED_IN = {
    (4, "fill_buckets"): "It does not define train_batch, which the exercise asks for.",
    (11, "reduce_scatter"): "It does not define all_gather, which the exercise asks for.",
    (0, "reduce_scatter"): "It does not define all_gather, which the exercise asks for.",
    (6, "fill_buckets"): "",
    (0, "fill_buckets"): "",
}
FATAL = {
    # A child in the check's own session ends with it: else ``nothing_left`` fails.
    "    import subprocess; subprocess.Popen(['sleep', '987'])\n    while True: pass": "does not end within 1 s",
    "    os._exit(0)": "It ends the process (exit status 0)",
    "    while True: print('x' * 1000)": "It prints more than 1 MB",
    "    kept = [bytearray(10**8) for _ in range(9)] + [time.sleep(9)]": "It takes more than 700 MB of memory",
    "    return input()": "raises EOFError",
    "    pass\nwhile True: pass": "does not end within 1 s",
    f"    pass\n{solved('fill_buckets')}os.remove(__file__)": "is gone: the code in it deleted or moved it",
}
HARMLESS = {
    f"{FIRST}    sys.exit(3)": "It calls sys.exit(3): return a value instead.",
    f"{FIRST}    raise KeyboardInterrupt": f"Line {LINE} (raise KeyboardInterrupt) raises KeyboardInterrupt",
    f"{FIRST}    from mxdp.backend import np; np.ones(3) + np.ones(4)": "raises MXNetError: Check failed: l == 1",
    f"{FIRST}    fill_buckets(nbytes, room)": "raises RecursionError",
    f"{FIRST}    return 3": "It returns 3: return a list of lists of numbers",
    f"{FIRST}    for _ in range(10**5): nbytes = [nbytes]\n    return nbytes": "It is nested too deeply (Rec",
    "import sys; sys.exit('enough')": "It calls sys.exit(enough)",
    "def fill_buckets(:": "Line 1 is not valid Python",
    b"x = '\xff'\n": "'utf-8' codec can't decode byte 0xff",
    "import nothing_like_it": "Line 1 (import nothing_like_it) raises ModuleNotFoundError",
    "from mxdp.scratch import naive_allreduce": "It defines none of the functions that can be checked",
}


def problem_in(report):
    cases = [case for exercise in report["exercises"] for case in exercise["cases"] if case["state"] == "wrong"]
    problem = report["problem"] or cases[0]["problem"]
    assert not report["right"]
    assert "\n" not in problem
    return problem


@pytest.mark.parametrize("text", FATAL)
def test_what_ends_or_fills_the_process_is_told_in_one_sentence(tmp_path, text):
    report = check(file_of(tmp_path, FIRST + text), seconds=1 if "True: pass" in text else 30, megabytes=700)
    assert FATAL[text] in problem_in(report)


@pytest.fixture
def checked_here(tmp_path, monkeypatch, no_garbage):
    """The report of a file that is checked in this process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("mxdp.exercises.judge.signal.signal", lambda *_: None)
    monkeypatch.setattr("mxdp.exercises.judge.os._exit", lambda status: None)

    def checked(file, number=0):
        check_here(str(file), 0, tmp_path / "answers", number)
        return dict(json.loads((tmp_path / "answers").read_text()))

    return checked


@pytest.mark.parametrize("text", HARMLESS)
def test_an_error_is_told_in_one_sentence(tmp_path, checked_here, text):
    assert HARMLESS[text] in problem_in(checked_here(file_of(tmp_path, text)))


@pytest.mark.parametrize("text", ["(" * 3000, "-" * 30000 + "1", "x" + "+1" * 30000], ids=["brackets", "signs", "sums"])
def test_what_is_nested_too_deeply_is_a_short_sentence(text, tmp_path, checked_here):
    problem = problem_in(checked_here(file_of(tmp_path, f"x = 1\nx = {text}")))
    assert re.match(r"(It is nested too deeply|Line 2 is not valid Python).{0,170}$", problem)


@pytest.mark.parametrize(("number", "name"), HANDED_IN)
def test_a_file_must_hold_a_whole_exercise_and_the_one_that_is_asked_for(number, name, tmp_path, checked_here):
    text = solved("fill_buckets") + f"\ndef {name}(*given):" + SOLUTIONS[name].replace("data", "given[0]")
    report = checked_here(file_of(tmp_path, solved(name) if name == "fill_buckets" else text), number)
    assert report["problem"] == HANDED_IN[number, name]
    expected = [] if number == 4 else [name] if number else ["fill_buckets", name]
    assert [exercise["function"] for exercise in report["exercises"]] == list(dict.fromkeys(expected))


def test_no_file_descriptor_leads_to_the_answers_and_the_parent_runs_no_file(tmp_path):
    text = """import contextlib, os
print("x" * 5000, os.getpid())
def fill_buckets(nbytes, room):
    for descriptor in range(3, 30):
        with contextlib.suppress(OSError):
            os.write(descriptor, b'{"done": true}')
    os.closerange(3, 100)"""
    report = check(file_of(tmp_path, text + SOLUTIONS["fill_buckets"]))
    assert report["right"]
    pid = report["printed"].strip("x").strip()  # the end of what is printed is kept
    assert pid.isdecimal()
    assert int(pid) != os.getpid()


def test_signs_that_are_no_text_break_no_report(tmp_path, capsys):
    xml = tmp_path / "out.xml"
    text = """def fill_buckets(nbytes, room):
    print("\\x1b[31m\\x00")
    text = "\\ud800\\x1b[31m\\x00"
    if len(nbytes) == 2:
        raise ValueError(text)
    return [[text]]
"""
    assert main(["check", str(file_of(tmp_path, text)), "--junit", str(xml)]) == 1
    assert "\x1b" not in capsys.readouterr().out
    problems = [failure.get("message", "") for failure in ElementTree.parse(xml).getroot().iter("failure")]
    assert "raises ValueError: ??[31m?" in problems[1]


def test_sizes_at_random_begin_with_the_smallest():
    *_, others = EXERCISES["ring_allreduce"].cases(0).values()
    devices = [len(trial.given) for trial in others]
    assert devices == sorted(devices)
    assert (devices[0], devices[-1]) == (1, 6)


def test_what_was_not_tried_is_not_right(tmp_path, capsys):
    text = "import ctypes\ndef naive_allreduce(data):\n    ctypes.string_at(8)\n" + solved("fill_buckets")
    assert main(["check", str(file_of(tmp_path, text))]) == 1
    out = capsys.readouterr().out
    assert "It crashes in C (SIGSEGV)" in out
    assert out.count("not tried") == 4 + 6
    assert "All cases are right" not in out


def test_several_files_can_be_told_apart(tmp_path, monkeypatch, capsys):
    files = [tmp_path / student / "06_fill_buckets.py" for student in ("ann", "bob", "eve")]
    right = solved("fill_buckets")
    several = solved("naive_allreduce") + "\n" + right.replace("> room", ">= room")
    for file, text in zip(files, (right, several, "def")):
        file.parent.mkdir()
        file.write_text(text)
    assert main(["check", *map(str, files)]) == 1
    out = capsys.readouterr().out
    assert re.findall("^=== (.*) ===$", out, re.MULTILINE) == [*map(str, files)]
    assert "All cases are right. Next: split with a remainder, 03_split_and_load.py" in out
    closing = out.partition("1 of 3 files are right:")[2]
    for file, words in zip(files, ("right  {}: 6 of 6 cases", "wrong  {}: 9 of 11 cases", "wrong  {}: Line 1 is not")):
        assert words.format(file) in closing
    monkeypatch.setattr("mxdp.exercises.__main__.check", lambda file, *_: {**REPORT, "right": file == files[0]})
    table = tmp_path / "out.csv"
    for count, right in ((1, [True]), (3, [True, False, False])):
        arguments = [*map(str, files[:count]), "--exercise", "6", "--csv", str(table), "--json"]
        assert main(["check", *arguments]) == (count > 1)
        printed = json.loads(capsys.readouterr().out)
        assert [report["right"] for report in (printed if count > 1 else [printed])] == right
        assert [row.split(",")[1] for row in table.read_text().splitlines()[1:]] == ["6"] * count


def test_copy_writes_all_files_and_overwrites_none(tmp_path, capsys):
    folder = tmp_path / "new" / "mine"
    assert main(["copy", str(folder)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == sorted({exercise.file for exercise in EXERCISES.values()})
    assert f"check {folder}/03_split_and_load.py" in (folder / "03_split_and_load.py").read_text()
    for file in [*folder.iterdir()][1:]:
        file.unlink()
    (kept,) = folder.iterdir()
    kept.write_text("mine")
    assert main(["copy", str(folder)]) == 2
    assert f"{kept} is there already" in capsys.readouterr().err
    assert [file.read_text() for file in folder.iterdir()] == ["mine"]


def test_copy_finds_what_a_wheel_has_installed(tmp_path, monkeypatch):
    installed = [FOLDER / exercise.file for exercise in EXERCISES.values()]
    wheel = SimpleNamespace(files=[SimpleNamespace(locate=lambda file=file: ROOT / file) for file in installed])
    monkeypatch.setattr("mxdp.exercises.__file__", str(tmp_path / "site-packages/mxdp/exercises/__init__.py"))
    monkeypatch.setattr("mxdp.exercises.metadata.distributions", lambda name: [wheel])
    assert main(["copy", str(tmp_path / "mine")]) == 0
    wheel.files = None
    assert main(["copy", str(tmp_path / "more")]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "nowhere.py"], "there is no readable file nowhere.py"),
        (["check", "."], "there is no readable file ."),
        (["watch", "nowhere.py"], "there is no readable file nowhere.py"),
        (["check", __file__, "--seconds", "0"], "--seconds and --megabytes are numbers above 0"),
    ],
)
def test_wrong_usage(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_the_page_shows_what_is_printed(tmp_path):
    file = tmp_path / "student.py"
    file.write_text("def naive_allreduce(data):" + SOLUTIONS["naive_allreduce"].replace("total.copyto(x)", "pass"))
    page = (ROOT / "docs" / "exercises.md").read_text()
    command = [sys.executable, "-m", "mxdp.exercises", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "```text\n" + re.sub(" +$", "", done.stdout, flags=re.MULTILINE) + "```" in page


def test_what_comes_next_is_the_order_of_the_lab():
    page = " ".join((ROOT / "docs" / "for-lecturers" / "README.md").read_text().split())
    ordered = re.search(r"exercises (\d), (\d), (\d) and (\d) of.*go on with (\d), (\d) and (\d)", page).groups()
    assert ORDER[:7] == tuple(map(int, ordered))
    assert sorted(ORDER) == sorted({exercise.number for exercise in EXERCISES.values()})


def test_watch_checks_at_each_save_until_ctrl_c(tmp_path, monkeypatch, capsys):
    file, texts = file_of(tmp_path, "not saved"), ["first save", "second save"]
    monkeypatch.setattr("mxdp.exercises.__main__.check", lambda file, *_: {**REPORT, "problem": file.read_text()})

    def sleep(seconds):
        if not texts:
            raise KeyboardInterrupt
        file.write_text(texts.pop(0))
        os.utime(file, (len(texts), len(texts)))  # another time, also if both are written in one tick of the clock

    monkeypatch.setattr("mxdp.exercises.__main__.time", SimpleNamespace(sleep=sleep))
    assert main(["watch", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "not saved" not in out
    assert out.index("Watching") < out.index("first save") < out.index("second save")


def test_the_parent_imports_no_mxnet():
    code = "import sys, mxdp.exercises.check, mxdp.exercises.__main__; sys.exit('mxnet' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


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
