"""A report of a check in words for the terminal, and as a JUnit file."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

from mxdp.exercises import EXERCISES
from mxdp.exercises.check import Report

BAR = 20
"""Characters of the longest arrow."""

LAST_LINES = 10
STYLES = {"right": "green", "wrong": "bold red", "not tried": "dim"}


def show(report: Report, console: Console) -> None:
    """Print what is right, the first case that is wrong, and a hint."""

    def say(text: str = "", style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=bool(text) and text[0] == " ")

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
        parts = [table(wrong), drawing(wrong)] if wrong and "yours" in wrong else []
        if not wrong:
            parts = [drawing(max(exercise["cases"], key=lambda case: len(case.get("planned") or [])))]
        for lines in filter(None, map(list, parts)):
            for line in lines:
                say(line)
            say()
        if not wrong:
            say(_next(exercise["number"]))
        elif wrong.get("hint"):
            console.print(Text.assemble(("Hint: ", "bold"), wrong["hint"]))
    printed = report["printed"].rstrip().splitlines()
    if printed:
        left_out = f" (the last {LAST_LINES} lines)" if len(printed) > LAST_LINES else ""
        say(f"\nYour code printed{left_out}:")
        for line in printed[-LAST_LINES:]:
            say(f"  {line}")


def _next(number: int) -> str:
    following = next((each for each in EXERCISES.values() if each.number == number + 1), None)
    return f"All cases are right. Next: {following.title}, {following.file}" if following else "All cases are right."


def table(case: Dict[str, Any]) -> Iterator[str]:
    """What is given, what must come out, what came out."""
    width = max(len(label) for part in ("given", "expected", "yours") for label, _ in case[part])
    expected = dict(map(tuple, case["expected"]))
    for part in ("given", "expected", "yours"):
        for place, (label, text) in enumerate(case[part]):
            first, *others = text.splitlines() or [""]
            mark = "  <- differs" if part == "yours" and expected.get(label) != text else ""
            yield f"  {part if place == 0 else '':<10}{label:<{width}}  {first}{'' if others else mark}"
            for number, line in enumerate(others, 1):
                yield f"  {'':<10}{'':<{width}}  {line}{mark if number == len(others) else ''}"


def drawing(case: Dict[str, Any]) -> Iterator[str]:
    """What went from device to device, beside the plan, as arrows."""
    moved, planned = ({(a, b): n for a, b, n in case.get(part) or []} for part in ("moved", "planned"))
    if not planned and not moved:
        return
    most = max([*moved.values(), *planned.values()])

    def arrow(numbers: int) -> str:
        return f"{'=' * max(1, BAR * numbers // most - 1)}> {numbers}" if numbers else "-"

    yield f"  {'numbers that travel':<22}{'by your code':<{BAR + 9}}by the plan"
    for pair in sorted({*moved, *planned}):
        label = f"cpu({pair[0]}) to cpu({pair[1]})"
        yield f"  {label:<22}{arrow(moved.get(pair, 0)):<{BAR + 9}}{arrow(planned.get(pair, 0))}"


def junit(reports: Sequence[Report]) -> str:
    """One suite an exercise, one test a case; a file that can't be checked is a suite with one error."""
    top = ElementTree.Element("testsuites")
    for report in reports:
        for exercise in report["exercises"]:
            suite = _suite(top, exercise["function"], exercise["cases"])
            for case in exercise["cases"]:
                test = ElementTree.SubElement(suite, "testcase", classname=exercise["function"], name=case["title"])
                if case["state"] == "wrong":
                    lines = list(table(case)) if "yours" in case else []
                    message = f"{case['problem']} {case.get('hint', '')}".strip()
                    ElementTree.SubElement(test, "failure", message=message).text = "\n".join(lines)
                elif case["state"] == "not tried":
                    ElementTree.SubElement(test, "skipped")
        if report["problem"]:
            suite = _suite(top, report["file"], [{"state": "error"}])
            test = ElementTree.SubElement(suite, "testcase", classname=report["file"], name="the file")
            ElementTree.SubElement(test, "error", message=report["problem"])
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True)


def _suite(top: Any, name: str, cases: List[Dict[str, Any]]) -> Any:
    counts: Any = {
        field: str(sum(case["state"] == state for case in cases))
        for field, state in (("failures", "wrong"), ("errors", "error"), ("skipped", "not tried"))
    }
    return ElementTree.SubElement(top, "testsuite", name=name, tests=str(len(cases)), **counts)
