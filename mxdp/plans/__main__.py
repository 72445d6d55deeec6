"""``python -m mxdp.plans``: prints a plan, to look at or for a slide. The command line, nothing else."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

from mxdp.errors import UsageError
from mxdp.plans import one_hop, rings, tables, trees
from mxdp.plans.algorithms import ALGORITHMS, check_algorithm, plan
from mxdp.plans.schedules import Schedule

OK, USAGE = 0, 2
DEVICES, MOST_DEVICES = 4, 64

PARTS: Dict[str, Callable[[int], Schedule]] = {
    "all-gather": rings.all_gather,
    "broadcast": trees.broadcast,
    "reduce-scatter": rings.reduce_scatter,
}
"""Plans that are no all-reduce, but a part of one."""

NAMES = sorted([*ALGORITHMS, *PARTS])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, without the grammar above it."""
        raise UsageError(f"{message} (see --help)")


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    top = _Parser(
        prog="python -m mxdp.plans",
        description="Who sends what to whom, step by step. Without a name: a table of all plans.",
    )
    top.add_argument("name", nargs="?", metavar="NAME", help=", ".join(NAMES))
    top.add_argument("devices", nargs="?", metavar="DEVICES", help=f"1 to {MOST_DEVICES} (default: {DEVICES})")
    top.add_argument("--list", nargs="?", const=DEVICES, metavar="DEVICES", help="all plans, for so many devices")
    top.add_argument(
        "--sizes", metavar="N,N", help="sharded: elements of each array (default: as many arrays of one as devices)"
    )
    top.add_argument("--source", metavar="DEVICE", help="broadcast: the device that begins (default: 0)")
    top.add_argument("--json", action="store_true", help="for programs")
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Print what is asked for; the exit status: 0 all well, 2 usage."""
    try:
        options = parser().parse_args(arguments)
        _check(options)
        if options.name is None:
            _list(_devices(options.list), options.json)
        else:
            _show(_plan(options), options.json)
    except UsageError as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return USAGE
    return OK


def _check(options: argparse.Namespace) -> None:
    """Do the name and the options go together?"""
    if options.name is not None:
        if options.list is not None:
            raise UsageError(f"--list shows all plans and {options.name!r} names one: give one of the two")
        try:
            check_algorithm(options.name, also=list(PARTS))
        except ValueError as error:
            raise UsageError(str(error)) from None
    for option, owner in (("sizes", "sharded"), ("source", "broadcast")):
        if getattr(options, option) is not None and options.name != owner:
            raise UsageError(f"--{option} is for {owner} alone, not for {options.name or 'the list of plans'}")


def _plan(options: argparse.Namespace) -> Schedule:
    devices = _devices(options.devices)
    if options.source is not None:
        allowed = f"--source is one of the {devices} devices, a whole number from 0 to {devices - 1}"
        return trees.broadcast(devices, _whole(options.source, allowed, 0, devices - 1))
    if options.sizes is not None:
        allowed = "--sizes are whole numbers from 1 on with commas between, as in 5,4,3,3,1"
        return plan(options.name, devices, [_whole(size, allowed, 1) for size in options.sizes.split(",")])
    return _with_defaults(options.name, devices)


def _with_defaults(name: str, devices: int) -> Schedule:
    return PARTS[name](devices) if name in PARTS else plan(name, devices, [1] * devices)


def _devices(text: Optional[str]) -> int:
    return _whole(
        DEVICES if text is None else text, f"DEVICES is a whole number from 1 to {MOST_DEVICES}", 1, MOST_DEVICES
    )


def _whole(text: Any, allowed: str, lowest: int, highest: Optional[int] = None) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if number < lowest or (highest is not None and number > highest):
        raise UsageError(f"{allowed}, not {text!r}")
    return number


def _about(name: str) -> str:
    """The first sentence of the docstring of the function that makes the plan."""
    function = name.replace("-", "_")
    found = next(vars(module)[function] for module in (one_hop, rings, trees) if function in vars(module))
    summary = " ".join(found.__doc__.split("\n\n")[0].split()).replace(":func:", "").replace("`", "")
    sentence = summary.split(". ")[0].rstrip(".") + "."
    return str(sentence[0].upper() + sentence[1:])


def _list(devices: int, as_json: bool) -> None:
    rows: List[Dict[str, Any]] = []
    for name in NAMES:
        schedule = _with_defaults(name, devices)
        sent = max(tables.shares(schedule))
        rows.append({"name": name, "steps": len(schedule.steps), "sent": sent, "what": _about(name)})
    if as_json:
        print(json.dumps({"devices": devices, "plans": rows}, indent=2))
    else:
        tables.print_plans(rows, devices)


def _show(schedule: Schedule, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(schedule), indent=2))
    else:
        tables.print_plan(schedule)


if __name__ == "__main__":
    sys.exit(main())
