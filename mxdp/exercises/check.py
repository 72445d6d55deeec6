"""Checks a student's file in a process of its own, with limits.

``python -m mxdp.exercises.check FILE SEED ANSWERS`` is that process: it reads the file and calls its functions. Before
each call, which might never end, it writes the report so far to the file ANSWERS, whole. It keeps no descriptor open
that the student's code could write to or close. The process that watches it never reads the student's file.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as onp
import psutil

from mxdp import process
from mxdp.backend import mx
from mxdp.errors import MxdpError, either
from mxdp.exercises import EXERCISES
from mxdp.exercises.trial import Trial, Values, Wrong, recording
from mxdp.plans.show.files import write_beside

SECONDS, MEGABYTES = 20.0, 2000.0
"""Limits of one trial, and of the whole process."""

PRINTED, SHOWN = 1 << 20, 4000
"""Bytes that a file may print, and those at the end that a report shows."""

SEED = 0
"""The default seed of the random sizes."""

START_SECONDS = 120.0
"""Limit of MXNet's own start, on a slow disk."""

LINE = 100
"""Characters of a student's line that a sentence quotes."""

LOOK_SECONDS = 0.1

REPLACED = (
    "`x[k] = ...` on a list puts another array into the list, and the array that was given stays as it was. Write into "
    "that array: `x[k][:] = ...`."
)

KEPT = "Is something kept from one call to the next, in a global variable or a default argument? Begin each call anew."

Report = Dict[str, Any]


def check(
    file: Path,
    seconds: float = SECONDS,
    megabytes: float = MEGABYTES,
    seed: int = SEED,
    number: Optional[int] = None,
) -> Report:
    """Run the file's functions against their oracles, in a child process; with ``number`` those of this exercise alone,
    which it must hold.

    The report has ``file``, ``right``, ``problem`` (a sentence if the file can't be checked), ``exercises`` (each with
    ``cases``, see :func:`answer_of`; a case may be "not tried") and ``printed``.

    The limits are for accidents. Code that means harm needs a machine of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers, printed = Path(folder, "answers.json"), Path(folder, "printed")
        with printed.open("wb") as output:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-u",
                    "-m",
                    "mxdp.exercises.check",
                    str(file),
                    str(seed),
                    str(answers),
                    str(number or 0),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=process.unprepared(os.environ),
                start_new_session=True,
            )
        try:
            problem = exceeded(child, answers, printed, seconds, megabytes)
        finally:  # its own children end with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # never, unless Ctrl-C came while CPython took a lock
                child.wait(10)
        text = printed.read_bytes()[-SHOWN:].decode(errors="replace")
        if not answers.exists():
            raise MxdpError(f"the checker can't start: {(text.splitlines() or [problem])[-1]}")
        report: Report = json.loads(answers.read_text())
    cases = [case for exercise in report["exercises"] for case in exercise["cases"]]
    ended = next((part for part in (*cases, report) if part.get("problem", "") is None), None)
    if problem or ended:
        status = child.returncode
        crash = f"It crashes in C ({signal.Signals(-status).name})." if status < 0 else ""
        exits = f"It ends the process (exit status {status}): return a value instead."
        (ended or report)["problem"] = problem or crash or exits
    if not file.exists():
        report["problem"] = (
            f"{file} is gone: the code in it deleted or moved it. Restore it from your editor or from git."
        )
    for exercise in report["exercises"]:
        exercise["right"] = all(case["state"] == "right" for case in exercise["cases"])
        settle(exercise["cases"])
    right = not report["problem"] and all(exercise["right"] for exercise in report["exercises"])
    return {**report, "right": right, "printed": printable(text)}


def exceeded(child: Any, answers: Path, printed: Path, seconds: float, megabytes: float) -> str:
    """Wait for the child's end, or for the limit that it exceeds, which is the sentence returned."""
    limit, saved, since = START_SECONDS, 0, time.monotonic()
    while True:
        ended = child.poll() is not None
        if answers.exists() and answers.stat().st_mtime_ns != saved:
            limit, saved, since = seconds, answers.stat().st_mtime_ns, time.monotonic()
        if printed.stat().st_size > PRINTED:
            return "It prints more than 1 MB: is there a print in a loop without an end?"
        if ended:
            return ""
        with contextlib.suppress(psutil.Error):
            if psutil.Process(child.pid).memory_info().rss > megabytes * 1e6:
                return f"It takes more than {megabytes:,.0f} MB of memory."
        if time.monotonic() - since > limit:
            return f"It does not end within {limit:g} s: is there a loop without an end?"
        time.sleep(LOOK_SECONDS)


def settle(cases: List[Dict[str, Any]]) -> None:
    """Keep one hint of a case: in a small case two mistakes can give the same, so the one that fits in most cases."""
    counts = Counter(hint for case in cases for hint in case.get("hints", ()))
    for case in cases:
        hints = case.pop("hints", [])
        if hints:
            case["hint"] = max(hints, key=lambda hint: counts[hint])


def check_here(file: str, seed: int, answers: Path, number: int = 0) -> None:
    """Check everything that the file defines, or the exercise ``number`` alone, in this process, and end it. A
    ``problem`` is None as long as it isn't known."""
    report: Report = dict(file=printable(file), right=False, problem=None, exercises=[], printed="")

    def save() -> None:
        write_beside(answers, json.dumps(report))

    asked = {name: exercise for name, exercise in EXERCISES.items() if number in (0, exercise.number)}
    tasks = {name: exercise.cases(seed) for name, exercise in asked.items()}
    mx.nd.waitall()  # so MXNet is loaded before the file is read, and not in the time of its first case
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # MXNet's handler turns a crash into an exit
    save()
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    functions: Dict[str, Any] = {}
    try:
        for name, value in runpy.run_path(file).items():
            if callable(value) and not str(getattr(value, "__module__", "")).startswith("mxdp"):  # not imported
                functions[name] = value
        report["problem"] = lacking([name for name in tasks if name in functions], number)
    except BaseException as error:
        report["problem"] = printable(explained(error, file))
    for name, exercise in asked.items():
        if name in functions:
            cases = [dict(title=title, state="not tried") for title in tasks[name]]
            report["exercises"].append(
                dict(number=exercise.number, title=exercise.title, function=name, right=False, cases=cases)
            )
    for entry in report["exercises"]:
        name = entry["function"]
        for trials, case in zip(tasks[name].values(), entry["cases"]):
            try_case(trials, case, functions[name], file, save)
    save()
    os._exit(0)  # threads that the student's code has left don't keep the process


def lacking(defined: Sequence[str], number: int) -> str:
    """Which functions a file lacks, in words: those of the exercise ``number``, or else of each that it has a part
    of."""
    numbers = [number] if number else [EXERCISES[name].number for name in defined]
    if not numbers:
        return f"It defines none of the functions that can be checked: {', '.join(EXERCISES)}."
    absent = [name for name, exercise in EXERCISES.items() if exercise.number in numbers and name not in defined]
    return f"It does not define {either(absent)}, which the exercise asks for." if absent else ""


def try_case(trials: Sequence[Trial], case: Dict[str, Any], function: Any, file: str, save: Callable[[], Any]) -> None:
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


def answer_of(trial: Trial, function: Any, file: str) -> Dict[str, Any]:
    """Make the trial; the answer in words, as JSON has it.

    ``file`` holds the function's source. ``state`` is "right" or "wrong"; ``problem`` is a sentence, or empty.
    ``given``, ``expected`` and ``yours`` are lists of (label, text), ``moved`` and ``planned`` of (source, target,
    numbers). ``hints``: all that fit.
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
        answer["yours"] = shown(got)
        hints = mistaken(trial, got)
    except NotImplementedError:
        return {**answer, "problem": "This function is not written yet."}
    except BaseException as error:  # also of what was returned, such as lists that are nested too deeply
        return {**answer, "problem": printable(explained(error, file))}
    if trial.planned is not None:
        for name, moves in (("moved", record.moves), ("planned", trial.planned)):
            answer[name] = [(*pair, numbers) for pair, numbers in sorted(moves.items())]
    if hints is not None:
        return {**answer, "problem": "The result is wrong.", "hints": [REPLACED] if record.replaced else hints}
    mixed = record.mixed and (
        f"But one operation has arrays on {record.mixed}, which fails on GPUs. Copy to the other device first."
    )
    criticism = mixed or trial.judge(record)
    if criticism:
        return {**answer, "problem": f"The result is right. {criticism}"}
    later = answer_of(trial.again, function, file) if trial.again else {"state": "right"}
    if later["state"] == "wrong":
        problem = f"The first call is right, but not the second, with other numbers of these sizes. {later['problem']}"
        old = later.get("yours") == answer["yours"]
        return {**later, "problem": problem, "hints": [KEPT] if old else later.get("hints") or [KEPT]}
    return {**answer, "state": "right", "problem": ""}


def mistaken(trial: Trial, got: Values) -> Optional[List[str]]:
    """The hints that fit a wrong result, None of a right one."""

    def fit(values: Iterable[Any]) -> bool:
        return list(got) == list(trial.expected) and equal(values, got.values())

    if fit(trial.expected.values()):
        return None
    hints = [hint for hint, values in trial.mistakes.items() if fit(values)] or [trial.hint(got)]
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
        room = 1e-4 * float(onp.abs(value).max(initial=0))
        return onp.shape(value) == onp.shape(other) and bool(onp.allclose(other, value, rtol=0, atol=room))

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
        return f"It calls sys.exit({'' if error.code is None else error.code}): return a value instead."
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"Line {error.lineno} is no Python ({error.msg}): {(error.text or '').strip():.{LINE}}"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    # MXNet puts the stack of its C++ functions around the line that says what happened.
    message = str(error).split("MXNetError: ")[-1].strip().partition("\n")[0]
    text = f"{type(error).__name__}: {message}".rstrip(": ")
    return f"Line {lines[-1].lineno} ({lines[-1].line:.{LINE}}) raises {text}" if lines else text


if __name__ == "__main__":
    given, sys.argv[1:] = sys.argv[1:], []
    check_here(given[0], int(given[1]), Path(given[2]), int(given[3]))
