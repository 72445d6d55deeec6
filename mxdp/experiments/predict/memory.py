"""``predict --memory``: what a device must hold in training, by copies and in shards, beside the room that it has."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from mxdp.errors import UsageError, plural
from mxdp.experiments.predict import inputs
from mxdp.experiments.predict.checked import checked_number, count
from mxdp.experiments.show import style
from mxdp.plans.cost.memory import BYTES, STATE, held, held_by_layers
from mxdp.plans.cost.step import Network

STAGES = ("copies", "ZeRO 1", "ZeRO 2", "ZeRO 3")
HEADINGS = (
    "GB each",
    "params",
    "gradients",
    "state",
    "sum",
    "activations",
    "gathered",
    "all",
    "fits",
)
OPTIMIZERS = {"sgd": "SGD", "momentum": "momentum", "adam": "Adam"}
ROOM = 80.0
"""GB (10^9 bytes) of a device."""
SHARDS = (
    "In shards: ZeRO 1 the state, 2 the gradients, too, 3 the parameters, too (FSDP). Gathered: of the largest layer, "
    "its gradients before they are scattered (2 and 3), and its parameters (3)."
)
KEPT = (
    "gathered layers and activations (all arrays that MXNet keeps for the backward pass of a hybridized network, and "
    "the most gradients of arrays that it has at one time)"
)
AT_LEAST = "gathered layers and, of activations, only what the layers hand on (the file may say how many activations)"
LAYERS_UNKNOWN = (
    "but neither activations nor gathered layers, since nobody has said which layers there are"
)
NOT_COUNTED = (
    "Not counted: temporary space of operators, buffers of sums, and the data of other batches"
)


class Model(NamedTuple):
    """What is asked about: ``sizes`` of its layers, and ``activations`` of a batch in bytes, unless nobody knows;
    ``counted``: which activations, in words, and ``but``, in a word or two."""

    name: str
    parameters: float
    sizes: Optional[List[int]]
    activations: Optional[float]
    counted: str
    but: str = ""


def predicted(
    options: Namespace, devices: int, batch: int
) -> Tuple[Dict[str, Any], List[List[str]]]:
    """What the options ask: a sentence and all numbers, in bytes; and rows under ``HEADINGS``. ``batch``: samples of a
    device. What nobody knows is None."""
    optimizer = options.optimizer or "adam"
    dtype = options.dtype or "float32"
    for name, value, known in (("optimizer", optimizer, STATE), ("dtype", dtype, BYTES)):
        if value not in known:
            raise UsageError(f"--{name} {value}: it is {', '.join(known)}; give one of them")
    room = (
        ROOM
        if options.room is None
        else checked_number(options.room, "--room, GB of a device,", zero=False)
    )
    model = _model(options, batch, BYTES[dtype])
    stages, rows = [], []
    for stage, title in enumerate(STAGES):
        record = _stage(model, devices, stage, optimizer, dtype)
        record["fits"] = record["bytes"] <= 1e9 * room
        stages.append(record)
        kinds = [record[kind] for kind in ("parameters", "gradients", "state")]
        numbers = [*kinds, sum(kinds), record["activations"], record["gathered"], record["bytes"]]
        rows.append([title, *map(_gigabytes, numbers), "yes" if record["fits"] else "no"])
    first = next((title for title, *_, fits in rows if fits == "yes"), None)
    asked = (
        f"{model.name} with {OPTIMIZERS[optimizer]} on {plural(devices, 'device')} of {room:g} GB"
    )
    copies, *_, sharded = ((record["bytes"] - (model.activations or 0)) / 1e9 for record in stages)
    answer = f"{asked}: {copies:.4g} GB each by copies, {sharded:.4g} GB fully sharded; "
    if model.activations:
        answer += f"beside them {_gigabytes(model.activations)} GB of activations; "
    answer += f"the first that fits{model.but} is {first}." if first else "none fits."
    counted = f"Counted for 'fits': parameters, gradients, state, {model.counted}. {NOT_COUNTED}."
    record = dict(
        model=model.name,
        parameters=model.parameters,
        optimizer=optimizer,
        dtype=dtype,
        devices=devices,
    )
    return dict(answer=answer, counted=counted, **record, room=1e9 * room, stages=stages), rows


def _stage(model: Model, devices: int, stage: int, optimizer: str, dtype: str) -> Dict[str, Any]:
    """Bytes by their kind, and in all."""
    gathered: Optional[float] = None
    if model.sizes is None:
        kinds = held(model.parameters, devices, stage, optimizer, dtype)
    else:
        kinds = held_by_layers(model.sizes, devices, stage, optimizer, dtype)
        gathered = kinds.pop("gathered")
    nbytes = sum(kinds.values()) + (model.activations or 0) + (gathered or 0)
    return dict(
        stage=stage, **kinds, activations=model.activations, gathered=gathered, bytes=nbytes
    )


def _model(options: Namespace, batch: int, width: int) -> Model:
    """``width``: bytes of a number."""
    if options.parameters is None:
        network, _ = inputs.known_network(
            options.model or inputs.MODEL, shape=inputs.sample(options.input)
        )
        numbers, counted, but = _activations(network)
        sizes = [layer.parameters for layer in network.layers]
        return Model(
            network.name,
            float(network.parameters),
            sizes,
            float(width * batch * numbers),
            counted,
            but,
        )
    parameters = count(options.parameters, "--parameters", zero=False)
    words = f"{parameters / 1e9:g} billion" if parameters >= 1e9 else f"{parameters:,}"
    return Model(
        f"{words} parameters", float(parameters), None, None, LAYERS_UNKNOWN, " without activations"
    )


def _activations(network: Network) -> Tuple[int, str, str]:
    """Numbers of a sample, which these are, and what they lack."""
    if network.activations:
        return network.activations, KEPT, ""
    return (
        sum(layer.outputs for layer in network.layers),
        AT_LEAST,
        " with a part of the activations",
    )


def _gigabytes(nbytes: Optional[float]) -> str:
    return "–" if nbytes is None else style.number(nbytes / 1e9) if nbytes else "0"
