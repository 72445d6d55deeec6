"""Sends batches through one device, stages or replicas: one alone, and a stream of them."""

from __future__ import annotations

from typing import Any, Iterator, List, Tuple

from mxdp.backend import NDArray, upload
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.other_splits.work.split import SplitNet, memory, network, stage_cuts, workers
from mxdp.layers import forward, init
from mxdp.parallel.stage_times import measure_stages
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.pipeline import inference
from mxdp.timing import Timer


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Forward passes alone."""
    splits = _splits(case, settings)
    X, _ = splits[0].batch(case.settings["batch"])
    net, shape = network("stages")
    params = init(net, shape, settings["seed"])
    expected = forward(net, upload(X, params[0][0].ctx), params).asnumpy()
    for split in splits:
        yield split.make().scores(X).asnumpy(), expected


def set_up(case: Case, settings: Settings) -> Work:
    """A round measures the stages alone, for the prediction, then one batch, then a stream of batches."""
    splits, batch, stream = _splits(case, settings), case.settings["batch"], settings["stream"]
    pipes = [split.make() for split in splits]
    X, _ = splits[0].batch(batch)

    def send(batches: int) -> List[NDArray]:
        return [pipes[number % len(pipes)].scores(X) for number in range(batches)]

    send(stream)
    devices = [device for made in pipes for device in made.devices]
    peaks = memory(devices, [2 * own for made in pipes for own in made.param_bytes()], lambda: send(stream))
    found = {"bytes_moved": pipes[0].scores_bytes(batch), "peak_bytes": max(peaks) if peaks else None}

    # Each replica gets its share of the stream, and Python pushes to one replica after the other.
    plan = inference(case.settings["stages"], -(-stream // len(pipes)))
    cores = workers(pipes[0].devices)
    crowd = max(1.0, len(pipes) / cores)
    timer = Timer()

    def one_round() -> Round:
        times = measure_stages(pipes[0], X, None)
        with timer:
            send(1)
        with timer:
            send(stream)
        latency, together = timer.times[-2:]
        slowed = [crowd * seconds for seconds in times.forward]
        expected = pipeline_seconds(plan, slowed, cores=cores, push=len(pipes) * times.push)
        metrics = {
            "latency_seconds": latency,
            "seconds_per_step": together / stream,
            "answers_per_second": batch * stream / together,
            "predicted_over_measured": expected / together,
        }
        return Round(together, metrics, found)

    return Work(devices, one_round)


def _splits(case: Case, settings: Settings) -> List[SplitNet]:
    """One for each replica; with one replica its stages are on all devices."""
    devices, stages, seed = devices_of(case, settings), case.settings["stages"], settings["seed"]
    cuts = stage_cuts(devices[0], stages, 1, max(settings["batches"]), seed, training=False)
    groups = [devices[first : first + stages] for first in range(0, len(devices), stages)]
    return [SplitNet("pipeline", *network("stages"), group, seed, {"cuts": cuts}) for group in groups]
