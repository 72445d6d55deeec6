"""What does a second device bring to an epoch?

The slides of the book's chapter say that the time of an epoch roughly halves; the book's own results for this network
say that it grew. The cost model: a batch's compute divides by the devices, as far as there are cores; the all-reduce,
the input and Python's own time don't, and are small. The ceiling is measured: processes that share nothing, as many as
there are devices, each train alone on their part of the batch.

k devices with a core each could be k times as fast as one; CPU devices that share p cores, p times. What is lost::

    possible       k or p
       |           the machine's part: processes that share nothing lose it, too
    the ceiling    these processes take q of the devices' time
       |           what sharing costs: possible (1 - q)
    reached        the devices

A few steps of both are recorded and split into the same parts. The cost of sharing is the sum of possible (share - q
times the share in the processes) over the parts, so the account adds up.
"""

from pathlib import Path

import numpy as onp

from mxdp import process
from mxdp.backend import np
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.data_parallel import lenet_steps
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Work, faster
from mxdp.experiments.networks import set_params
from mxdp.experiments.show import style
from mxdp.scratch import evaluate, get_params, in_sync, init_lenet, lenet
from mxdp.timing import Timer
from mxdp.tracing.recording import can_record
from mxdp.training import BoundNet, TrainStep, mean_loss, train_steps

SOURCE = sources.MULTIPLE_GPUS
COMPARED = "gradients and parameters of every replica, steps on an uneven batch"
TOUR = True
HALVES = "An epoch takes roughly half the time on two devices: on k devices it is at least 0.8 k times as fast."
HALF = f"{sources.GPU_SLIDES}, read as 0.8 k; the chapter's own run became slower"
COMMON = dict(devices=[1, 2], data="auto", data_dir=None)
PRESETS = {
    "quick": dict(COMMON, batch_size=128, lr=0.25, samples=6000, test=2000),
    "full": dict(COMMON, batch_size=256, lr=0.2, samples=20000, test=10000),
}
LITTLE = dict(samples=200, batch_size=40)
oracle = lenet_steps.oracle
RECORDED_STEPS = 6
"""After each round, outside the clock, to see what the time goes for."""


def cases(s):
    for n in s.devices:
        yield Case(plural(n, "device"), n)
    for n in s.devices:
        if n > 1:
            yield Case(f"{plural(n, 'process')}, nothing shared", processes=n, reference=True)


def expect(s, cores):
    return f"Speed-up over one device: {lenet_steps.expect_speedups(s, cores)}; less by what can't be split."


def set_up(case, s):
    """A round trains on ``samples`` samples, and then a few steps more, recorded. A ceiling's processes share batch and
    samples. A process that is started anew goes on with the training of the one before it. Weights are larger than the
    book's, which learn nothing so soon. A whole and a short batch warm up: a step records a graph of each."""
    devices = devices_of(case, s)
    data = lenet_steps.pictures(s)
    batch_size = max(1, s.batch_size // case.processes)
    samples = s.samples // case.processes
    left = Path(case.folder, f"{case.process}.npz")
    params = init_lenet(s.seed, scale=0.1)
    if case.number and left.exists():
        with onp.load(left) as arrays:
            params = [np.array(arrays[name]) for name in arrays.files]

    apart = [get_params(params, device) for device in devices]
    replicas = [get_params(params, device) for device in devices]
    recorded = TrainStep(apart, devices, s.lr)
    step = TrainStep(replicas, devices, s.lr)
    # A recorded step is a step of training, so it has replicas of its own. It warms the devices up.
    record = lenet_steps.recorder(data.train, batch_size, s.seed, recorded, devices)
    warm_up = Stream(data.train, batch_size, s.seed)
    train_steps(warm_up.take(batch_size + samples % batch_size), step)
    set_params(replicas, params)
    epoch, first = divmod(case.number * s.rounds * samples, len(data.train))
    stream = Stream(data.train, batch_size, s.seed, epoch, first)
    net = BoundNet(lenet)
    timer = Timer()

    def one_round():
        with timer:
            losses = train_steps(stream.take(samples), step)
        more = {"round_samples": case.processes * samples, "loss": mean_loss(losses)}
        if len(replicas) > 1:  # one alone is not compared with itself
            more["in_sync"] = in_sync(replicas)
        if can_record(devices):
            more.update(record(RECORDED_STEPS).shares())
        if not case.reference:
            more["test_accuracy"] = evaluate(data.test, replicas, net=net)
        if case.folder:
            onp.savez(left, *[param.asnumpy() for param in replicas[0]])
        return timer.times[-1], more

    facts = {"possible": possible(devices)} if len(devices) > 1 else {}
    return Work(one_round, data=data.name, epoch_samples=len(data.train), **facts)


def possible(devices):
    """How many times as fast as one device these could be on this machine."""
    return min(len(devices), process.cores()) if devices[0].device_type == "cpu" else len(devices)


def _tell_columns(t):
    t.column(
        "sec_per_epoch",
        "s/epoch",
        ".2f",
        about="the time of all samples of the training set, at this speed",
    )
    t.column("samples_per_sec", "samples/s", ",.0f")
    t.column(
        "speedup", "speed-up", ".2f", spread=True, about="the first row's time over this row's"
    )
    t.column(
        "of_ceiling",
        form=".2f",
        spread=True,
        about="the time of processes that share nothing, over this row's",
    )
    t.column(
        "accuracy",
        form=".4f",
        about="on the test set, in the end: each process continues the training",
    )
    t.column("in_sync", about="all replicas of the row are equal, bit for bit")
    t.column(
        "possible",
        form=".2f",
        more=True,
        about="the speed-up that the devices, or fewer cores, could give",
    )
    for name in ("machine", *lenet_steps.PARTS.values()):
        t.column(f"lost_{name}", name, "+.2f", -1, more=True)


def tell(t, s):
    first = t.find(devices=s.devices[0])[0]
    for row in t:
        row.samples_per_sec = row.round_samples / row.seconds
        row.sec_per_epoch = row.epoch_samples / row.samples_per_sec
        row.speedup = first.seconds / row.seconds
    for row in t.rows:
        row.accuracy = row.test_accuracy.last
    accounted = None
    for ceiling in t.references:
        row = t.one(devices=ceiling.processes)
        row.of_ceiling = ceiling.seconds / row.seconds
        if first.devices == 1:
            accounted = row
            row.lost = _tell_account(row, ceiling)
            for name, part in row.lost.items():
                setattr(row, f"lost_{name}", part)
            t.claim(HALVES, row.speedup / row.devices, at_least=0.8, source=HALF)
        t.claim("All replicas stay equal, bit for bit.", row.in_sync, at_least=1, exact=True)
    _tell_columns(t)
    t.note("""Processes that share nothing train alone, one for each device, on its part of the batch. The possible
        speed-up plus what each part takes away is the speed-up. The machine's part is lost by processes that share
        nothing, too; the others come from a few steps that are recorded after each round, less what they take in those
        processes.""")
    t.bars("sec_per_epoch", title="Time of an epoch")
    if accounted:
        t.draw(lambda axes: _draw(axes, accounted), 4.4)
        on = "With a second device" if accounted.devices == 2 else f"On {accounted.label}"
        ceiling = t.references[-1]
        t.answer(f"""{on} an epoch {faster(accounted.speedup)}; in {plural(ceiling.processes, "process")} that share
            nothing it {faster(ceiling.speedup)}.""")
        t.explain(
            f"Sharing one network takes {1 / accounted.of_ceiling:.2f} times as long as sharing nothing."
        )
        t.explain(_tell_losses(accounted))
    else:
        t.answer("There is nothing to compare: run it with --devices 1,2.")
    if any(0 in row.in_sync.values for row in t.rows if row.get("in_sync")):
        t.answer("The replicas fell out of step, so the times mean nothing.")


def _tell_account(row, ceiling):
    """What of the ``possible`` speed-up of ``row`` is lost to what. With ``speedup`` it adds up."""
    of_ceiling = row.of_ceiling.median
    shared = lenet_steps.mean_shares(row)
    alone = lenet_steps.mean_shares(ceiling)
    if not (shared and alone):
        shared = alone = {"rest": 1.0}
    lost = {"machine": row.possible * of_ceiling - row.speedup.median}
    for part, words in lenet_steps.PARTS.items():
        if part in shared:
            lost[words] = row.possible * (shared[part] - of_ceiling * alone[part])
    return lost


def _tell_losses(row):
    """The account of ``row``, which has it as ``lost``, in words: its largest part."""
    largest = max(row.lost, key=row.lost.get)
    missing = sum(row.lost.values())
    text = f"Of the {row.possible} times that are possible here, {missing:.2f} are lost"
    if missing <= 0.05 * row.possible and row.possible == row.devices:
        return f"{text}."
    text += f"; the largest part: {largest} ({row.lost[largest]:.2f})."
    if row.speedup.at_most(1.1):
        text += " More devices bring nothing here; `python -m mxdp.experiments doctor` says what can be done."
    return text


def _draw(axes, row):
    """Draw what takes a part of the possible speed-up, down to the one that is reached."""
    right = float(row.possible)
    bars = [("possible", 0.0, right, style.LIGHT_GREY)]
    for (name, part), colour in zip(row.lost.items(), style.COLOURS[1:]):
        bars.append((name.replace("all-reduce ", "all-reduce\n"), right - part, part, colour))
        right -= part
    bars.append(("reached", 0.0, right, style.COLOURS[0]))
    for y, (_, left, width, colour) in enumerate(bars):
        axes.barh(y, width, left=left, height=0.7, color=colour)
        text = f"{width:.2f}"
        if left != 0:
            text = f"{-width:+.2f}".replace("+0.00", "0.00").replace("-0.00", "0.00")
        axes.annotate(
            text, (max(left, left + width), y), (5, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars], fontsize=10)
    axes.set(
        ylim=(len(bars) - 0.4, -0.6),
        xlabel="times as fast as one device",
        title=f"What {row.label} lose",
    )
    axes.margins(x=0.15)
    axes.grid(axis="y", visible=False)
