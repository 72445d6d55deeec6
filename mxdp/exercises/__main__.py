"""``python -m mxdp.exercises``: checks the files of the exercises."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Dict, Optional, Sequence, Tuple

from rich.console import Console

from mxdp.errors import MxdpError, UsageError
from mxdp.exercises import EXERCISES
from mxdp.exercises.check import MEGABYTES, SECONDS, SEED, Report, check
from mxdp.exercises.words import junit, show
from mxdp.plans.show.files import check_file, write_beside

RIGHT, WRONG, USAGE = 0, 1, 2
LOOK_SECONDS = 0.3
FOLDER = Path("experiments/exercises")


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    top = argparse.ArgumentParser(
        prog="python -m mxdp.exercises",
        description="Checks what you wrote into the files of experiments/exercises.",
        epilog="Exit status: 0 all right, 1 something is wrong, 2 wrong usage.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("check", help="check a file, or several")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.add_argument("--junit", type=Path, metavar="FILE", help="write the cases as tests, for a course's own grading")
    again = commands.add_parser("watch", help="check a file each time that it is saved; Ctrl-C ends it")
    again.add_argument("path", nargs="?", type=Path, default=FOLDER, metavar="FILE|FOLDER", help=f"default: {FOLDER}")
    for command in (one, again):
        for option, default, text in (
            ("--seconds", SECONDS, "limit of a case"),
            ("--megabytes", MEGABYTES, "limit of memory"),
            ("--seed", SEED, "chooses the sizes at random"),
        ):
            command.add_argument(option, type=type(default), default=default, help=f"{text} (default: {default:g})")
    commands.add_parser("list", help="all exercises")
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0 all right, 1 something is wrong, 2 usage."""
    options, console = parser().parse_args(arguments), Console(highlight=False)
    try:
        if options.command == "list":
            for exercise in EXERCISES.values():
                console.print(f"{exercise.number:>2}  {exercise.title:<26}{FOLDER / exercise.file}")
            return RIGHT
        if not (options.seconds > 0 and options.megabytes > 0):
            raise UsageError("--seconds and --megabytes are numbers above 0")
        if options.command == "watch":
            return watch(options, console)
        if options.junit:
            check_file(options.junit)
        reports = [checked(existing(file), options) for file in options.files]
        if options.json:
            print(json.dumps(reports if len(reports) > 1 else reports[0], indent=2))
        else:
            for report in reports:
                show(report, console)
        if options.junit:
            write_beside(options.junit, junit(reports))
        return RIGHT if all(report["right"] for report in reports) else WRONG
    except MxdpError as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("mxdp: interrupted", file=sys.stderr)
        return WRONG


def checked(file: Path, options: argparse.Namespace) -> Report:
    """The file's report, within the limits of the command line."""
    return check(file, options.seconds, options.megabytes, options.seed)


def existing(file: Path) -> Path:
    """The file. Raises a UsageError if it can't be read."""
    if not file.is_file() or not os.access(file, os.R_OK):
        raise UsageError(f"there is no readable file {file}; `python -m mxdp.exercises list` lists the exercises")
    return file


def watch(options: argparse.Namespace, console: Console) -> int:
    """Check one file at once, and any file whenever it is saved, until Ctrl-C."""
    path: Path = options.path
    if not path.is_dir():
        existing(path)
    seen: Dict[Path, Tuple[int, int]] = _stamps(path) if path.is_dir() else {}
    console.print(f"Watching {path}: a file is checked when it is saved. Ctrl-C ends this.\n")
    try:
        while True:
            now = _stamps(path)
            for file in (file for file, stamp in now.items() if seen.get(file) != stamp):
                console.clear() if console.is_terminal else console.print()
                show(checked(file, options), console)
            seen.update(now)
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        return RIGHT


def _stamps(path: Path) -> Dict[Path, Tuple[int, int]]:
    """When each file was written, and its size. An editor may have removed one for a moment."""
    stamps, files = {}, sorted(path.glob("*.py")) if path.is_dir() else [path]
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        stamps[file] = (status.st_mtime_ns, status.st_size)
    return stamps


if __name__ == "__main__":
    sys.exit(main())
