"""The process that reads a student's file and calls its functions.

``python -m mxdp.exercises.child FILE SEED ANSWERS`` writes the report so far to the file ANSWERS, whole, before each
thing that might never end. It keeps no descriptor open that the student's code could write to or close.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import mx
from mxdp.exercises import EXERCISES
from mxdp.exercises.moves import recording
from mxdp.exercises.trial import Function, Trial, Values, Wrong
from mxdp.plans.show.files import write_beside

REPLACED = (
    "`x[k] = ...` on a list puts another array into the list, and the array that was given stays as it was. Write into "
    "that array: `x[k][:] = ...`."
)


def cases(name: str, seed: int) -> Dict[str, List[Trial]]:
    """The cases of an exercise, by title: one trial of each chosen size, then a case of all sizes at random, which
    follow from ``seed``."""
    module = importlib.import_module(f"mxdp.exercises.{EXERCISES[name].module}")
    chosen, others = getattr(module, name)(random.Random(f"{seed} {name}"))
    for trial in others:
        trial.title = f"at random (seed {seed}): {trial.title}"
    title = f"{len(others)} other sizes, at random (seed {seed})"
    return {**{trial.title: [trial] for trial in chosen}, title: others}


def main(file: str, seed: int, answers: Path) -> None:
    """Check everything that the file defines."""
    report: Dict[str, Any] = dict(file=file, right=False, problem="", exercises=[], printed="", done=False)

    def save() -> None:
        write_beside(answers, json.dumps(report))

    tasks = {name: cases(name, seed) for name in EXERCISES}
    mx.nd.waitall()  # so MXNet is loaded before the file is read, and not in the time of its first case
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # MXNet's handler turns a crash into an exit
    save()
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    functions: Dict[str, Function] = {}
    try:
        namespace = runpy.run_path(file)
        functions = {name: namespace[name] for name in EXERCISES if is_written(namespace.get(name))}
        if not functions:
            report["problem"] = f"It defines none of the functions that can be checked: {', '.join(EXERCISES)}."
    except BaseException as error:
        report["problem"] = explained(error, file)
    for name in functions:
        entries = [dict(title=title, state="not tried") for title in tasks[name]]
        number, title = EXERCISES[name].number, EXERCISES[name].title
        report["exercises"].append(dict(number=number, title=title, function=name, right=False, cases=entries))
    for function, exercise in zip(functions.values(), report["exercises"]):
        for case, entry in zip(tasks[exercise["function"]].values(), exercise["cases"]):
            try_case(case, entry, function, file, save)
    report["done"] = True
    save()
    os._exit(0)  # threads that the student's code has left don't keep the process


def is_written(value: Any) -> bool:
    """Is it a function, and not one that the file imports from mxdp?"""
    return callable(value) and not str(getattr(value, "__module__", "")).startswith("mxdp")


def try_case(
    case: Sequence[Trial], entry: Dict[str, Any], function: Function, file: str, save: Callable[[], Any]
) -> None:
    """Run the trials until one is wrong. ``entry``, the case's part of the report, names each before it runs, and is
    saved then; at the end it has the answer."""
    title = entry["title"]
    for trial in case:
        entry.update(title=trial.title, state="trying")
        save()
        answer = answer_of(trial, function, file)
        if answer["state"] == "wrong" or len(case) == 1:
            entry.update(answer)
            return
    entry.update(title=title, state="right")


def answer_of(trial: Trial, function: Function, file: str) -> Dict[str, Any]:
    """What came of the trial, in words, as JSON has it.

    ``file`` holds the function's source. ``state`` is "right" or "wrong". ``given``, ``expected`` and ``yours`` are
    lists of (label, text), ``moved`` and ``planned`` of (source, target, numbers). ``hints``: all that fit.
    """
    record = trial.record
    answer: Dict[str, Any] = {"state": "wrong", "given": shown(trial.given), "expected": shown(trial.expected)}

    def recorded(*arguments: Any) -> Any:
        before = arrays_in(arguments)
        with recording(record):
            returned = function(*arguments)
        record.replaced |= any(all(x is not y for y in before) for x in arrays_in(arguments))
        return returned

    try:
        got = trial.run(recorded)
    except NotImplementedError:
        return {**answer, "problem": "This function is not written yet."}
    except Wrong as error:
        return {**answer, "problem": str(error)}
    except BaseException as error:
        return {**answer, "problem": explained(error, file)}
    answer["yours"] = shown(got)
    if trial.planned is not None:
        for name, moves in (("moved", record.moves), ("planned", trial.planned)):
            answer[name] = [(*pair, numbers) for pair, numbers in sorted(moves.items())]
    if not equal(trial.expected, got):
        hints = [hint for hint, values in trial.mistakes.items() if equal(values, got)] or [trial.hint(got)]
        hints = [REPLACED] if record.replaced else [hint for hint in hints if hint]
        return {**answer, "problem": "The result is wrong.", "hints": hints}
    mixed = record.mixed and (
        f"But one operation has arrays on {record.mixed}, which fails on GPUs. Copy to the other device first."
    )
    criticism = mixed or trial.judge(record)
    return {**answer, "problem": f"The result is right. {criticism}"} if criticism else {**answer, "state": "right"}


def arrays_in(given: Any) -> List[Any]:
    """The arrays in lists, and in lists of lists."""
    if isinstance(given, (list, tuple)):
        return [x for item in given for x in arrays_in(item)]
    return [given] if hasattr(given, "ctx") else []


def equal(expected: Values, got: Values) -> bool:
    """The same labels, and the same values: floats within a ten-thousandth of the largest."""

    def same(value: Any, other: Any) -> bool:
        if not isinstance(value, onp.ndarray):
            return bool(value == other)
        room = 1e-4 * float(onp.abs(value).max(initial=0))
        return value.shape == onp.shape(other) and bool(onp.allclose(other, value, rtol=0, atol=room))

    return list(expected) == list(got) and all(same(expected[label], got[label]) for label in expected)


def shown(values: Values) -> List[Tuple[str, str]]:
    """Labels and texts."""

    def text(value: Any) -> str:
        if not isinstance(value, onp.ndarray):
            return f"{value}"
        in_lines = onp.array2string(value, precision=4, suppress_small=True, max_line_width=60)
        return in_lines if value.ndim else f"{value:.4g}"

    return [(label, text(value)) for label, value in values.items()]


def explained(error: BaseException, file: str) -> str:
    """An error in the student's code in one sentence, with its line in ``file``."""
    if isinstance(error, SystemExit):
        return f"It calls sys.exit({'' if error.code is None else error.code}): return a value instead."
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"Line {error.lineno} is no Python ({error.msg}): {(error.text or '').strip()}"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    # MXNet puts the stack of its C++ functions around the line that says what happened.
    message = str(error).split("MXNetError: ")[-1].strip().partition("\n")[0]
    text = f"{type(error).__name__}: {message}".rstrip(": ")
    return f"Line {lines[-1].lineno} ({lines[-1].line}) raises {text}" if lines else text


if __name__ == "__main__":
    given, sys.argv[1:] = sys.argv[1:], []
    main(given[0], int(given[1]), Path(given[2]))
