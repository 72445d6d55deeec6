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
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    listing = commands.add_parser("list", help="all experiments, their questions and how long they take")
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
    run.add_argument("--seed", type=_seed, help="of parameters, data and their order")
    run.add_argument("--rounds", type=int, help="measured rounds of each configuration")
    run.add_argument("--timeout", type=float, metavar="S", help="seconds that one configuration may work, in all")
    run.add_argument("--out", type=Path, metavar="DIR", help="folder for results (default: runs/<date-time>)")
    run.add_argument("--json", action="store_true", help="print the results as JSON instead of tables")
    run.add_argument("--explain", action="store_true", help="print how to read each table, too")

    report = commands.add_parser("report", help="make report.html and pictures from results; never measures")
    report.add_argument("folder", type=Path, metavar="DIR")
    report.add_argument("--slides", action="store_true", help="make slides.html instead: one picture a page")

    compare = commands.add_parser("compare", help="two runs side by side: which cases became faster or slower")
    compare.add_argument("a", type=Path, metavar="A", help="folder (or file) of results")
    compare.add_argument("b", type=Path, metavar="B", help="the same of another run")
    compare.add_argument("--json", action="store_true", help="for programs")

    doctor = commands.add_parser("doctor", help="what this machine and installation can and cannot show")
    doctor.add_argument("--json", action="store_true", help="for programs")
    return top


def _counts(text: str) -> List[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers, as in 1,2") from None


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {2**32 - 1}")
    return int(text)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0 all well, 1 an experiment failed or missed its oracle, 2 usage."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "list":
            return _list(options.json)
        if options.command == "report":
            return _report(options.folder, options.slides)
        if options.command == "compare":
            return _compare(options.a, options.b, options.json)
        if options.command == "doctor":
            from mxdp.experiments import doctor

            return doctor.main(options.json)
        return _run(options)
    except UsageError as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return USAGE
    except MxdpError as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("mxdp: interrupted", file=sys.stderr)
        return FAILED


def _list(as_json: bool) -> int:
    from mxdp.experiments.harness.experiment import discover
    from mxdp.experiments.report.words import duration

    experiments = discover().values()
    # Written by tools/tables.py, since an installed mxdp has no reference results.
    known = json.loads(Path(__file__).with_name("durations.json").read_text(encoding="utf-8"))
    presets = ("quick", "full")
    seconds = {each.name: {preset: known[preset].get(each.name) for preset in presets} for each in experiments}
    if as_json:
        keys = ("name", "question", "source", "tour")
        found = [{**{key: getattr(each, key) for key in keys}, "seconds": seconds[each.name]} for each in experiments]
        print(json.dumps(found, indent=2))
        return OK
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "question", *presets, "tour"):
        table.add_column(heading, no_wrap=heading != "question", justify="right" if heading in presets else "left")
    for each in experiments:
        times = map(duration, seconds[each.name].values())
        table.add_row(each.name, each.question, *times, "yes" if each.tour else "")
    console = Console()
    console.print(table)
    where = f"quick, full: how long it takes with that preset on {known['machine']}"
    console.print(where, highlight=False, markup=False)
    return OK


def _report(folder: Path, slides: bool) -> int:
    from mxdp.experiments.report import page

    print(page.write_report(folder, slides=slides))
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
    from mxdp.experiments.harness import settings
    from mxdp.experiments.harness.experiment import discover, find

    if options.command == "run":
        # An experiment with the setting `of` measures another one again.
        every = [name for name, each in discover().items() if "of" not in each.presets["full"]]
        names = [one for name in options.names for one in (every if name == "all" else [name])]
        experiments = list({name: find(name) for name in names}.values())
        given: Dict[str, Any] = {key: value for key in OPTIONS if (value := getattr(options, key)) is not None}
        preset, as_json, folder = options.preset, options.json, options.out
    else:
        experiments = [each for each in discover().values() if each.tour]
        given, preset, as_json, folder = {}, "quick", False, None
    name, resolved = settings.resolve(experiments, preset, given)
    if options.command != "run":
        for each in resolved.values():
            each["again"] = True  # the tour shows what differences are worth
    folder = folder or Path("runs") / datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    well = session.run(experiments, name, resolved, folder, as_json, getattr(options, "explain", False))
    return OK if well else FAILED


def _interrupt(number: int, _: Any) -> None:
    """End as Ctrl-C does, with what was measured written; a closing terminal may send its signal twice."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) == signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(each, _interrupt)
    sys.exit(main())
