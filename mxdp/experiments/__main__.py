"""``python -m mxdp.experiments``: the command line, nothing else."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from rich.console import Console

from mxdp import datasets
from mxdp.errors import UsageError, as_command, described, signals_wait, tidy_after_signals
from mxdp.experiments import doctor
from mxdp.experiments.lab import Settings, run
from mxdp.experiments.lab.module import Question, discover, find
from mxdp.experiments.lab.rows import RUNS
from mxdp.experiments.lab.settings import resolve
from mxdp.experiments.predict import command as predict
from mxdp.experiments.show import compare, listing, page, pictures, terminal

OK = 0
FAILED = 1
TOUR_MINUTES = 0.5
"""How long the tour measures each question."""


def _counts(text: str) -> List[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers, as in 1,2") from None


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "devices": dict(type=_counts, metavar="N,N", help="numbers of devices to compare, as in 1,2"),
    "kind": dict(
        choices=("auto", "cpu", "gpu"), help="kind of devices (auto: GPUs where there are enough)"
    ),
    "data": dict(
        metavar="NAME", help="auto, fashion-mnist, digits, synthetic, or a file of yours, mine.npz"
    ),
    "data_dir": dict(metavar="DIR", help="folder that holds fashion-mnist/"),
    "of": dict(metavar="NAME", help="profile: the experiment to record"),
    "net": dict(
        metavar="MODULE:FUNCTION",
        help="resnet: your own gluon network instead, which the function returns",
    ),
    "seed": dict(type=int, help="of parameters, data and their order"),
    "minutes": dict(type=float, metavar="M", help="start processes of each case for so long"),
    "processes": dict(type=int, help="or start so many of each case, one after the other"),
    "rounds": dict(type=int, help="measured rounds of each case in a process"),
    "timeout": dict(type=float, metavar="S", help="seconds that one case may work in a process"),
}
"""Options that override a setting of the same name."""


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    top = argparse.ArgumentParser(
        prog="python -m mxdp.experiments",
        description="Ask how several devices train one network. Without a command: a tour of the most telling "
        "experiments, which ends in a report.",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    programs = argparse.ArgumentParser(add_help=False)
    programs.add_argument("--json", action="store_true", help="for programs")
    settings = argparse.ArgumentParser(add_help=False)
    presets = "quick (default), full, or a TOML file with a table per experiment"
    settings.add_argument("--preset", default="quick", help=presets)
    for name, how in OPTIONS.items():
        settings.add_argument(f"--{name.replace('_', '-')}", **how)

    commands.add_parser("list", parents=[programs], help="all experiments: question and answer")
    words = "run experiments: tables, and a report in --out"
    _add_run(commands.add_parser("run", parents=[settings], help=words))
    words = "make report.html and pictures from results; never measures"
    _add_report(commands.add_parser("report", help=words))
    words = "two checkouts of mxdp, measured in turns: which cases became faster or slower"
    _add_compare(commands.add_parser("compare", parents=[settings, programs], help=words))
    words = "what many devices and nodes would give, from one that was measured"
    predict.add_arguments(commands.add_parser("predict", help=words))
    words = "what this machine and installation can and cannot show"
    commands.add_parser("doctor", parents=[programs], help=words)
    return top


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "names", nargs="+", metavar="NAME", help="see 'list'; 'all' for all but profile"
    )
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for results (default: runs/<date-time>)"
    )
    command.add_argument(
        "--json", action="store_true", help="print the results as JSON instead of tables"
    )
    why = "print claims, the oracle and how to read each table, too"
    command.add_argument("--why", "--explain", action="store_true", help=why)
    guess = "ask what you expect first, and show it beside the result"
    command.add_argument("--guess", action="store_true", help=guess)


def _add_report(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", type=Path, metavar="DIR")
    across = "show runs of different commits together, as the pages do with those of a release"
    command.add_argument("--across-commits", action="store_true", help=across)
    only = command.add_mutually_exclusive_group()
    only.add_argument(
        "--slides", action="store_true", help="make slides.html instead (the key N shows the notes)"
    )
    only.add_argument(
        "--picture", metavar="NAME", help="write the picture of this experiment instead, to DIR"
    )
    command.add_argument(
        "--panel", type=int, metavar="N", help="with --picture: panel N of it alone, for a slide"
    )
    command.add_argument(
        "--format", choices=("png", "pdf", "svg"), help="with --picture: its format (default: png)"
    )


def _add_compare(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "a", metavar="A", help="a folder or a commit; or a folder of results, which is only shown"
    )
    command.add_argument("b", metavar="B", help="the same of the other")
    command.add_argument("names", nargs="*", metavar="NAME", help="the experiments to measure")
    few = f"--processes {RUNS}, the fewest that give an interval"
    command.add_argument("--quick", dest="processes", action="store_const", const=RUNS, help=few)


@as_command()
def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0 all well, 1 an experiment failed or missed its oracle, 2 usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands: Mapping[str, Callable[[argparse.Namespace], Optional[int]]] = {
        "run": _run,
        "report": _report,
        "compare": _compare,
        "predict": predict.main,
        "list": lambda options: listing.show(options.json),
        "doctor": lambda options: doctor.main(options.json),
    }
    if not words:
        tour = [name for name, question in discover().items() if question.TOUR]
        words = ["run", *tour, "--minutes", str(TOUR_MINUTES)]
    options = parser().parse_args(words)
    return commands[options.command](options) or OK


def _report(options: argparse.Namespace) -> None:
    across = options.across_commits
    if options.picture:
        form = options.format or "png"
        print(pictures.export(options.folder, options.picture, form, options.panel, across))
        return
    if options.panel is not None or options.format:
        raise UsageError(
            "--panel and --format say how to write one picture; name it with --picture NAME"
        )
    print(page.write_report(options.folder, options.slides, across))


def _compare(options: argparse.Namespace) -> int:
    if not options.names:
        for name in OPTIONS:
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} has no effect on results that are there already: leave it out, "
                    "or add a NAME"
                )
        compare.print_compared(compare.side_by_side(Path(options.a), Path(options.b)), options.json)
        return OK
    questions, preset, settings = _asked(options)
    compared: List[compare.Compared] = []
    with terminal.View() as view:
        _find_data(settings.values(), view)
        for one in compare.measured(options.a, options.b, questions, preset, settings, view):
            compared.append(one)
            view.begin("")
            if not options.json:
                compare.print_compared([one], as_json=False)
    if options.json:
        compare.print_compared(compared, as_json=True)
    return FAILED if any(one["failed"] for one in compared) else OK


def _asked(options: argparse.Namespace) -> Tuple[List[Question], str, Dict[str, Settings]]:
    """The questions that are named, the preset's name, and the settings of each."""
    # A question with the setting `of` measures another one again.
    every = [name for name, question in discover().items() if "of" not in question.preset("full")]
    names: List[str] = []
    for name in options.names:
        names += every if name == "all" else [name]
    questions = [find(name) for name in dict.fromkeys(names)]
    asked = vars(options).items()
    given = {name: value for name, value in asked if name in OPTIONS and value is not None}
    return (questions, *resolve(questions, options.preset, given))


def _run(options: argparse.Namespace) -> int:
    questions, preset, settings = _asked(options)
    folder = options.out or Path("runs") / datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    guesses = {}
    if options.guess:
        guesses = {question.name: _guess(question.question) for question in questions}
    well = ask(questions, preset, settings, folder, options.json, options.why, guesses)
    return OK if well else FAILED


def ask(
    questions: Sequence[Question],
    preset: str,
    settings: Mapping[str, Settings],
    folder: Path,
    as_json: bool,
    why: bool,
    guesses: Mapping[str, str],
) -> bool:
    """Measure these one after the other: a table that fills as processes end, an answer, and at the end a report. True
    if each met its oracle and was shown, or was skipped. If one fails, the others go on.

    Prints tables (or JSON) to stdout and progress to stderr. ``guesses``: what the reader expects, by name. A
    ``KeyboardInterrupt`` is raised again after the results so far were written and reported. Raises a UsageError if
    results can't be written to ``folder``, or there are no such data.
    """
    console = Console(quiet=as_json)
    results = []
    well = True
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        why_not = f"can't write results to the folder {folder}: {error.strerror}"
        raise UsageError(f"{why_not}; name another with --out") from error
    try:
        with terminal.View() as view:
            busy = doctor.busy()
            view.say("; ".join(filter(None, [f"This machine is {busy.found}", busy.cure])))
            _find_data([settings[question.name] for question in questions], view)
            for question in questions:
                try:
                    view.say(listing.about(question.name, settings[question.name]))
                    view.begin(question.name)
                    results.append(
                        run.run(question, preset, settings[question.name], folder, view.progress)
                    )
                    view.begin("")
                    guess = guesses.get(question.name, "")
                    terminal.print_result(results[-1:], console, why, guess)
                except UsageError:
                    raise
                except Exception as error:  # a defect of this question must not cost the others
                    well = _complain(f"{question.name}: {type(error).__name__}: {error}")
    finally:
        with signals_wait():
            well = _reported(folder, console) and well
            for place in new:
                with contextlib.suppress(OSError):  # it holds something, or is in use
                    place.rmdir()
    if as_json:
        print(json.dumps(results, indent=2))
    for one in results:
        if one["status"] not in ("ok", "skipped") or one["oracle"]["wrong"]:
            well = False
    return well


def _reported(folder: Path, console: Console) -> bool:
    """Write the report, if there is a result, and say where it is. False if that failed: an exception in here would
    replace a KeyboardInterrupt."""
    if not any(folder.glob("*/*.json")):
        return True
    try:
        report = page.write_report(folder)
    except Exception as error:
        return _complain(f"there is no report: {described(error)}")
    console.print(f"Report: {report}", soft_wrap=True)
    return True


def _find_data(settings: Iterable[Settings], view: terminal.View) -> None:
    """Find (or download) the data before anything is measured; all processes load what was found."""
    try:
        for s in settings:
            if "data" in s:
                found = datasets.load(s["data"], s["data_dir"], s["seed"], view.say, view.progress)
                own = found.name not in datasets.NAMES
                s["data"] = _own_data(s["data"], found) if own else found.name
    except ValueError as error:
        raise UsageError(str(error)) from error


def _own_data(file: str, found: datasets.Dataset) -> str:
    """The whole path of the file: a process may run in another folder. Raises a UsageError if LeNet can't take it."""
    shape = found.train.X.shape[1:]
    classes = len(found.classes)
    if shape != (1, 28, 28) or classes > datasets.CLASSES:
        raise UsageError(
            f"--data {file} holds pictures {shape} of {classes} classes, and experiments train LeNet, which takes "
            f"(1, 28, 28) of at most {datasets.CLASSES}: make them smaller, or try `run resnet --net MODULE:FUNCTION`"
        )
    return str(Path(file).resolve())


def _complain(sentence: str) -> bool:
    """Say on stderr what went wrong; False."""
    print(f"mxdp: {sentence}", file=sys.stderr)
    return False


def _guess(question: str) -> str:
    """What the reader types; nothing at the end of input."""
    try:
        return input(f"{question}\nYour guess (Enter for none): ").strip()
    except EOFError:
        return ""


if __name__ == "__main__":
    tidy_after_signals()
    sys.exit(main())
