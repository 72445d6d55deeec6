"""The command line of ``python -m mxdp.plans``, which prints a plan, or makes a page that steps through it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence

from mxdp.errors import MxdpError, SentenceParser, UsageError
from mxdp.plans.collective import rings, trees
from mxdp.plans.collective.algorithms import ALGORITHMS, check_algorithm, plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers.fully_sharded import fully_sharded
from mxdp.plans.layers.halo import exchange, squarest
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.pipeline import PIPELINES, pipeline
from mxdp.plans.show.contents import vectors_sent
from mxdp.plans.show.files import write_beside
from mxdp.plans.show.moving import moving
from mxdp.plans.show.text import Plan, as_text, list_as_text

OK, USAGE = 0, 2
DEVICES, MOST_DEVICES = 4, 64
MICRO_BATCHES, MOST_MICRO_BATCHES = 4, 256
TILES, PICTURE, WINDOW, MOST_PIXELS = "tiles", 8, 3, 28
SHARDED, LAYERS, MOST_LAYERS, STAGE = "fully-sharded", 3, 64, 3
MOST_SIZE = 10**9
"""Elements of an array."""

PARTS: Dict[str, Callable[[int], Schedule]] = {
    "all-gather": rings.all_gather,
    "broadcast": trees.broadcast,
    "reduce-scatter": rings.reduce_scatter,
}
"""Plans that are a part of an all-reduce."""

NAMES = sorted([*ALGORITHMS, *PARTS])
"""All plans of collectives."""
_PIPELINES = ", ".join(sorted(PIPELINES))

OPTIONS = (
    ("sizes", "N,N", ["sharded"], "elements of each array (default: 1 for each device)"),
    ("source", "DEVICE", ["broadcast"], "the device that has the vector (default: 0)"),
    ("micro-batches", "M", sorted(PIPELINES), f"1 to {MOST_MICRO_BATCHES} (default: {MICRO_BATCHES})"),
    ("layers", "L", [SHARDED], f"1 to {MOST_LAYERS} (default: {LAYERS})"),
    ("stage", "STAGE", [SHARDED], f"ZeRO's, 0 (plain) to 3 (default: {STAGE})"),
    ("picture", "SIDE", [TILES], f"1 to {MOST_PIXELS} pixels (default: {PICTURE})"),
    ("window", "SIDE", [TILES], f"of the convolution, odd (default: {WINDOW})"),
)
"""Options of some plans alone: name, value, plans, help."""


def parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    top = SentenceParser(
        prog="python -m mxdp.plans",
        description="Prints who sends what to whom in each step, for a pipeline which stage works on what, for tiles "
        "which halos travel, for layers in shards when a device holds which. Without a name: a table of all "
        "collectives.",
    )
    top.add_argument(
        "name", nargs="?", metavar="NAME", help=f"{', '.join(NAMES)}; pipelines: {_PIPELINES}; {TILES}; {SHARDED}"
    )
    devices = f"1 to {MOST_DEVICES} (default: {DEVICES}); a pipeline's stages; tiles"
    top.add_argument("devices", nargs="?", metavar="DEVICES", help=devices)
    top.add_argument("--list", nargs="?", const=str(DEVICES), metavar="DEVICES", help="all collectives")
    for option, value, names, text in OPTIONS:
        top.add_argument(f"--{option}", metavar=value, help=f"{', '.join(names)}: {text}")
    top.add_argument("--json", action="store_true", help="print JSON")
    page = "write a page that steps through it (default: NAME-DEVICES.html)"
    top.add_argument("--html", nargs="?", const="", metavar="FILE", help=page)
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Print the plan or the table. Return the exit status: 0 for success, 2 for wrong arguments."""
    try:
        options = parser().parse_args(arguments)
        if options.name is not None:
            check_algorithm(options.name, also=[*PARTS, *PIPELINES, TILES, SHARDED])
        if options.html is not None and (options.name is None or options.json):
            raise UsageError("--html makes a page of one plan: give its name, and no --json")
        for option, _, names, _ in OPTIONS:
            if getattr(options, option.replace("-", "_")) is not None and options.name not in names:
                others = options.name or "the list of plans"
                raise UsageError(f"--{option} is for {' and '.join(names)} alone, not for {others}")
        if options.name is None:
            _list(_devices(options.list), options.json)
        elif options.list is not None:
            raise UsageError(f"--list shows all plans and {options.name!r} names one: give one of the two")
        else:
            _show(_plan(options), options)
    except (MxdpError, ValueError) as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return USAGE
    return OK


def _plan(options: argparse.Namespace) -> Plan:
    """The plan that is asked for. Raises a ValueError or UsageError if there is none."""
    devices = _devices(options.devices)
    if options.name in PIPELINES:
        parts = _whole(options.micro_batches, MICRO_BATCHES, "--micro-batches is a whole number", 1, MOST_MICRO_BATCHES)
        return pipeline(options.name, devices, parts)
    if options.name == SHARDED:
        layers = _whole(options.layers, LAYERS, "--layers is a whole number", 1, MOST_LAYERS)
        return fully_sharded(layers, devices, _whole(options.stage, STAGE, "--stage is a whole number", 0, 3))
    if options.name == TILES:
        side = _whole(options.picture, PICTURE, "--picture is a whole number", 1, MOST_PIXELS)
        window = _whole(options.window, WINDOW, "--window is an odd number", 1, side, step=2)
        return exchange(side, side, squarest(devices), Window(window, padding=window // 2))
    if options.source is not None:
        what = f"--source is one of the {devices} devices, a whole number"
        return trees.broadcast(devices, _whole(options.source, 0, what, 0, devices - 1))
    if options.sizes is not None:
        what = "--sizes are numbers with commas between, as in 5,4,3,3,1: each is a whole number"
        return plan(options.name, devices, [_whole(size, 1, what, 1, MOST_SIZE) for size in options.sizes.split(",")])
    return collective(options.name, devices)


def collective(name: str, devices: int) -> Schedule:
    """The collective of this name, of one array for each device."""
    return PARTS[name](devices) if name in PARTS else plan(name, devices, [1] * devices)


def _devices(text: Optional[str]) -> int:
    return _whole(text, DEVICES, "DEVICES is a whole number", 1, MOST_DEVICES)


def _whole(text: Optional[str], default: int, what: str, lowest: int, highest: int, step: int = 1) -> int:
    try:
        number = default if text is None else int(text)
    except ValueError:
        number = lowest - 1
    if number not in range(lowest, highest + 1, step):
        raise UsageError(f"{what} from {lowest} to {highest}, not {str(number) if text is None else text!r}")
    return number


def _about(name: str) -> str:
    """The first sentence of the docstring of the function that makes the plan."""
    text = str({**ALGORITHMS, **PARTS}[name].__doc__).split("\n\n")[0].replace(":func:", "").replace("`", "")
    sentence = " ".join(text.split()).split(". ")[0].rstrip(".") + "."
    return sentence[0].upper() + sentence[1:]


def _list(devices: int, as_json: bool) -> None:
    rows = []
    for name in NAMES:
        schedule = collective(name, devices)
        sent = max(vectors_sent(schedule))
        rows.append({"name": name, "steps": len(schedule.steps), "sent": sent, "what": _about(name)})
    if as_json:
        print(json.dumps({"devices": devices, "plans": rows}, indent=2))
    else:
        print(list_as_text(rows, devices, shutil.get_terminal_size().columns))
        print(f"Pipelines ({_PIPELINES}): python -m mxdp.plans gpipe {devices} --micro-batches {MICRO_BATCHES}")
        print(f"Layers in shards (ZeRO): python -m mxdp.plans {SHARDED} {devices} --stage {STAGE}")


def _show(shown: Plan, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(dataclasses.asdict(shown), indent=2))
    elif options.html is not None:
        file = Path(options.html or f"{options.name}-{_devices(options.devices)}.html")
        write_beside(file, moving(shown).html)
        print(f"{file}: open it in a browser; arrow keys step, space plays.")
    else:
        print(as_text(shown, shutil.get_terminal_size().columns))


if __name__ == "__main__":
    sys.exit(main())
