"""The command line of ``python -m mxdp.plans``, which prints a plan, or makes a page that steps through it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mxdp.errors import SentenceParser, UsageError, as_command
from mxdp.files import write_beside
from mxdp.plans.collective import rings, trees
from mxdp.plans.collective.algorithms import ALGORITHMS, check_algorithm, plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers.fully_sharded import fully_sharded
from mxdp.plans.layers.halo import exchange, squarest
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.pipeline import PIPELINES, pipeline
from mxdp.plans.show.board import Plan
from mxdp.plans.show.contents import vectors_sent
from mxdp.plans.show.moving import moving
from mxdp.plans.show.text import as_text, list_as_text

TILES, SHARDED = "tiles", "fully-sharded"
DEVICES, MOST_DEVICES = 4, 64

PARTS: Dict[str, Callable[[int], Schedule]] = {
    "all-gather": rings.all_gather,
    "broadcast": trees.broadcast,
    "reduce-scatter": rings.reduce_scatter,
}
"""Plans that are a part of an all-reduce."""
COLLECTIVES = {**ALGORITHMS, **PARTS}
NAMES = sorted(COLLECTIVES)

OPTIONS: Dict[str, Tuple[str, List[str], Any, range, str]] = {
    "sizes": (
        "N,N",
        ["sharded"],
        "1 for each device",
        range(1, 10**9 + 1),
        "elements of each array",
    ),
    "source": ("DEVICE", ["broadcast"], 0, range(MOST_DEVICES), "the device that has the vector"),
    "micro-batches": ("M", sorted(PIPELINES), 4, range(1, 257), "1 to 256"),
    "layers": ("L", [SHARDED], 3, range(1, 65), "1 to 64"),
    "stage": ("STAGE", [SHARDED], 3, range(4), "ZeRO's, 0 (plain) to 3"),
    "picture": ("SIDE", [TILES], 8, range(1, 29), "1 to 28 pixels"),
    "window": ("SIDE", [TILES], 3, range(1, 28, 2), "of the convolution, odd"),
}
"""Options of some plans alone: value, plans, default, allowed numbers, help."""


def parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    top = SentenceParser(
        prog="python -m mxdp.plans",
        description="Prints who sends what to whom in each step, for a pipeline which stage works on what, for tiles "
        "which halos travel, for layers in shards when a device holds which. Without a name: a table of all "
        "collectives.",
    )
    names = f"{', '.join(NAMES)}; pipelines: {', '.join(sorted(PIPELINES))}; {TILES}; {SHARDED}"
    devices = f"1 to {MOST_DEVICES} (default: {DEVICES}); a pipeline's stages; tiles"
    page = "write a page that steps through it (default: runs/NAME-DEVICES.html)"
    top.add_argument("name", nargs="?", metavar="NAME", help=names)
    top.add_argument("devices", nargs="?", metavar="DEVICES", help=devices)
    top.add_argument(
        "--list", nargs="?", const=str(DEVICES), metavar="DEVICES", help="all collectives"
    )
    for option, (value, plans, default, _, text) in OPTIONS.items():
        top.add_argument(
            f"--{option}", metavar=value, help=f"{', '.join(plans)}: {text} (default: {default})"
        )
    top.add_argument("--json", action="store_true", help="print JSON")
    top.add_argument("--html", nargs="?", const="", metavar="FILE", help=page)
    return top


@as_command(usage=ValueError)
def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Print the plan or the table. The exit status is 0 for success, 2 for wrong arguments."""
    print(_answer(parser().parse_args(arguments)))


def _answer(options: argparse.Namespace) -> str:
    """What is printed. A page is written."""
    name, width = options.name, shutil.get_terminal_size().columns
    if name is not None:
        check_algorithm(name, also=[*PARTS, *PIPELINES, TILES, SHARDED])
    if options.html is not None and (name is None or options.json):
        raise UsageError("--html makes a page of one plan: give its name, and no --json")
    for option, (_, plans, *_) in OPTIONS.items():
        if getattr(options, option.replace("-", "_")) is not None and name not in plans:
            others = name or "the list of plans"
            raise UsageError(f"--{option} is for {' and '.join(plans)} alone, not for {others}")
    if name is not None and options.list is not None:
        raise UsageError(f"--list shows all plans and {name!r} names one: give one of the two")
    text = options.list if name is None else options.devices
    devices = _whole(text, DEVICES, "DEVICES", range(1, MOST_DEVICES + 1))
    if name is None:
        rows = [_row(collective, devices) for collective in NAMES]
        listed = json.dumps({"devices": devices, "plans": rows}, indent=2)
        return listed if options.json else list_as_text(rows, devices, width)
    shown = _plan(options, devices)
    if options.json:
        return json.dumps(dataclasses.asdict(shown), indent=2)
    if options.html is None:
        return as_text(shown, width)
    file = Path(options.html or f"runs/{name}-{devices}.html")
    write_beside(file, moving(shown).html)
    return f"{file}: open it in a browser; arrow keys step, space plays."


def _row(name: str, devices: int) -> Dict[str, object]:
    """A collective in the list. ``what``: the first sentence of the docstring of the function that makes it."""
    schedule, text = (
        collective(name, devices),
        str(COLLECTIVES[name].__doc__).replace(":func:", "").replace("`", ""),
    )
    what = " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".") + "."
    sent = max(vectors_sent(schedule))
    return {
        "name": name,
        "steps": len(schedule.steps),
        "sent": sent,
        "what": what[0].upper() + what[1:],
    }


def collective(name: str, devices: int) -> Schedule:
    """The collective of this name, of one array for each device."""
    return PARTS[name](devices) if name in PARTS else plan(name, devices, [1] * devices)


def _plan(options: argparse.Namespace, devices: int) -> Plan:
    """The plan that is asked for. Raises a ValueError or UsageError if there is none."""

    def number(option: str) -> int:
        _, _, default, numbers, _ = OPTIONS[option]
        return _whole(getattr(options, option.replace("-", "_")), default, f"--{option}", numbers)

    name = options.name
    if name in PIPELINES:
        return pipeline(name, devices, number("micro-batches"))
    if name == SHARDED:
        return fully_sharded(number("layers"), devices, number("stage"))
    if name == TILES:
        side, window = number("picture"), number("window")
        return exchange(side, side, squarest(devices), Window(window, padding=window // 2))
    if name == "broadcast":
        return trees.broadcast(devices, number("source"))
    if options.sizes is None:
        return collective(name, devices)
    what = "--sizes are numbers with commas between, as in 5,4,3,3,1: each"
    return plan(
        name,
        devices,
        [_whole(size, 1, what, OPTIONS["sizes"][3]) for size in options.sizes.split(",")],
    )


def _whole(text: Optional[str], default: int, what: str, numbers: range) -> int:
    if text is None:
        return default
    if not text.isdecimal() or int(text) not in numbers:
        kind = "a whole" if numbers.step == 1 else "an odd"
        raise UsageError(
            f"{what} is {kind} number from {numbers[0]} to {numbers[-1]}, not {text!r}"
        )
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
