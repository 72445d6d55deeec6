"""``python -m mxdp.exercises``: checks the files of the exercises, and says what came of it, also as a JUnit file."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional, Sequence
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

from mxdp.errors import UsageError, as_command, plural, tidy_after_signals
from mxdp.exercises import EXERCISES, FOLDER, ORDER, copy
from mxdp.exercises.check import LOOK_SECONDS, MEGABYTES, SECONDS, SEED, check
from mxdp.exercises.judge import Case, Report, cases_of
from mxdp.files import check_file, write_beside

BAR = 20
"""Characters of the longest arrow."""

LAST_LINES = 10
STYLES = {"right": "green", "wrong": "bold red", "not tried": "dim"}
COUNTS = {"wrong": "failures", "error": "errors", "not tried": "skipped"}
"""JUnit's words for a suite's count of the cases in a state."""
PARTS = {"wrong": "failure", "error": "error", "not tried": "skipped"}
"""JUnit's words for a test in a state."""


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    top = argparse.ArgumentParser(
        prog="python -m mxdp.exercises",
        description="Checks what you wrote into the files of experiments/exercises.",
        epilog="Exit status: 0 all right, 1 something is wrong, 2 wrong usage.",
    )
    limits = argparse.ArgumentParser(add_help=False)
    for option, kind, default, text in (
        ("--seconds", float, SECONDS, "limit of a case"),
        ("--megabytes", float, MEGABYTES, "limit of memory"),
        ("--seed", int, SEED, "chooses the sizes at random"),
    ):
        help = f"{text} (default: %(default)g)"
        limits.add_argument(option, type=kind, default=default, help=help)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("check", parents=[limits], help="check a file, or several")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE")
    one.add_argument("--json", action="store_true", help="print JSON")
    handed_in = "the exercise that every file must hold; no other counts"
    one.add_argument(
        "--exercise", type=int, choices=sorted(ORDER), default=0, metavar="N", help=handed_in
    )
    one.add_argument(
        "--csv", type=Path, metavar="FILE", help="write a table for grading, a row for each file"
    )
    one.add_argument(
        "--junit",
        type=Path,
        metavar="FILE",
        help="write the cases as tests, for a course's own grading",
    )
    again = commands.add_parser(
        "watch", parents=[limits], help="check a file each time that it is saved; Ctrl-C ends it"
    )
    again.add_argument(
        "path",
        nargs="?",
        type=Path,
        default=FOLDER,
        metavar="FILE|FOLDER",
        help=f"default: {FOLDER}",
    )
    commands.add_parser("list", help="all exercises")
    taken = commands.add_parser(
        "copy", help="copy the files to fill in, for who has no clone; overwrites none"
    )
    taken.add_argument("folder", type=Path, metavar="FOLDER")
    return top


@as_command(failed=2)
def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0 all right, 1 something is wrong, 2 usage, or nothing was judged."""
    options = parser().parse_args(arguments)
    console = Console(highlight=False)
    if options.command == "list":
        for exercise in EXERCISES.values():
            console.print(f"{exercise.number:>2}  {exercise.title:<26}{FOLDER / exercise.file}")
        return 0
    if options.command == "copy":
        copy(options.folder)
        print(
            f"Eleven exercises are in {options.folder}: `python -m mxdp.exercises watch {options.folder}`"
        )
        return 0
    if not (options.seconds > 0 and options.megabytes > 0):
        raise UsageError("--seconds and --megabytes are numbers above 0")
    limits = options.seconds, options.megabytes, options.seed
    if options.command == "watch":
        return watch(options.path, limits, console)
    for file in (options.junit, options.csv):
        if file:
            check_file(file)
    reports = [check(existing(file), *limits, options.exercise) for file in options.files]
    if options.json:
        print(json.dumps(reports if len(reports) > 1 else reports[0], indent=2))
    else:
        show(reports, console)
    if options.junit:
        write_beside(options.junit, junit(reports))
    if options.csv:
        write_beside(options.csv, grades(reports, options.exercise))
    return 0 if all(report["right"] for report in reports) else 1


def existing(file: Path) -> Path:
    """The file. Raises a UsageError if it can't be read."""
    if not file.is_file() or not os.access(file, os.R_OK):
        raise UsageError(
            f"there is no readable file {file}; `python -m mxdp.exercises list` lists the exercises, and `copy FOLDER` "
            "copies their files"
        )
    return file


def watch(path: Path, limits: Sequence[Any], console: Console) -> int:
    """Check one file at once, and any file whenever it is saved, until Ctrl-C."""
    saved: Dict[Path, int] = {} if path.is_dir() else {existing(path): 0}
    console.print(f"Watching {path}: a file is checked when it is saved. Ctrl-C ends this.\n")
    with contextlib.suppress(KeyboardInterrupt):
        for look in itertools.count():
            files = sorted(path.glob("*.py")) if path.is_dir() else [path]
            for file in files:
                before = saved.get(file)
                with contextlib.suppress(OSError):  # an editor may have removed it for a moment
                    saved[file] = file.stat().st_mtime_ns
                if before == saved.get(file):
                    continue
                if look or file == path:  # the files of a folder are not checked at once
                    if console.is_terminal:
                        console.clear()
                    else:
                        console.print()
                    show([check(file, *limits)], console)
            time.sleep(LOOK_SECONDS)
    return 0


def show(reports: Sequence[Report], console: Console) -> None:
    """Print the reports; of several files each under its path, and a closing summary."""
    if len(reports) == 1:
        show_one(reports[0], console)
        return
    for report in reports:
        console.print(Text(f"=== {report['file']} ===", "bold"), soft_wrap=True)
        show_one(report, console)
        console.print()
    right = sum(report["right"] for report in reports)
    console.print(f"{right} of {len(reports)} files are right:")
    for report in reports:
        states = [case["state"] for case in cases_of(report)]
        state = "right" if report["right"] else "wrong"
        words = report["problem"] or f"{states.count('right')} of {plural(len(states), 'case')}"
        line = Text.assemble("  ", (f"{state:<7}", STYLES[state]), f"{report['file']}: {words}")
        console.print(line, soft_wrap=True)


def show_one(report: Report, console: Console) -> None:
    """Print what is right, the first case that is wrong, and a hint."""

    def say(text: str = "") -> None:
        console.print(Text(text), soft_wrap=text.startswith(" "))

    if report["problem"]:
        say(f"{report['file']}: {report['problem']}")
    for exercise in report["exercises"]:
        cases = exercise["cases"]
        say(f"Exercise {exercise['number']}, {exercise['title']}: {exercise['function']}")
        for case in cases:
            state = case["state"]
            console.print(Text.assemble("  ", (f"{state:<11}", STYLES[state]), case["title"]))
        say()
        wrong = next((case for case in cases if case["state"] == "wrong"), None)
        if wrong:
            say(f"{wrong['title'][0].upper()}{wrong['title'][1:]}: {wrong['problem']}")
        most_moves = max(cases, key=lambda case: len(case.get("planned") or []))
        for block in (table(wrong or {}), drawing(wrong or most_moves)):
            if block:
                say(f"{block}\n")
        if exercise["right"]:
            say(f"All cases are right.{following(exercise['number'])}")
        if wrong and wrong.get("hint"):
            console.print(Text.assemble(("Hint: ", "bold"), wrong["hint"]))
    printed = report["printed"].rstrip().splitlines()
    if printed:
        left_out = f" (the last {LAST_LINES} lines)" if len(printed) > LAST_LINES else ""
        say(f"\nYour code printed{left_out}:")
        say("\n".join(f"  {line}" for line in printed[-LAST_LINES:]))


def following(number: int) -> str:
    """The next exercise, in words; nothing after the last one."""
    after = dict(zip(ORDER, ORDER[1:])).get(number)
    for exercise in EXERCISES.values():
        if exercise.number == after:
            return f" Next: {exercise.title}, {exercise.file}"
    return ""


def table(case: Case) -> str:
    """The arguments of a case, the expected result, and the student's, if there is one."""
    if "yours" not in case:
        return ""
    parts = ("given", "expected", "yours")
    width = max((len(label) for part in parts for label, _ in case[part]), default=0)
    expected = [list(row) for row in case["expected"]]
    lines = []
    for part in parts:
        heading = part
        for label, text in case[part]:
            mark = ""
            if part == "yours" and [label, text] not in expected:
                mark = "  <- differs"
            head = f"  {heading:<10}{label:<{width}}  "
            lines.append(head + f"{text}{mark}".replace("\n", "\n" + " " * len(head)))
            heading = ""
    return "\n".join(lines)


def drawing(case: Case) -> str:
    """The numbers that travelled from device to device, beside the plan's, as arrows."""
    moved = {(a, b): n for a, b, n in case.get("moved") or []}
    planned = {(a, b): n for a, b, n in case.get("planned") or []}
    most = max([*moved.values(), *planned.values()], default=0)

    def arrow(numbers: int) -> str:
        return f"{'=' * max(1, BAR * numbers // most - 1)}> {numbers}" if numbers else "-"

    lines = []
    if most:
        lines.append(f"  {'numbers that travel':<22}{'by your code':<{BAR + 9}}by the plan")
    for pair in sorted({*moved, *planned}):
        label = f"cpu({pair[0]}) to cpu({pair[1]})"
        by_code = arrow(moved.get(pair, 0))
        by_plan = arrow(planned.get(pair, 0))
        lines.append(f"  {label:<22}{by_code:<{BAR + 9}}{by_plan}")
    return "\n".join(lines)


def grades(reports: Sequence[Report], demanded: Optional[int] = None) -> str:
    """A table as CSV: a row for each file, with its exercises' numbers (or the ``demanded`` one, also of a file that
    lacks it), 1 if all of it is right, how many cases are right, of how many, and what is wrong first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "exercise", "right", "cases right", "cases", "problem"])
    for report in reports:
        numbers = dict.fromkeys(str(exercise["number"]) for exercise in report["exercises"])
        right = 0
        problem = report["problem"]
        cases = cases_of(report)
        for case in cases:
            if case["state"] == "right":
                right += 1
            elif case["state"] == "wrong" and not problem:
                problem = f"{case['title']}: {case['problem']}"
        asked = str(demanded) if demanded else " ".join(numbers)
        marks = int(report["right"]), right, len(cases)
        writer.writerow([report["file"], asked, *marks, problem])
    return text.getvalue()


def junit(reports: Sequence[Report]) -> str:
    """One suite a file, named by its path, and one test a case; a file that can't be checked has one error."""
    top = ElementTree.Element("testsuites")
    for report in reports:
        tests = []
        for exercise in report["exercises"]:
            tests += [(exercise["function"], case) for case in exercise["cases"]]
        problem = report["problem"]
        if problem:
            case = dict(title="the file can be checked", state="error", problem=problem)
            tests.append(("file", case))
        states = [case["state"] for _, case in tests]
        attributes = dict(name=report["file"], tests=str(len(tests)))
        for state, name in COUNTS.items():
            attributes[name] = str(states.count(state))
        suite = ElementTree.SubElement(top, "testsuite", attributes)
        for function, case in tests:
            attributes = dict(classname=function, name=case["title"], file=report["file"])
            test = ElementTree.SubElement(suite, "testcase", attributes)
            if case["state"] in PARTS:
                message = f"{case.get('problem', 'not tried')} {case.get('hint', '')}".strip()
                part = ElementTree.SubElement(test, PARTS[case["state"]], message=message)
                part.text = table(case)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True)


if __name__ == "__main__":
    tidy_after_signals()
    sys.exit(main())
