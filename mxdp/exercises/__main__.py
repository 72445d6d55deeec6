"""``python -m mxdp.exercises``: checks the files of the exercises."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from rich.console import Console

from mxdp.errors import MxdpError, UsageError
from mxdp.exercises import EXERCISES, FOLDER, copy
from mxdp.exercises.check import MEGABYTES, SECONDS, SEED, check
from mxdp.exercises.words import junit, show, show_all
from mxdp.plans.show.files import check_file, write_beside

RIGHT, WRONG, USAGE = 0, 1, 2
LOOK_SECONDS = 0.3


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
    taken = commands.add_parser("copy", help="copy the files to fill in, for who has no clone; overwrites none")
    taken.add_argument("folder", type=Path, metavar="FOLDER")
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0 all right, 1 something is wrong, 2 usage."""
    options, console = parser().parse_args(arguments), Console(highlight=False)
    try:
        if options.command == "list":
            for exercise in EXERCISES.values():
                console.print(f"{exercise.number:>2}  {exercise.title:<26}{FOLDER / exercise.file}")
            return RIGHT
        if options.command == "copy":
            copy(options.folder)
            console.print(
                f"Eleven exercises are in {options.folder}: `python -m mxdp.exercises watch {options.folder}`"
            )
            return RIGHT
        if not (options.seconds > 0 and options.megabytes > 0):
            raise UsageError("--seconds and --megabytes are numbers above 0")
        limits = options.seconds, options.megabytes, options.seed
        if options.command == "watch":
            return watch(options.path, limits, console)
        if options.junit:
            check_file(options.junit)
        reports = [check(existing(file), *limits) for file in options.files]
        if options.json:
            print(json.dumps(reports if len(reports) > 1 else reports[0], indent=2))
        elif len(reports) > 1:
            show_all(reports, console)
        else:
            show(reports[0], console)
        if options.junit:
            write_beside(options.junit, junit(reports))
        return RIGHT if all(report["right"] for report in reports) else WRONG
    except (MxdpError, OSError) as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("mxdp: interrupted", file=sys.stderr)
        return WRONG


def existing(file: Path) -> Path:
    """The file. Raises a UsageError if it can't be read."""
    if not file.is_file() or not os.access(file, os.R_OK):
        raise UsageError(
            f"there is no readable file {file}; `python -m mxdp.exercises list` lists the exercises, and `copy FOLDER` "
            "copies their files"
        )
    return file


def watch(path: Path, limits: Sequence[Any], console: Console) -> int:
    """Check one file at once, and any file whenever it is saved, until Ctrl-C."""

    def stamps() -> Dict[Path, int]:
        found = {}
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            with contextlib.suppress(OSError):  # an editor may have removed it for a moment
                found[file] = file.stat().st_mtime_ns
        return found

    seen = stamps() if path.is_dir() else {existing(path): 0}
    console.print(f"Watching {path}: a file is checked when it is saved. Ctrl-C ends this.\n")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for file, stamp in stamps().items():
                if seen.get(file) != stamp:
                    seen[file] = stamp
                    console.clear() if console.is_terminal else console.print()
                    show(check(file, *limits), console)
            time.sleep(LOOK_SECONDS)
    return RIGHT


if __name__ == "__main__":
    sys.exit(main())
