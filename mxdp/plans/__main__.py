"""The command line of ``python -m mxdp.plans``, which prints a plan, or makes a page that steps through it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from mxdp.errors import MxdpError, SentenceParser, UsageError
from mxdp.plans.collective import one_hop, rings, trees
from mxdp.plans.collective.algorithms import ALGORITHMS, check_algorithm, plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers.halo import Exchange, exchange, squarest
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.pipeline import PIPELINES, PipelinePlan, pipeline
from mxdp.plans.show import staircases, tables
from mxdp.plans.show.files import write_beside
from mxdp.plans.show.moving import moving

OK, USAGE = 0, 2
DEVICES, MOST_DEVICES = 4, 64
MICRO_BATCHES, MOST_MICRO_BATCHES = 4, 256
TILES, PICTURE, WINDOW, MOST_PIXELS = "tiles", 8, 3, 28

PARTS: Dict[str, Callable[[int], Schedule]] = {
    "all-gather": rings.all_gather,
    "broadcast": trees.broadcast,
    "reduce-scatter": rings.reduce_scatter,
}
"""Plans that are a part of an all-reduce."""

NAMES = sorted([*ALGORITHMS, *PARTS])
"""All plans of collectives. Pipelines are another kind of plan and are drawn as staircases."""
_PIPELINES = ", ".join(sorted(PIPELINES))


def parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    top = SentenceParser(
        prog="python -m mxdp.plans",
        description="Prints who sends what to whom in each step, for a pipeline which stage works on what, for tiles "
        "which halos travel. Without a name: a table of all collectives.",
    )
    top.add_argument("name", nargs="?", metavar="NAME", help=f"{', '.join(NAMES)}; pipelines: {_PIPELINES}; {TILES}")
    devices = f"1 to {MOST_DEVICES} (default: {DEVICES}); a pipeline's stages; tiles"
    top.add_argument("devices", nargs="?", metavar="DEVICES", help=devices)
    top.add_argument("--list", nargs="?", const=DEVICES, metavar="DEVICES", help="all collectives")
    for option, metavar, text in (
        ("--sizes", "N,N", "sharded: elements of each array (default: 1 for each device)"),
        ("--source", "DEVICE", "broadcast: the device that has the vector (default: 0)"),
        ("--micro-batches", "M", f"pipelines: 1 to {MOST_MICRO_BATCHES} (default: {MICRO_BATCHES})"),
        ("--picture", "SIDE", f"tiles: 1 to {MOST_PIXELS} pixels (default: {PICTURE})"),
        ("--window", "SIDE", f"tiles: of the convolution, odd (default: {WINDOW})"),
    ):
        top.add_argument(option, metavar=metavar, help=text)
    top.add_argument("--json", action="store_true", help="print JSON")
    page = "write a page that steps through it (default: NAME-DEVICES.html)"
    top.add_argument("--html", nargs="?", const="", metavar="FILE", help=page)
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Print the plan or the table. Return the exit status: 0 for success, 2 for wrong arguments."""
    try:
        options = parser().parse_args(arguments)
        _check(options)
        if options.name is None:
            _list(_devices(options.list), options.json)
        elif options.name in PIPELINES:
            _show(_pipeline(options), staircases.print_pipeline, options)
        elif options.name == TILES:
            _show(_tiles(options), _print_exchange, options)
        else:
            _show(_plan(options), tables.print_plan, options)
    except MxdpError as error:
        print(f"mxdp: {error}", file=sys.stderr)
        return USAGE
    return OK


def _check(options: argparse.Namespace) -> None:
    """Check that the options fit the name."""
    if options.name is not None:
        if options.list is not None:
            raise UsageError(f"--list shows all plans and {options.name!r} names one: give one of the two")
        try:
            check_algorithm(options.name, also=[*PARTS, *PIPELINES, TILES])
        except ValueError as error:
            raise UsageError(str(error)) from None
    if options.html is not None and (options.name is None or options.json):
        raise UsageError("--html makes a page of one plan: give its name, and no --json")
    owners = {"sizes": ["sharded"], "source": ["broadcast"], "micro_batches": sorted(PIPELINES)}
    owners.update(picture=[TILES], window=[TILES])
    for option, names in owners.items():
        if getattr(options, option) is not None and options.name not in names:
            raise UsageError(
                f"--{option.replace('_', '-')} is for {' and '.join(names)} alone, "
                f"not for {options.name or 'the list of plans'}"
            )


def _pipeline(options: argparse.Namespace) -> PipelinePlan:
    allowed = f"--micro-batches is a whole number from 1 to {MOST_MICRO_BATCHES}"
    asked = MICRO_BATCHES if options.micro_batches is None else options.micro_batches
    return pipeline(options.name, _devices(options.devices), _whole(asked, allowed, 1, MOST_MICRO_BATCHES))


def _tiles(options: argparse.Namespace) -> Exchange:
    side, window = options.picture or PICTURE, options.window or WINDOW
    side = _whole(side, f"--picture is a whole number from 1 to {MOST_PIXELS}", 1, MOST_PIXELS)
    window = _whole(window, f"--window is an odd number from 1 to {side}", 1, side)
    if window % 2 == 0:
        raise UsageError(f"--window is an odd number from 1 to {side}, not '{window}'")
    try:
        return exchange(side, side, squarest(_devices(options.devices)), Window(window, padding=window // 2))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _print_exchange(found: Exchange) -> None:
    print(f"{found}\n\nTile 0 (o: its own; 1, 2: arrives in this step; .: outside the picture):\n{found.drawn(0)}")


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
    allowed = f"DEVICES is a whole number from 1 to {MOST_DEVICES}"
    return _whole(DEVICES if text is None else text, allowed, 1, MOST_DEVICES)


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
        print(f"Pipelines ({_PIPELINES}): python -m mxdp.plans gpipe {devices} --micro-batches {MICRO_BATCHES}")


def _show(found: Any, print_it: Callable[[Any], None], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    elif options.html is not None:
        file = Path(options.html or f"{options.name}-{_devices(options.devices)}.html")
        try:
            page = moving(found)
        except ValueError as error:
            raise UsageError(str(error)) from None
        write_beside(file, page.html)
        print(f"{file}: open it in a browser; arrow keys step, space plays.")
    else:
        print_it(found)


if __name__ == "__main__":
    sys.exit(main())
