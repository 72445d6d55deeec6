"""The command line of ``python -m mxdp.plans``, which prints a plan, or makes a page that steps through it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

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

TILES = "tiles"
SHARDED = "fully-sharded"
DEVICES = 4
MOST_DEVICES = 64

PARTS: Dict[str, Callable[[int], Schedule]] = {
    "all-gather": rings.all_gather,
    "broadcast": trees.broadcast,
    "reduce-scatter": rings.reduce_scatter,
}
"""Plans that are a part of an all-reduce."""
COLLECTIVES = {**ALGORITHMS, **PARTS}
NAMES = sorted(COLLECTIVES)


class Option(NamedTuple):
    """An option of some ``plans`` alone. ``value``: its placeholder; ``allowed``: its numbers; ``text``: its help."""

    value: str
    plans: List[str]
    default: Any
    allowed: range
    text: str


SIZES = range(1, 10**9 + 1)
OPTIONS = {
    "sizes": Option("N,N", ["sharded"], "1 for each device", SIZES, "elements of each array"),
    "source": Option(
        "DEVICE", ["broadcast"], 0, range(MOST_DEVICES), "the device that has the vector"
    ),
    "micro-batches": Option("M", sorted(PIPELINES), 4, range(1, 257), "1 to 256"),
    "layers": Option("L", [SHARDED], 3, range(1, 65), "1 to 64"),
    "stage": Option("STAGE", [SHARDED], 3, range(4), "ZeRO's, 0 (plain) to 3"),
    "picture": Option("SIDE", [TILES], 8, range(1, 29), "1 to 28 pixels"),
    "window": Option("SIDE", [TILES], 3, range(1, 28, 2), "of the convolution, odd"),
}


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
    for name, option in OPTIONS.items():
        help = f"{', '.join(option.plans)}: {option.text} (default: {option.default})"
        top.add_argument(f"--{name}", dest=name, metavar=option.value, help=help)
    top.add_argument("--json", action="store_true", help="print JSON")
    top.add_argument("--html", nargs="?", const="", metavar="FILE", help=page)
    return top


@as_command(usage=ValueError)
def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Print the plan or the table. The exit status is 0 for success, 2 for wrong arguments."""
    print(_answer(parser().parse_args(arguments)))


def _answer(options: argparse.Namespace) -> str:
    """What is printed. A page is written."""
    name = options.name
    width = shutil.get_terminal_size().columns
    if name is not None:
        check_algorithm(name, also=[*PARTS, *PIPELINES, TILES, SHARDED])
    if options.html is not None and (name is None or options.json):
        raise UsageError("--html makes a page of one plan: give its name, and no --json")
    for key, option in OPTIONS.items():
        if vars(options)[key] is not None and name not in option.plans:
            plans = " and ".join(option.plans)
            others = name or "the list of plans"
            raise UsageError(f"--{key} is for {plans} alone, not for {others}")
    if name is not None and options.list is not None:
        raise UsageError(f"--list shows all plans and {name!r} names one: give one of the two")
    text = options.list if name is None else options.devices
    devices = _whole(text, DEVICES, "DEVICES", range(1, MOST_DEVICES + 1))
    if name is None:
        rows = [_row(collective, devices) for collective in NAMES]
        if options.json:
            return json.dumps({"devices": devices, "plans": rows}, indent=2)
        return list_as_text(rows, devices, width)
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
    schedule = collective(name, devices)
    docstring = str(COLLECTIVES[name].__doc__).replace(":func:", "").replace("`", "")
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = paragraph.partition(". ")[0].rstrip(".")
    return {
        "name": name,
        "steps": len(schedule.steps),
        "sent": max(vectors_sent(schedule)),
        "what": f"{sentence[0].upper()}{sentence[1:]}.",
    }


def collective(name: str, devices: int) -> Schedule:
    """The collective of this name, of one array for each device."""
    return PARTS[name](devices) if name in PARTS else plan(name, devices, [1] * devices)


def _plan(options: argparse.Namespace, devices: int) -> Plan:
    """The plan that is asked for. Raises a ValueError or UsageError if there is none."""

    def number(key: str) -> int:
        option = OPTIONS[key]
        return _whole(vars(options)[key], option.default, f"--{key}", option.allowed)

    name = options.name
    if name in PIPELINES:
        return pipeline(name, devices, number("micro-batches"))
    if name == SHARDED:
        return fully_sharded(number("layers"), devices, number("stage"))
    if name == TILES:
        side = number("picture")
        kernel = number("window")
        return exchange(side, side, squarest(devices), Window(kernel, padding=kernel // 2))
    if name == "broadcast":
        return trees.broadcast(devices, number("source"))
    if options.sizes is None:
        return collective(name, devices)
    what = "--sizes are numbers with commas between, as in 5,4,3,3,1: each"
    sizes = [_whole(size, 1, what, SIZES) for size in options.sizes.split(",")]
    return plan(name, devices, sizes)


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
