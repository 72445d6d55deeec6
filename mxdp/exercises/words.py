"""Reports of checks in words for the terminal, and as a JUnit file."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Sequence
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

from mxdp.errors import plural
from mxdp.exercises import EXERCISES
from mxdp.exercises.check import Report

BAR = 20
"""Characters of the longest arrow."""

LAST_LINES = 10
STYLES = {"right": "green", "wrong": "bold red", "not tried": "dim"}
KINDS = {"wrong": ("failures", "failure"), "error": ("errors", "error"), "not tried": ("skipped", "skipped")}
"""JUnit's words for the states: the suite's count, and the test's part."""


def show(report: Report, console: Console) -> None:
    """Print what is right, the first case that is wrong, and a hint."""

    def say(text: str = "") -> None:
        console.print(Text(text), soft_wrap=text.startswith(" "))

    if report["problem"]:
        say(f"{report['file']}: {report['problem']}")
    for exercise in report["exercises"]:
        say(f"Exercise {exercise['number']}, {exercise['title']}: {exercise['function']}")
        for case in exercise["cases"]:
            console.print(Text.assemble("  ", (f"{case['state']:<11}", STYLES[case["state"]]), case["title"]))
        wrong = next((case for case in exercise["cases"] if case["state"] == "wrong"), None)
        say()
        if wrong:
            say(f"{wrong['title'][0].upper()}{wrong['title'][1:]}: {wrong['problem']}")
        drawn = wrong or max(exercise["cases"], key=lambda case: len(case.get("planned") or []))
        for lines in (list(table(drawn)) if wrong else [], list(drawing(drawn))):
            for line in lines:
                say(line)
            if lines:
                say()
        if exercise["right"]:
            say(f"All cases are right.{_next(exercise['number'])}")
        if wrong and wrong.get("hint"):
            console.print(Text.assemble(("Hint: ", "bold"), wrong["hint"]))
    printed = report["printed"].rstrip().splitlines()
    if printed:
        left_out = f" (the last {LAST_LINES} lines)" if len(printed) > LAST_LINES else ""
        say(f"\nYour code printed{left_out}:")
        for line in printed[-LAST_LINES:]:
            say(f"  {line}")


def show_all(reports: Sequence[Report], console: Console) -> None:
    """The reports of several files, each under its path, and a closing summary."""
    closing = []
    for report in reports:
        console.print(Text(f"=== {report['file']} ===", "bold"), soft_wrap=True)
        show(report, console)
        console.print()
        states = [case["state"] for exercise in report["exercises"] for case in exercise["cases"]]
        state = "right" if report["right"] else "wrong"
        words = report["problem"] or f"{states.count('right')} of {plural(len(states), 'case')}"
        closing.append(Text.assemble("  ", (f"{state:<7}", STYLES[state]), f"{report['file']}: {words}"))
    console.print(f"{sum(report['right'] for report in reports)} of {len(reports)} files are right:")
    for line in closing:
        console.print(line, soft_wrap=True)


def _next(number: int) -> str:
    following = [exercise for exercise in EXERCISES.values() if exercise.number == number + 1]
    return f" Next: {following[0].title}, {following[0].file}" if following else ""


def table(case: Dict[str, Any]) -> Iterator[str]:
    """What is given, what must come out, what came out."""
    parts = [part for part in ("given", "expected", "yours") if "yours" in case]
    width = max((len(label) for part in parts for label, _ in case[part]), default=0)
    for part in parts:
        for place, (label, text) in enumerate(case[part]):
            mark = "  <- differs" if part == "yours" and [label, text] not in map(list, case["expected"]) else ""
            lines = text.splitlines() or [""]
            lines[-1] += mark
            heads = [f"{part if place == 0 else '':<10}{label:<{width}}", *[" " * (10 + width)] * (len(lines) - 1)]
            yield from (f"  {head}  {line}" for head, line in zip(heads, lines))


def drawing(case: Dict[str, Any]) -> Iterator[str]:
    """What went from device to device, beside the plan, as arrows."""
    moved, planned = ({(a, b): n for a, b, n in case.get(part) or []} for part in ("moved", "planned"))
    most = max([*moved.values(), *planned.values()], default=0)

    def arrow(numbers: int) -> str:
        return f"{'=' * max(1, BAR * numbers // most - 1)}> {numbers}" if numbers else "-"

    if most:
        yield f"  {'numbers that travel':<22}{'by your code':<{BAR + 9}}by the plan"
    for pair in sorted({*moved, *planned}):
        label = f"cpu({pair[0]}) to cpu({pair[1]})"
        yield f"  {label:<22}{arrow(moved.get(pair, 0)):<{BAR + 9}}{arrow(planned.get(pair, 0))}"


def junit(reports: Sequence[Report]) -> str:
    """One suite a file, named by its path, and one test a case; a file that can't be checked has one error."""
    top = ElementTree.Element("testsuites")
    for report in reports:
        tests = [(exercise["function"], case) for exercise in report["exercises"] for case in exercise["cases"]]
        if report["problem"]:
            tests.append(("file", dict(title="the file can be checked", state="error", problem=report["problem"])))
        states = [case["state"] for _, case in tests]
        counts: Any = {name: str(states.count(state)) for state, (name, _) in KINDS.items()}
        suite = ElementTree.SubElement(top, "testsuite", name=report["file"], tests=str(len(tests)), **counts)
        for function, case in tests:
            attributes = dict(classname=function, name=case["title"], file=report["file"])
            test = ElementTree.SubElement(suite, "testcase", attributes)
            if case["state"] in KINDS:
                message = f"{case.get('problem', 'not tried')} {case.get('hint', '')}".strip()
                part = ElementTree.SubElement(test, KINDS[case["state"]][1], message=message)
                part.text = "\n".join(table(case))
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True)
