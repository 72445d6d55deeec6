"""Reads a student's file and calls its functions: ``python -m mxdp.exercises.judge FILE SEED ANSWERS NUMBER``.

Before each call, which might never end, it writes the report so far to the file ANSWERS, whole. It keeps no descriptor
open that the student's code could write to or close. NUMBER is that of the exercise, or 0: all that the file holds.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import mx
from mxdp.errors import either
from mxdp.exercises import EXERCISES
from mxdp.exercises.trial import Trial, Values, Wrong, recording
from mxdp.files import write_beside

LINE = 100
"""Characters of a student's line that a sentence quotes."""

REPLACED = (
    "`x[k] = ...` on a list puts another array into the list, and the array that was given stays as it was. Write into "
    "that array: `x[k][:] = ...`."
)

KEPT = "Is something kept from one call to the next, in a global variable or a default argument? Begin each call anew."

Report = Dict[str, Any]
Case = Dict[str, Any]


def cases_of(report: Report) -> List[Case]:
    """The cases of all exercises in the file."""
    return [case for exercise in report["exercises"] for case in exercise["cases"]]


def check_here(file: str, seed: int, answers: Path, number: int = 0) -> None:
    """Check everything that the file defines, or the exercise ``number`` alone, in this process, and end it. A
    ``problem`` is None as long as it isn't known."""
    report: Report = dict(file=printable(file), right=False, problem=None, exercises=[], printed="")

    def save() -> None:
        write_beside(answers, json.dumps(report))

    tasks = {}
    for name, exercise in EXERCISES.items():
        if number in (0, exercise.number):
            tasks[name] = exercise.cases(seed)
    mx.nd.waitall()  # so MXNet is loaded before the file is read, and not in the time of its first case
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # MXNet's handler turns a crash into an exit
    save()
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    functions: Dict[str, Any] = {}
    try:
        for name, value in runpy.run_path(file).items():
            if callable(value):
                module = str(getattr(value, "__module__", ""))
                if not module.startswith("mxdp"):  # else the file has imported it
                    functions[name] = value
        report["problem"] = lacking([name for name in tasks if name in functions], number)
    except BaseException as error:
        report["problem"] = printable(explained(error, file))
    for name, cases in tasks.items():
        if name in functions:
            entry = dict(
                number=EXERCISES[name].number,
                title=EXERCISES[name].title,
                function=name,
                right=False,
                cases=[dict(title=title, state="not tried") for title in cases],
            )
            report["exercises"].append(entry)
    for answered in report["exercises"]:
        name = answered["function"]
        for trials, case in zip(tasks[name].values(), answered["cases"]):
            try_case(trials, case, functions[name], file, save)
    save()
    os._exit(0)  # threads that the student's code has left don't keep the process


def lacking(defined: Sequence[str], number: int) -> str:
    """Which functions a file lacks, in words: those of the exercise ``number``, or else of each that it has a part
    of."""
    numbers = [number] if number else [EXERCISES[name].number for name in defined]
    if not numbers:
        return f"It defines none of the functions that can be checked: {', '.join(EXERCISES)}."
    asked = [name for name, exercise in EXERCISES.items() if exercise.number in numbers]
    absent = [name for name in asked if name not in defined]
    return f"It does not define {either(absent)}, which the exercise asks for." if absent else ""


def try_case(
    trials: Sequence[Trial], case: Case, function: Any, file: str, save: Callable[[], Any]
) -> None:
    """Make the trials until one is wrong. ``case``, its part of the report, names each before it runs, and is saved
    then; at the end it has the answer."""
    title = case["title"]
    for trial in trials:
        case.update(title=trial.title, state="wrong", problem=None)
        save()
        answer = answer_of(trial, function, file)
        if answer["state"] == "wrong" or len(trials) == 1:
            case.update(answer)
            return
    case.update(title=title, state="right", problem="")


def answer_of(trial: Trial, function: Any, file: str) -> Case:
    """Make the trial; the answer in words, as JSON has it.

    ``file`` holds the function's source. ``state`` is "right" or "wrong"; ``problem`` is a sentence, or empty.
    ``given``, ``expected`` and ``yours`` are lists of (label, text), ``moved`` and ``planned`` of (source, target,
    numbers). ``hints``: all that fit.
    """
    record = trial.record
    answer: Case = dict(state="wrong", given=shown(trial.given), expected=shown(trial.expected))

    def recorded(*arguments: Any) -> Any:
        before = arrays_in(arguments)
        with recording(record):
            returned = function(*arguments)
        record.replaced |= any(all(x is not y for y in before) for x in arrays_in(arguments))
        return returned

    try:
        got = trial.run(recorded)
        answer["yours"] = shown(got)
        hints = mistaken(trial, got)
    except NotImplementedError:
        return {**answer, "problem": "This function is not written yet."}
    # An error may be of what was returned, too, such as lists that are nested too deeply.
    except BaseException as error:
        return {**answer, "problem": printable(explained(error, file))}
    if trial.planned is not None:
        for name, moves in (("moved", record.moves), ("planned", trial.planned)):
            answer[name] = [(*pair, numbers) for pair, numbers in sorted(moves.items())]
    if hints is not None:
        if record.replaced:
            hints = [REPLACED]
        return {**answer, "problem": "The result is wrong.", "hints": hints}
    if record.mixed:
        what = f"But one operation has arrays on {record.mixed}, which fails on GPUs."
        criticism = f"{what} Copy to the other device first."
    else:
        criticism = trial.judge(record)
    if criticism:
        return {**answer, "problem": f"The result is right. {criticism}"}
    if trial.again:
        later = answer_of(trial.again, function, file)
        if later["state"] == "wrong":
            what = "The first call is right, but not the second, with other numbers of these sizes."
            later["problem"] = f"{what} {later['problem']}"
            if later.get("yours") == answer["yours"] or not later.get("hints"):
                later["hints"] = [KEPT]
            return later
    return {**answer, "state": "right", "problem": ""}


def mistaken(trial: Trial, got: Values) -> Optional[List[str]]:
    """The hints that fit a wrong result, None of a right one."""

    def fit(values: Iterable[Any]) -> bool:
        return list(got) == list(trial.expected) and equal(values, got.values())

    if fit(trial.expected.values()):
        return None
    hints = [hint for hint, values in trial.mistakes.items() if fit(values)]
    if not hints:
        hints = [trial.hint(got)]
    return [hint for hint in hints if hint]


def arrays_in(given: Any) -> List[Any]:
    """The arrays in lists, and in lists of lists."""
    if isinstance(given, (list, tuple)):
        return [x for item in given for x in arrays_in(item)]
    return [given] if hasattr(given, "ctx") else []


def equal(values: Iterable[Any], others: Iterable[Any]) -> bool:
    """True for the same values; floats may differ by a ten-thousandth of the largest in their array."""

    def same(value: Any, other: Any) -> bool:
        if not isinstance(value, (float, onp.ndarray)):
            return bool(value == other)
        if onp.shape(value) != onp.shape(other):
            return False
        room = 1e-4 * float(onp.abs(value).max(initial=0))
        return bool(onp.allclose(other, value, rtol=0, atol=room))

    return all(map(same, values, others))


def shown(values: Values) -> List[Tuple[str, str]]:
    """Labels and texts."""

    def text(value: Any) -> str:
        if isinstance(value, onp.ndarray):
            return onp.array2string(value, precision=4, suppress_small=True, max_line_width=60)
        return f"{value:.4g}" if isinstance(value, float) else printable(f"{value}")

    return [(label, text(value)) for label, value in values.items()]


def printable(text: str) -> str:
    """The text without the characters that a terminal obeys, or that XML and UTF-8 don't have."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "?" for sign in text)


def explained(error: BaseException, file: str) -> str:
    """An error in the student's code in one sentence, with its line in ``file``."""
    if isinstance(error, Wrong):
        return str(error)
    if isinstance(error, SystemExit):
        status = "" if error.code is None else error.code
        return f"It calls sys.exit({status}): return a value instead."
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"Line {error.lineno} is not valid Python ({error.msg}): {(error.text or '').strip():.{LINE}}"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    # MXNet puts the stack of its C++ functions around the line that says what happened.
    message = str(error).split("MXNetError: ")[-1].strip().partition("\n")[0]
    text = f"{type(error).__name__}: {message}".rstrip(": ")
    if lines:
        return f"Line {lines[-1].lineno} ({lines[-1].line:.{LINE}}) raises {text}"
    deep = isinstance(error, (RecursionError, MemoryError))  # the latter of Python 3.8's parser
    return f"It is nested too deeply ({text})." if deep else text


if __name__ == "__main__":
    _, name, seed, answers, number = sys.argv
    del sys.argv[1:]  # which the student's code may read
    check_here(name, int(seed), Path(answers), int(number))
