"""``python -m mxdp.experiments``: the command line, nothing else."""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.predict import command as predict

OK, FAILED, USAGE = 0, 1, 2
OPTIONS = ("devices", "kind", "data", "data_dir", "of", "seed", "rounds", "timeout")
"""Options that override a setting of the same name."""


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    top = argparse.ArgumentParser(
        prog="python -m mxdp.experiments",
        description="Ask how several devices train one network. Without a command: a tour of the most telling "
        "experiments in quick size, which ends in a report.",
    )
    # Without a command, as of `run` without names.
    top.set_defaults(names=(), preset="quick", out=None, json=False, explain=False, stale=False, guess=False)
    top.set_defaults(**dict.fromkeys(OPTIONS))
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    listing = commands.add_parser("list", help="all experiments: question, answer, and how long it takes")
    listing.add_argument("--json", action="store_true", help="for programs")

    run = commands.add_parser("run", help="run experiments: tables, and a report in --out")
    run.add_argument("names", nargs="+", metavar="NAME", help="see 'list'; 'all' for all but profile")
    run.add_argument(
        "--preset", default="quick", help="quick (default), full, or a TOML file with a table per experiment"
    )
    run.add_argument("--devices", type=_counts, metavar="N,N", help="numbers of devices to compare, as in 1,2")
    run.add_argument(
        "--kind", choices=("auto", "cpu", "gpu"), help="kind of devices (auto: GPUs where there are enough)"
    )
    run.add_argument("--data", metavar="NAME", help="auto, fashion-mnist, digits or synthetic")
    run.add_argument("--data-dir", metavar="DIR", help="folder that holds fashion-mnist/")
    run.add_argument("--of", metavar="NAME", help="profile: the experiment to record")
    run.add_argument("--seed", type=int, help="of parameters, data and their order")
    run.add_argument("--rounds", type=int, help="measured rounds of each configuration")
    run.add_argument("--timeout", type=float, metavar="S", help="seconds that one configuration may work, in all")
    run.add_argument("--out", type=Path, metavar="DIR", help="folder for results (default: runs/<date-time>)")
    run.add_argument(
        "--stale", action="store_true", help="only those without a result in --out that is of today's code"
    )
    run.add_argument("--json", action="store_true", help="print the results as JSON instead of tables")
    run.add_argument("--explain", action="store_true", help="print how to read each table, too")

    run.add_argument("--guess", action="store_true", help="ask what you expect first, and show it beside the result")

    report = commands.add_parser("report", help="make report.html and pictures from results; never measures")
    report.add_argument("folder", type=Path, metavar="DIR")
    only = report.add_mutually_exclusive_group()
    only.add_argument("--slides", action="store_true", help="make slides.html instead (the key N shows the notes)")
    only.add_argument("--picture", metavar="NAME", help="write the picture of this experiment instead, to DIR")
    report.add_argument("--panel", type=int, metavar="N", help="with --picture: panel N of it alone, for a slide")
    report.add_argument("--format", choices=("png", "pdf", "svg"), help="with --picture: its format (default: png)")

    compare = commands.add_parser("compare", help="two runs side by side: which cases became faster or slower")
    compare.add_argument("a", type=Path, metavar="A", help="folder (or file) of results")
    compare.add_argument("b", type=Path, metavar="B", help="the same of another run")
    compare.add_argument("--json", action="store_true", help="for programs")

    ahead = commands.add_parser("predict", help="what many devices and nodes would give, from one that was measured")
    predict.add_arguments(ahead)

    doctor = commands.add_parser("doctor", help="what this machine and installation can and cannot show")
    doctor.add_argument("--json", action="store_true", help="for programs")
    return top


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
            return _list(options.json)
        if options.command == "report":
            return _report(options)
        if options.command == "compare":
            return _compare(options.a, options.b, options.json)
        if options.command == "doctor":
            from mxdp.experiments import doctor

            return doctor.main(options.json)
        if options.command == "predict":
            predict.main(options)
            return OK
        return _run(options)
    except MxdpError as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        print("mxdp: interrupted", file=sys.stderr)
        return FAILED


def _list(as_json: bool) -> int:
    from mxdp.experiments.harness.experiment import discover
    from mxdp.experiments.report.words import duration

    experiments = discover().values()
    # Written by tools/tables.py, since an installed mxdp has no reference results.
    known = json.loads(Path(__file__).with_name("reference.json").read_text(encoding="utf-8"))
    seconds = {
        each.name: {preset: known[preset].get(each.name) for preset in ("quick", "full")} for each in experiments
    }
    answers = {each.name: known["answers"].get(each.name) for each in experiments}
    if as_json:
        keys = ("name", "question", "source", "tour")
        own = {each.name: {key: getattr(each, key) for key in keys} for each in experiments}
        found = [{**own[name], "seconds": seconds[name], "answer": answers[name]} for name in own]
        print(json.dumps(found, indent=2))
        return OK
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for each in experiments:
        times = " / ".join(map(duration, seconds[each.name].values()))
        left = Text.assemble((each.name, "bold"), f"\n{times}", "\nin the tour" if each.tour else "")
        table.add_row(left, Text.assemble((each.question, "bold"), f"\n{answers[each.name] or ''}"))
    console = Console()
    console.print(table)
    where = f"Times (--preset quick / full) and answers are those of {known['machine']}."
    if any(str(answer).endswith("older)") for answer in answers.values()):
        where += " Older: measured before a change of the code."
    console.print(where, highlight=False, markup=False)
    return OK


def _report(options: argparse.Namespace) -> int:
    from mxdp.experiments.report import page, pictures

    if options.picture:
        print(pictures.export(options.folder, options.picture, options.format or "png", options.panel))
        return OK
    if options.panel is not None or options.format:
        raise UsageError("--panel and --format say how to write one picture; name it with --picture NAME")
    print(page.write_report(options.folder, slides=options.slides))
    return OK


def _compare(a: Path, b: Path, as_json: bool) -> int:
    from rich.console import Console

    from mxdp.experiments.report import compare

    found = compare.compared(a, b)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        compare.show(found, Console())
    return OK


def _run(options: argparse.Namespace) -> int:
    from mxdp.experiments import session
    from mxdp.experiments.harness import runner, settings
    from mxdp.experiments.harness.experiment import discover, find

    catalog = discover()
    # An experiment with the setting `of` measures another one again.
    every = [name for name, each in catalog.items() if "of" not in each.presets["full"]]
    names = dict.fromkeys(one for name in options.names for one in (every if name == "all" else [name]))
    experiments = [find(name) for name in names] or [each for each in catalog.values() if each.tour]
    given: Dict[str, Any] = {key: value for key in OPTIONS if (value := getattr(options, key)) is not None}
    preset, resolved = settings.resolve(experiments, options.preset, given)
    if not names:
        for each in resolved.values():
            each["again"] = True  # the tour shows what differences are worth
    if options.stale:
        if not options.out:
            raise UsageError("--stale compares results with today's code; name their folder with --out DIR")
        due = {each.name: why for each in experiments if (why := runner.due(each, preset, options.out))}
        for name, why in due.items():
            print(f"{name}: {why}", file=sys.stderr)
        if not due:
            print("[]" if options.json else f"All these results in {options.out} are of today's code.")
            return OK
        experiments, resolved = [find(name) for name in due], {name: resolved[name] for name in due}
    folder = options.out or Path("runs") / datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    guesses = {each.name: _guess(each.question) for each in experiments} if options.guess else {}
    run = session.run(experiments, preset, resolved, folder, options.json, options.explain, guesses)
    return OK if run else FAILED


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
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) == signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(each, _interrupt)
    sys.exit(main())
