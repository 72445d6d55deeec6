"""What a prediction starts from: networks and machines, from files and by name, each number with where it is from.

What is wrong in a name, an option or a file is a UsageError.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.predict.symbols import layers_of_symbol
from mxdp.plans.cost.cluster import Cluster
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.networks import NETWORKS, by_operations, shared_out
from mxdp.plans.cost.step import Network, TimedLayer

if sys.version_info >= (3, 11):
    from tomllib import loads as loads
else:
    from tomli import loads as loads

MACHINES = Path(__file__).with_name("machines")
HERE, PUBLISHED, ASSUMED, GIVEN = "calibrated here", "published", "assumed", "given"
LEAST, MOST, MOST_WHOLE = 1e-30, 1e30, 10**9
"""Numbers between which no prediction becomes infinite; and the largest number of samples, devices or cores."""

LINKS: Mapping[str, Tuple[Link, str, str]] = {
    "nvlink": (Link(10e-6, 1 / 150e9), PUBLISHED, "NVIDIA, Tesla V100 whitepaper (2017): 150 GB/s in each direction"),
    "pcie": (Link(10e-6, 1 / 16e9), PUBLISHED, "Dive into Deep Learning, 'Hardware': PCIe 3.0 with 16 lanes"),
    "10gbe": (Link(50e-6, 1 / 1.25e9), GIVEN, ""),
    "100gbe": (Link(15e-6, 1 / 12.5e9), GIVEN, ""),
}
"""Links by name, each with the mark and the source of its bandwidth; Ethernet says it in its name. The time to start a
message is assumed."""
STEP = ("fixed", "update", "python", "spread")
LAYER = ("forward", "backward", "parameters", "outputs")
"""What a file says of a network, and of each of its layers."""


class Known(NamedTuple):
    """A number that a prediction starts from: what it is, its value in words, its mark and its source."""

    what: str
    value: str
    mark: str
    source: str = ""

    def cells(self) -> List[str]:
        """A row of a table."""
        return [self.what, self.value, f"{self.mark}: {self.source}" if self.source else self.mark]


class KnownMachine(NamedTuple):
    """A cluster, and what is known of it; how many samples a second one of its devices takes, by network, and who says
    so."""

    cluster: Cluster
    known: List[Known]
    samples_per_second: Mapping[str, float]
    source: str


def link(text: str, where: str) -> Tuple[Link, List[Known]]:
    """A link by its name or as ``ALPHA,BETA``, ``inside`` a node or ``between`` nodes."""
    if text in LINKS:
        named, mark, source = LINKS[text]
        return named, _known_link(where, named, mark, source)
    try:
        alpha, beta = (checked_number(float(part), text) for part in text.split(","))
    except (ValueError, UsageError):
        raise UsageError(
            f"link {text!r}: give seconds to start a message and seconds a byte, as in 1e-5,8e-11, or a name; "
            f"{did_you_mean(text, list(LINKS))}"
        ) from None
    return Link(alpha, beta), _known_link(where, Link(alpha, beta), GIVEN, "", GIVEN)


def _known_link(where: str, of: Link, mark: str, source: str, start: str = ASSUMED) -> List[Known]:
    bandwidth = f"{1e-9 / of.beta:.4g} GB/s" if of.beta else "unlimited"
    return [
        Known(f"{where}: bandwidth", bandwidth, mark, source),
        Known(f"{where}: start of a message", f"{of.alpha * 1e6:.3g} us", start),
    ]


def machine(name: str) -> KnownMachine:
    """A machine of this package by its name, or from a TOML file."""
    built_in = {path.stem: path for path in MACHINES.glob("*.toml")}
    path = built_in.get(name, Path(name))
    if not path.is_file():
        raise UsageError(f"--machine {name}: there is no such file or machine; {did_you_mean(name, sorted(built_in))}")
    data = {"add": {}, "samples_per_second": {}, **read_toml(path)}
    tables = [data.get(key) for key in ("inside", "between", "add", "samples_per_second")]
    if not {"devices", "nodes"} <= set(data) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(
            f"{path}: a machine has devices, nodes, [inside] and [between], each with latency and bandwidth; it may "
            "have [add] and [samples_per_second]"
        )
    links, known = [], []
    for where in ("inside", "between"):
        latency, bandwidth = (
            checked_number(data[where].get(key), f"{path}: [{where}] {key}") for key in ("latency", "bandwidth")
        )
        links.append(Link(latency, 1 / bandwidth if bandwidth else 0.0))
        source = str(data[where].get("source", ""))
        known += _known_link(where, links[-1], PUBLISHED if source else ASSUMED, source)
    add, rates = data["add"], data["samples_per_second"]
    seconds = checked_number(add.get("seconds_a_byte", 0.0), f"{path}: [add] seconds_a_byte")
    mark = PUBLISHED if add else ASSUMED
    known.append(Known("a sum", f"{seconds * 1e12:.3g} ps a byte", mark, str(add.get("source", ""))))
    source = str(rates.pop("source", ""))
    speeds = {
        net: checked_number(rate, f"{path}: [samples_per_second] {net}", zero=False) for net, rate in rates.items()
    }
    devices, nodes = (whole(data[key], f"{path}: {key}") for key in ("devices", "nodes"))
    cores = whole(data["cores"], f"{path}: cores") if "cores" in data else None
    overlap = data.get("overlap", True)
    if type(overlap) is not bool:
        raise UsageError(
            f"{path}: overlap, whether sums run beside the backward pass, is true or false, not {overlap!r}"
        )
    cluster = Cluster(devices, nodes, links[0], links[1], add=seconds, overlap=overlap, cores=cores)
    known += how_it_works(cluster, GIVEN if {"overlap", "cores"} & set(data) else ASSUMED)
    return KnownMachine(cluster, known, speeds, source)


def how_it_works(cluster: Cluster, mark: str) -> List[Known]:
    """Whether sums run beside computation, and what the devices of a node share."""
    return [
        Known("sums run beside the backward pass", "yes" if cluster.overlap else "no", mark),
        Known("cores that a node's devices share", str(cluster.cores or "none: each has its own"), mark),
    ]


def known_network(
    name: str, samples_per_second: Optional[float] = None, shape: Tuple[int, ...] = (1, 28, 28)
) -> Tuple[Network, bool]:
    """A network by its name, or from a file: a symbol that MXNet exported (JSON), or a list of layers (TOML). And
    whether it has times of its own.

    ``samples_per_second``: of one device, for a network without its own times. ``shape``: of a sample, for a symbol.
    """
    sample = 1 / samples_per_second if samples_per_second else 1.0
    if name in NETWORKS:
        title, make = NETWORKS[name]
        return shared_out(title, make(), sample), False
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"--model {name}: there is no such file or network; {did_you_mean(name, list(NETWORKS))}")
    if path.suffix == ".json":
        try:
            symbol = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not the JSON of a symbol: {error}") from None
        layers = layers_of_symbol(symbol, str(path), shape)
        return _shared_out(path, path.stem.replace("-symbol", ""), layers, sample), False
    return network_of(read_toml(path), path, sample)


def _shared_out(path: Path, title: str, layers: Sequence[TimedLayer], sample: float) -> Network:
    if not any(layer.forward for layer in layers):
        raise UsageError(f"{path}: all layers have 0 operations, so nothing says which takes how long")
    return shared_out(title, layers, sample)


def network_of(data: Mapping[str, Any], path: Path, sample: float = 1.0) -> Tuple[Network, bool]:
    """As :func:`known_network`, from what the TOML file ``path`` says."""
    tables, step = data.get("layer"), data.get("step", {})
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        tables = []
    if not isinstance(step, dict) or not set(step) <= set(STEP):
        raise UsageError(f"{path}: [step] has {', '.join(STEP)}, and nothing else")
    title, layers = str(data.get("name", path.stem)), []
    counted = all("operations" in table for table in tables)
    for at, table in enumerate(tables):
        operations, forward, backward, parameters, outputs = (
            checked_number(table.get(key, 0), f"{path}: layer {at}, {key}") for key in ("operations", *LAYER)
        )
        layer = TimedLayer(str(table.get("name", at)), forward, backward, int(parameters), int(outputs))
        layers.append(by_operations(layer.name, operations, layer.parameters, layer.outputs) if counted else layer)
    if not any(layer.parameters for layer in layers):
        raise UsageError(f"{path} has no layer with parameters: give [[layer]] tables, forward pass first")
    if counted:
        return _shared_out(path, title, layers, sample), False
    if not all("forward" in table and "backward" in table for table in tables):
        raise UsageError(f"{path}: give every layer its operations, or forward and backward, in seconds a sample")
    seconds: Dict[str, Any] = {key: checked_number(value, f"{path}: [step] {key}") for key, value in step.items()}
    timed = replace(Network(title, tuple(layers)), **seconds)
    if not timed.passes(1) + timed.update:
        raise UsageError(f"{path}: no layer takes any time; forward and backward are seconds a sample")
    return timed, True


def as_toml(net: Network, measured: str) -> str:
    """A network as TOML, as :func:`known_network` reads it. ``measured``: what was measured, in words."""

    def quoted(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    lines = [f"name = {quoted(net.name)}", f"measured = {quoted(measured)}", "", "[step]"]
    lines += [f"{key} = {getattr(net, key)!r}" for key in STEP]
    for layer in net.layers:
        lines += ["", "[[layer]]", f"name = {quoted(layer.name)}"]
        lines += [f"{key} = {getattr(layer, key)!r}" for key in LAYER]
    return "\n".join(lines) + "\n"


def whole(value: Any, what: str) -> int:
    """A whole number above 0."""
    if type(value) is not int or not 1 <= value <= MOST_WHOLE:
        limit = "above 0" if type(value) is not int or value < 1 else f"of at most {MOST_WHOLE:,}"
        raise UsageError(f"{what} is a whole number {limit}, not {value!r}")
    return value


def checked_number(value: Any, what: str, zero: bool = True) -> float:
    """A number of at least 0 (above 0 without ``zero``), and not so small or large that a prediction from it would be
    infinite."""
    if type(value) not in (int, float) or not (LEAST <= value <= MOST or (zero and value == 0)):
        few = "of at least 0" if zero else "above 0"
        limit = f", from {LEAST:g} to {MOST:g}" if type(value) in (int, float) and 0 < value < math.inf else ""
        raise UsageError(f"{what} is a number {few}{limit}, not {value!r}")
    return float(value)


def read_toml(path: Path) -> Dict[str, Any]:
    """What the file says."""
    try:
        return loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a TOML file that can be read: {error}") from None
