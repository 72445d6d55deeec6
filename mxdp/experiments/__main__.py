"""``python -m mxdp.experiments``: the command line, nothing else."""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence

from mxdp.errors import MxdpError, UsageError, described
from mxdp.experiments.predict import command as predict

OK, FAILED, USAGE = 0, 1, 2
OPTIONS = ("devices", "kind", "data", "data_dir", "of", "net", "seed", "processes", "rounds", "timeout")
"""Options that override a setting of the same name."""


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    top = argparse.ArgumentParser(
        prog="python -m mxdp.experiments",
        description="Ask how several devices train one network. Without a command: a tour of the most telling "
        "experiments, which ends in a report.",
    )
    # Without a command, as of `run` without names.
    top.set_defaults(names=(), preset="quick", out=None, json=False, why=False, stale=False, guess=False)
    top.set_defaults(**dict.fromkeys(OPTIONS))
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    listing = commands.add_parser("list", help="all experiments: question, answer, and how long it takes")
    listing.add_argument("--json", action="store_true", help="for programs")

    run = commands.add_parser("run", help="run experiments: tables, and a report in --out")
    run.add_argument("names", nargs="+", metavar="NAME", help="see 'list'; 'all' for all but profile")
    _add_settings(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="folder for results (default: runs/<date-time>)")
    run.add_argument("--stale", action="store_true", help="only those whose result in --out is not of today's code")
    run.add_argument("--json", action="store_true", help="print the results as JSON instead of tables")
    run.add_argument(
        "--why", "--explain", action="store_true", help="print claims, the oracle and how to read each table, too"
    )
    run.add_argument("--guess", action="store_true", help="ask what you expect first, and show it beside the result")

    report = commands.add_parser("report", help="make report.html and pictures from results; never measures")
    report.add_argument("folder", type=Path, metavar="DIR")
    only = report.add_mutually_exclusive_group()
    only.add_argument("--slides", action="store_true", help="make slides.html instead (the key N shows the notes)")
    only.add_argument("--picture", metavar="NAME", help="write the picture of this experiment instead, to DIR")
    report.add_argument("--panel", type=int, metavar="N", help="with --picture: panel N of it alone, for a slide")
    report.add_argument("--format", choices=("png", "pdf", "svg"), help="with --picture: its format (default: png)")

    compare = commands.add_parser(
        "compare", help="two checkouts of mxdp, measured in turns: which cases became faster or slower"
    )
    compare.add_argument("a", metavar="A", help="a folder or a commit; or a folder of results, which is only shown")
    compare.add_argument("b", metavar="B", help="the same of the other")
    compare.add_argument("names", nargs="*", metavar="NAME", help="the experiments to measure")
    _add_settings(compare)
    compare.add_argument("--json", action="store_true", help="for programs")

    ahead = commands.add_parser("predict", help="what many devices and nodes would give, from one that was measured")
    predict.add_arguments(ahead)

    doctor = commands.add_parser("doctor", help="what this machine and installation can and cannot show")
    doctor.add_argument("--json", action="store_true", help="for programs")
    return top


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--preset", default="quick", help="quick (default), full, or a TOML file with a table per experiment"
    )
    command.add_argument("--devices", type=_counts, metavar="N,N", help="numbers of devices to compare, as in 1,2")
    command.add_argument(
        "--kind", choices=("auto", "cpu", "gpu"), help="kind of devices (auto: GPUs where there are enough)"
    )
    command.add_argument("--data", metavar="NAME", help="auto, fashion-mnist, digits or synthetic")
    command.add_argument("--data-dir", metavar="DIR", help="folder that holds fashion-mnist/")
    command.add_argument("--of", metavar="NAME", help="profile: the experiment to record")
    command.add_argument(
        "--net", metavar="MODULE:FUNCTION", help="resnet: your own gluon network instead, which the function returns"
    )
    command.add_argument("--seed", type=int, help="of parameters, data and their order")
    command.add_argument("--processes", type=int, help="processes of each case, one after the other")
    command.add_argument("--rounds", type=int, help="measured rounds of each case in a process")
    command.add_argument("--timeout", type=float, metavar="S", help="seconds that one case may work in a process")


def _counts(text: str) -> List[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers, as in 1,2") from None


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0 all well, 1 an experiment failed or missed its oracle, 2 usage."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "list":
            from mxdp.experiments.show import listing

            listing.show(options.json)
            return OK
        if options.command == "report":
            return _report(options)
        if options.command == "compare":
            return _compare(options)
        if options.command == "doctor":
            from mxdp.experiments import doctor

            return doctor.main(options.json)
        if options.command == "predict":
            predict.main(options)
            return OK
        return _run(options)
    except MxdpError as error:
        _complain(str(error))
        return USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        _complain("interrupted")
        return FAILED


def _report(options: argparse.Namespace) -> int:
    from mxdp.experiments.show import page, pictures

    if options.picture:
        print(pictures.export(options.folder, options.picture, options.format or "png", options.panel))
        return OK
    if options.panel is not None or options.format:
        raise UsageError("--panel and --format say how to write one picture; name it with --picture NAME")
    print(page.write_report(options.folder, slides=options.slides))
    return OK


def _compare(options: argparse.Namespace) -> int:
    from mxdp.experiments.lab.settings import resolve
    from mxdp.experiments.show import compare, terminal

    if not options.names:
        compare.print_compared(compare.side_by_side(Path(options.a), Path(options.b)), options.json)
        return OK
    questions = _questions(options.names)
    preset, settings = resolve(questions, options.preset, _given(options))
    with terminal.View() as view:
        _find_data(settings, view)
        compared = compare.measured(options.a, options.b, questions, preset, settings, view)
    compare.print_compared(compared, options.json)
    return OK


def _questions(names: Sequence[str]) -> List[Any]:
    from mxdp.experiments.lab.module import discover, find

    known = discover()
    # A question with the setting `of` measures another one again.
    every = [name for name, question in known.items() if "of" not in question.preset("full")]
    chosen = dict.fromkeys(one for name in names for one in (every if name == "all" else [name]))
    return [find(name) for name in chosen] or [question for question in known.values() if question.TOUR]


def _given(options: argparse.Namespace) -> Dict[str, Any]:
    return {key: value for key in OPTIONS if (value := getattr(options, key)) is not None}


def _run(options: argparse.Namespace) -> int:
    from mxdp.experiments.lab.settings import resolve
    from mxdp.experiments.show import listing

    questions = _questions(options.names)
    preset, settings = resolve(
        questions, options.preset, {**({} if options.names else {"processes": 6}), **_given(options)}
    )
    if options.stale:
        if not options.out:
            raise UsageError("--stale compares results with today's code; name their folder with --out DIR")
        due = {question.name: why for question in questions if (why := listing.due(question.name, preset, options.out))}
        for name, why in due.items():
            print(f"{name}: {why}", file=sys.stderr)
        if not due:
            print("[]" if options.json else f"All these results in {options.out} are of today's code.")
            return OK
        questions = [question for question in questions if question.name in due]
        settings = {name: settings[name] for name in due}
    folder = options.out or Path("runs") / datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    guesses = {question.name: _guess(question.question) for question in questions} if options.guess else {}
    return OK if ask(questions, preset, settings, folder, options.json, options.why, guesses) else FAILED


def ask(
    questions: Sequence[Any],
    preset: str,
    settings: Mapping[str, Any],
    folder: Path,
    as_json: bool = False,
    why: bool = False,
    guesses: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Measure these one after the other: a table that fills as processes end, an answer, and at the end a report.

    True if each met its oracle and was shown, or was skipped. If one fails, the others go on. ``guesses``: what the
    reader expects, by name. Prints tables (or JSON) to stdout and progress to stderr. A ``KeyboardInterrupt`` is raised
    again after the results so far were written and reported.

    Raises:
        UsageError: results can't be written to ``folder``, or there are no such data.
    """
    from rich.console import Console

    from mxdp.experiments import doctor
    from mxdp.experiments.lab import run
    from mxdp.experiments.show import listing, page, terminal

    console, results, well = Console(), [], True
    _make(folder)
    try:
        with terminal.View() as view:
            busy = doctor.busy()
            view.say("; ".join(filter(None, [f"This machine is {busy.found}", busy.cure])))
            _find_data(settings, view)
            for question in questions:
                try:
                    view.say(listing.about(question.name, preset, settings[question.name]["processes"]))
                    view.begin(question.name)
                    results.append(run.run(question, preset, settings[question.name], folder, view.progress))
                    view.begin("")
                    if not as_json:
                        terminal.print_result([results[-1]], console, why, guesses.get(question.name, ""))
                except UsageError:
                    raise
                except Exception as error:  # a defect of this question must not cost the others
                    well = _complain(f"{question.name}: {type(error).__name__}: {error}")
    finally:
        # An exception in here would replace a KeyboardInterrupt.
        if any(folder.glob("*/*.json")):
            try:
                path = page.write_report(folder)
                if not as_json:
                    console.print(f"Report: {path}", soft_wrap=True)
            except Exception as error:
                well = _complain(f"there is no report: {described(error)}")
    if as_json:
        print(json.dumps(results, indent=2))
    return well and all(one["status"] in ("ok", "skipped") and not one["oracle"]["wrong"] for one in results)


def _make(folder: Path) -> None:
    """Make it, and see that files can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        why_not = f"can't write results to the folder {folder}: {error.strerror}"
        raise UsageError(f"{why_not}; name another with --out") from error


def _find_data(settings: Mapping[str, Any], view: Any) -> None:
    """Find (or download) the data before anything is measured; all processes load what was found."""
    from mxdp import datasets

    for s in settings.values():
        if "data" in s:
            try:
                s["data"] = datasets.load(s["data"], s["data_dir"], s["seed"], view.say, view.progress).name
            except ValueError as error:
                raise UsageError(str(error)) from error


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


def _interrupt(number: int, _: Any) -> None:
    """End as Ctrl-C does, with what was measured written; a closing terminal may send its signal twice."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) == signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(ending, _interrupt)
    sys.exit(main())
