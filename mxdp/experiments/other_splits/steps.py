"""Steps of a network that is split: timed, predicted and told of.

The prediction takes each layer's time, measured alone on one device, and divides it as the strategy does: the largest
part counts, and a layer that is not divided counts whole. It adds the bytes moved over the measured link (each device
sends its share at the same time as the others), and the SGD step of all parameters that a device has. A pipeline's plan
is simulated; for the others, waiting between devices is left out. Two splits at once aren't predicted.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Sequence, Tuple

from mxdp import process
from mxdp.backend import Device, npx
from mxdp.experiments.devices import timed
from mxdp.experiments.lab import Work
from mxdp.experiments.links import measured_link
from mxdp.experiments.other_splits.split import COMBINED, LR, SERIAL, SplitNet, memory, train
from mxdp.layers import Net, Shape, init, outputs
from mxdp.parallel.layer_costs import LayerCost, measure_layers
from mxdp.parallel.traffic import flat
from mxdp.plans.cost.simulate import last_end, pipeline_spans
from mxdp.plans.layers.column_row import WHOLE
from mxdp.plans.partition import pieces
from mxdp.scratch import get_params, sgd

LINK_BYTES = 1 << 23
WARM_UP = 8
"""Steps before the round."""


def set_up_steps(split: SplitNet, samples: int, steps: int, **more: Any) -> Work:
    """A round is ``steps`` steps with ``samples`` samples each, and its seconds those of one. The row gets ``more``. A
    device's memory is what stays between steps, and the most in use in a step and its update (a number a parameter)."""
    made = split.make()
    run = partial(train, made, *split.batch(samples))
    run(WARM_UP)
    npx.waitall()
    lasting, work = made.lasting_bytes(samples), map(max, made.peak_bytes(samples), made.param_bytes())
    numbers = {
        "bytes_moved": made.bytes_moved(samples),
        "peak_bytes": memory(split.devices, lasting, run),
        "predicted_peak_bytes": max(map(sum, zip(lasting, work))),
        **more,
    }
    if split.strategy not in COMBINED:
        layers, update = measured_work(split.net, split.shape, split.devices[0], samples, split.seed)
        two = split.devices[:2]
        beta = measured_link(*two, LINK_BYTES, split.seed).beta if len(two) > 1 else 0.0
        numbers["predicted_seconds"] = predict_split(split, made, samples, layers, update, beta)
    return Work(lambda: (timed(lambda: run(steps)) / steps, numbers), split.devices)


@lru_cache(maxsize=None)
def measured_work(net: Net, shape: Shape, device: Device, samples: int, seed: int) -> Tuple[Sequence[LayerCost], float]:
    """Each layer's times, and the SGD step of all parameters: measured once for all cases of a process. Waits."""
    params = init(net, shape, seed)
    copies = flat([get_params(layer, device) for layer in params])
    update = min(timed(lambda: sgd(copies, LR, samples)) for _ in range(3))
    return measure_layers(net, params, shape, device, samples), update


def predict_split(
    split: SplitNet, made: Any, samples: int, layers: Sequence[LayerCost], update: float, beta: float, cores: int = 0
) -> float:
    """Predicted seconds of a step. ``made`` is the strategy, which has the plan; ``update``: of the SGD step of all
    parameters; ``beta``: of a byte on the link; ``cores``: 0 means this machine's."""
    n, cores = len(split.devices), cores or process.cores()
    crowd = n / min(n, cores)
    sent = float(made.bytes_moved(samples) / n * beta)
    work = [layer.seconds for layer in layers]
    if split.strategy == "pipeline":
        stages = [layers[start:stop] for start, stop in pieces(len(layers), made.cuts)]
        there = [sum(layer.forward for layer in stage) / made.plan.micro_batches for stage in stages]
        back = [sum(layer.backward for layer in stage) / made.plan.micro_batches for stage in stages]
        update *= float(max(made.param_bytes()) / sum(made.param_bytes()))
        return last_end(pipeline_spans(made.plan, there, back, cores=cores)) + update + sent
    if split.strategy == "layerwise":
        whole = sum(seconds for seconds, cut in zip(work, made.cuts) if cut == WHOLE)
        return crowd * ((sum(work) - whole + update) / n + whole) + sent
    if split.strategy == "tile":
        count, (rows, columns) = len(made.exchanges), made.grid
        shares = [-(-h // rows) * -(-w // columns) / (h * w) for _, h, w in outputs(split.net, split.shape)[:count]]
        image = sum(seconds * share for seconds, share in zip(work, shares))
        return float(crowd * (image + update) + sum(work[count:]) + sent)
    return crowd * (sum(work) * -(-samples // n) / samples + update) + sent


def tell_steps(t, *alike):
    """The columns of :func:`set_up_steps`, and each row's speed-up over the serial row that has ``alike`` in common."""
    for row in t:
        row.speedup = t.one(strategy=SERIAL, **{name: row.get(name) for name in alike}).seconds / row.seconds
    t.column("seconds", "ms", scale=1e3, about="the time of a step: forward, backward, update")
    about = "the cost model's prediction of it, with the interval that its measured constants give it"
    t.column("predicted_seconds", "pred.", scale=1e3, spread=True, about=about)
    t.column("speedup", "faster", ".2f", unit="x", about="compared with one device")
    t.column("bytes_moved", "moved MB", scale=1e-6, about="what a step sends between devices, by the shapes")
    t.column("peak_bytes", "MB", scale=1e-6, about="the memory of the device that needs most, as MXNet counts it")
    t.column("predicted_peak_bytes", "MB pred.", scale=1e-6, about="that, calculated from the shapes")
