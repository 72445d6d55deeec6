"""``predict --memory``: what a device must hold in training, by copies and in shards, beside the room that it has."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from mxdp.errors import UsageError, plural
from mxdp.experiments.predict import inputs
from mxdp.experiments.predict.checked import checked_number, count
from mxdp.experiments.show import style
from mxdp.plans.cost.training_memory import BYTES, STATE, held, held_by_layers

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
    room = ROOM
    if options.room is not None:
        room = checked_number(options.room, "--room, GB of a device,", zero=False)
    model = _model(options, batch, BYTES[dtype])
    activations = model.activations or 0
    stages: List[Dict[str, Any]] = []
    rows = []
    fitting = []
    for stage, title in enumerate(STAGES):
        gathered: Optional[float] = None
        if model.sizes is None:
            kinds = held(model.parameters, devices, stage, optimizer, dtype)
        else:
            kinds = held_by_layers(model.sizes, devices, stage, optimizer, dtype)
            gathered = kinds.pop("gathered")
        of_model = sum(kinds.values())
        nbytes = of_model + activations + (gathered or 0)
        fits = nbytes <= 1e9 * room
        if fits:
            fitting.append(title)
        more = dict(activations=model.activations, gathered=gathered, bytes=nbytes, fits=fits)
        stages.append({"stage": stage, **kinds, **more})
        numbers = [*kinds.values(), of_model, model.activations, gathered, nbytes]
        rows.append([title, *map(_gigabytes, numbers), "yes" if fits else "no"])
    answer = f"{model.name} with {OPTIMIZERS[optimizer]} on {plural(devices, 'device')}"
    copies = (stages[0]["bytes"] - activations) / 1e9
    sharded = (stages[-1]["bytes"] - activations) / 1e9
    answer += f" of {room:g} GB: {copies:.4g} GB each by copies, {sharded:.4g} GB fully sharded; "
    if activations:
        answer += f"beside them {_gigabytes(activations)} GB of activations; "
    answer += f"the first that fits{model.but} is {fitting[0]}." if fitting else "none fits."
    record = dict(
        answer=answer,
        counted=f"Counted for 'fits': parameters, gradients, state, {model.counted}. {NOT_COUNTED}.",
        model=model.name,
        parameters=model.parameters,
        optimizer=optimizer,
        dtype=dtype,
        devices=devices,
        room=1e9 * room,
        stages=stages,
    )
    return record, rows


def _model(options: Namespace, batch: int, width: int) -> Model:
    """The model that the options name. ``width``: bytes of a number."""
    if options.parameters is not None:
        parameters = count(options.parameters, "--parameters", zero=False)
        words = f"{parameters / 1e9:g} billion" if parameters >= 1e9 else f"{parameters:,}"
        but = " without activations"
        return Model(f"{words} parameters", float(parameters), None, None, LAYERS_UNKNOWN, but)
    shape = inputs.sample(options.input)
    network, _ = inputs.known_network(options.model or inputs.MODEL, shape=shape)
    sizes = [layer.parameters for layer in network.layers]
    numbers = network.activations
    counted = KEPT
    but = ""
    if not numbers:
        numbers = sum(layer.outputs for layer in network.layers)
        counted = AT_LEAST
        but = " with a part of the activations"
    activations = float(width * batch * numbers)
    return Model(network.name, float(network.parameters), sizes, activations, counted, but)


def _gigabytes(nbytes: Optional[float]) -> str:
    if nbytes is None:
        return "–"
    return style.number(nbytes / 1e9) if nbytes else "0"
