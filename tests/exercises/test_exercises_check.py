"""The checker survives what students' files do, and says what it was in one sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict
from xml.etree import ElementTree

import psutil
import pytest
from solutions import SOLUTIONS

from mxdp.exercises import EXERCISES, FOLDER
from mxdp.exercises.__main__ import main
from mxdp.exercises.check import check
from mxdp.exercises.child import cases

FIRST = """import os, sys, time, ctypes

def fill_buckets(nbytes, room):
"""
LINE = FIRST.count("\n") + 1
ROOT = Path(__file__).parents[2]


def file_of(folder: Path, text: str) -> Path:
    file = folder / "student.py"
    file.write_text(text)
    return file


def solved(name: str) -> str:
    arguments = "data" if "allreduce" in name else "nbytes, room"
    return f"from mxdp.backend import np\ndef {name}({arguments}):{SOLUTIONS[name]}"


IN_THE_FUNCTION = {
    "while True: pass": "does not end within 2 s",
    "sys.exit(3)": "It calls sys.exit(3): return a value instead.",
    "os._exit(0)": "It ends the process (exit status 0)",
    "os.abort()": "It crashes in C (SIGABRT)",
    "while True: print('x' * 1000)": "It prints more than 1 MB",
    "kept = [bytearray(10**8) for _ in range(9)] + [time.sleep(9)]": "It takes more than 700 MB of memory",
    "os.remove(__file__)": "is gone: the code in it deleted or moved it",
    "raise KeyboardInterrupt": f"Line {LINE} (raise KeyboardInterrupt) raises KeyboardInterrupt",
    "return 1 / 0": f"Line {LINE} (return 1 / 0) raises ZeroDivisionError: division by zero",
    "from mxdp.backend import np; np.ones(3) + np.ones(4)": "raises MXNetError: Check failed: l == 1",
    "return input()": "raises EOFError",
    "fill_buckets(nbytes, room)": "raises RecursionError",
    "return 3": "It returns 3: return a list of lists of numbers",
}
IN_THE_FILE = {
    **{f"{FIRST}    {line}\n": words for line, words in IN_THE_FUNCTION.items()},
    "while True: pass": "does not end within 2 s",
    "import sys; sys.exit('enough')": "It calls sys.exit(enough)",
    "import os; os._exit(7)": "It ends the process (exit status 7)",
    "import ctypes; ctypes.string_at(8)": "It crashes in C (SIGSEGV)",
    "def fill_buckets(:": "Line 1 is no Python",
    "import nothing_like_it": "Line 1 (import nothing_like_it) raises ModuleNotFoundError",
    "from mxdp.scratch import naive_allreduce": "It defines none of the functions that can be checked",
    solved("fill_buckets") + "import os; os.remove(__file__)": "is gone: the code in it deleted or moved it",
}


@pytest.mark.parametrize("text", IN_THE_FILE)
def test_whatever_a_file_does_ends_in_one_sentence(tmp_path, text):
    report = check(file_of(tmp_path, text), seconds=2 if "True" in text else 30, megabytes=700)
    assert not report["right"]
    cases = [case for exercise in report["exercises"] for case in exercise["cases"] if case["state"] == "wrong"]
    problem = report["problem"] or cases[0]["problem"]
    assert IN_THE_FILE[text] in problem
    assert "\n" not in problem


def test_bytes_that_are_no_text_are_a_sentence(tmp_path):
    file = tmp_path / "student.py"
    file.write_bytes(b"x = '\xff'\n")
    assert "raises" in check(file)["problem"] or "no Python" in check(file)["problem"]


@pytest.mark.parametrize(("body", "right"), [(SOLUTIONS["fill_buckets"], True), ("\n    return []\n", False)])
def test_no_file_descriptor_leads_to_the_answers(tmp_path, body, right):
    scribble = """import os
def scribble():
    for descriptor in range(3, 30):
        for text in (b"x", b'{"done": true}\\n'):
            try:
                os.write(descriptor, text)
            except OSError:
                pass
    os.closerange(3, 100)
"""
    file = file_of(tmp_path, f"{scribble}scribble()\ndef fill_buckets(nbytes, room):\n    scribble(){body}")
    report = check(file)
    assert (report["right"], report["problem"]) == (right, "")


@pytest.mark.parametrize("line", ["raise ValueError(text)", "print(text)", "return [[text]]"])
def test_signs_that_are_no_text_break_no_report(tmp_path, capsys, line):
    xml = tmp_path / "out.xml"
    file = file_of(tmp_path, f"""def fill_buckets(nbytes, room):\n    text = "\\ud800\\x1b[31m\\x00"\n    {line}\n""")
    assert main(["check", str(file), "--junit", str(xml)]) == 1
    assert "\x1b" not in capsys.readouterr().out
    ElementTree.parse(xml)


def test_nothing_is_left_behind(tmp_path):
    """A child that the student's code starts in the check's own session ends with it."""
    line = "import subprocess; subprocess.Popen(['sleep', '987']); time.sleep(1000)"
    check(file_of(tmp_path, f"{FIRST}    {line}\n"), seconds=2)
    deadline = time.monotonic() + 10
    while left := [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "987"]]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_the_parent_reads_no_file_and_keeps_the_end_of_what_is_printed(tmp_path):
    file = file_of(tmp_path, f"import os\nprint('x' * 5000, os.getpid())\n{solved('fill_buckets')}")
    report = check(file)
    assert report["right"]
    pid = report["printed"].strip("x").strip()
    assert pid.isdecimal()
    assert int(pid) != os.getpid()


def test_another_seed_gives_other_sizes():
    sizes = [
        [str(trial.given) for case in cases("ring_allreduce", seed).values() for trial in case] for seed in (0, 0, 1)
    ]
    assert sizes[0] == sizes[1] != sizes[2]


def test_a_junit_file_stays_if_the_new_one_cannot_be_written(tmp_path, monkeypatch, capsys):
    file, write = tmp_path / "out.xml", Path.write_bytes

    def half(self, content):
        write(self, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    file.write_text("old")
    monkeypatch.setattr(
        "mxdp.exercises.__main__.check", lambda *_: dict(file="", exercises=[], problem="", printed="", right=True)
    )
    monkeypatch.setattr(Path, "write_bytes", half)
    assert main(["check", __file__, "--junit", str(file), "--json"]) == 2
    assert "can't be written (No space left" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.xml", "old")]


def test_several_functions_of_one_file_are_all_checked(tmp_path, capsys):
    text = solved("naive_allreduce") + "\n" + solved("fill_buckets").replace("> room", ">= room")
    file = file_of(tmp_path, text)
    assert main(["check", str(file)]) == 1
    out = capsys.readouterr().out
    assert "All cases are right. Next: ring all-reduce, 02_ring_allreduce.py" in out
    assert "still fit: compare with" in out


def test_what_was_not_tried_is_not_right(tmp_path, capsys):
    text = "import os\ndef naive_allreduce(data):\n    os.abort()\n" + solved("fill_buckets")
    assert main(["check", str(file_of(tmp_path, text))]) == 1
    out = capsys.readouterr().out
    assert out.count("not tried") == 4 + 6
    assert "All cases are right" not in out


def test_several_files_can_be_told_apart(tmp_path, capsys):
    files, xml = [tmp_path / student / "06_fill_buckets.py" for student in ("ann", "bob", "eve")], tmp_path / "out.xml"
    right = solved("fill_buckets")
    for file, text in zip(files, (right, right.replace("> room", ">= room"), "def")):
        file.parent.mkdir()
        file.write_text(text)
    assert main(["check", *map(str, files), "--junit", str(xml)]) == 1
    out = capsys.readouterr().out
    assert re.findall("^=== (.*) ===$", out, re.MULTILINE) == [*map(str, files)]
    closing = out.partition("1 of 3 files are right:")[2]
    for state, file, words in zip(("right", "wrong", "wrong"), files, ("6 of 6 cases", "4 of 6 cases", "Line 1 is no")):
        assert f"  {state}  {file}: {words}" in closing
    suites = ElementTree.parse(xml).getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == [*map(str, files)]
    counts = [[suite.get(name) for name in ("tests", "failures", "errors")] for suite in suites]
    assert counts == [["6", "0", "0"], ["6", "2", "0"], ["1", "0", "1"]]
    failure = suites[1].find("testcase/failure")
    assert failure is not None
    assert "compare with <=" in failure.get("message", "")
    assert "yours" in (failure.text or "")


def test_json_and_exit_status(tmp_path, capsys):
    good, bad = tmp_path / "good.py", file_of(tmp_path, "def")
    good.write_text(solved("fill_buckets"))
    assert main(["check", str(good), "--json"]) == 0
    report: Dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["right"]
    assert {case["state"] for case in report["exercises"][0]["cases"]} == {"right"}
    assert main(["check", str(good), str(bad), "--json"]) == 1
    assert [report["right"] for report in json.loads(capsys.readouterr().out)] == [True, False]


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
    monkeypatch.setattr(
        "mxdp.exercises.__file__", str(tmp_path / "site-packages" / "mxdp" / "exercises" / "__init__.py")
    )
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


def test_watch_checks_at_each_save(tmp_path):
    file = file_of(tmp_path, f"{FIRST}    raise NotImplementedError\n")
    command = [sys.executable, "-u", "-m", "mxdp.exercises", "watch", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        try:
            assert "Watching" in child.stdout.readline()
            time.sleep(1)  # it has looked once
            for text, words in (
                (f"{FIRST}    pass\n", "It returns None"),
                (solved("fill_buckets"), "All cases are right"),
            ):
                file.write_text(text)
                for line in child.stdout:
                    if words in line:
                        break
        finally:
            child.kill()


def test_ctrl_c_ends_watch_well(tmp_path, monkeypatch, capsys):
    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("mxdp.exercises.__main__.time.sleep", interrupt)
    assert main(["watch", str(tmp_path)]) == 0
    assert "Watching" in capsys.readouterr().out


def test_the_parent_imports_no_mxnet():
    code = "import sys, mxdp.exercises.check, mxdp.exercises.__main__; print('mxnet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
