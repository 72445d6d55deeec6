"""What do ZeRO's three stages save on each device, and what do they cost?

With Adam a parameter takes 16 bytes in training: itself, its gradient and two numbers of state. Plain data parallelism
keeps all of that on every device. ZeRO cuts it into a part for each of k devices: in stage 1 the optimiser's state, in
stage 2 the gradients, too, in stage 3 (FSDP) the parameters, too. Each layer's parameters are then gathered just before
its forward and its backward pass, and freed after it. Stages 1 and 2 move 2 N bytes, as the all-reduce of N bytes does;
stage 3 moves 3 N. What remains whole are the activations and one layer.
"""

from dataclasses import replace

from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, several, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.memory_use import peak_bytes
from mxdp.experiments.networks import begin_anywhere
from mxdp.experiments.other_splits import split
from mxdp.parallel.traffic import flat
from mxdp.tracing.recording import can_record

SOURCE = f"{sources.ZERO}; {sources.IN_PRACTICE}, FSDP"
COMPARED = f"{split.COMPARED}; after two steps of Adam each parameter with plain data parallelism's, bit for bit"
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, units=1024, width=32, batch_size=2, steps=1),
    "full": dict(split.FULL, units=1024, width=64, batch_size=2, steps=1),
}
CHECKS = SEVERAL
LITTLE = dict(units=16, width=4, steps=1)
NETS = {"wide": "MLP", "resnet": "ResNet-18"}
STAGES = ("plain", "stage 1", "stage 2", "stage 3")
STEPS = {"wide": 10, "resnet": 1}
LR = 1e-3
"""Adam's learning rate."""
ODD = 5
"""Samples that the oracle compares, at least: a prime, so that shards are uneven."""
LAYERS = (0, 0, 1, 2)
"""How often the largest layer is whole, as parameters and as gradients, by stage; in stages 0 and 1 all are."""


def cases(s):
    for n in several(s):
        for net, title in NETS.items():
            for stage, name in enumerate(STAGES):
                yield Case(f"{title}, {name} x {n}", n, net=net, stage=stage)


def expect(s, cores):
    sentences = []
    for n in several(s):
        shares = ", ".join(f"{(whole + (4 - whole) / n) / 4:.3g}" for whole in (2, 1, 0))
        sentences.append(
            f"On {n} devices stages 1, 2 and 3 hold {shares} of the plain memory, beside one layer."
        )
    return f"{' '.join(sentences)} Stages 1 and 2 move as many bytes as the plain step, and stage 3 half as many more."


def oracle(case, s):
    """The serial run is compared with SGD, since Adam makes a whole step of a gradient that is nothing but rounding. It
    is compared in float64, since eight residual layers enlarge the rounding of float32."""
    net = _split(case, s, stage=case.stage)
    yield from replace(net, dtype="float64").compare(ODD)
    cut = _split(case, s, stage=case.stage, optimizer="adam").make()
    plain = _split(case, s, stage=0, optimizer="adam").make()
    samples = split.uneven(ODD, cut)
    X, y = net.batch(samples)
    for made in (cut, plain):
        split.train(made, X, y, 2, LR)
    for param, expected in zip(flat(cut.params()), flat(plain.params())):
        yield param.asnumpy(), expected.asnumpy(), 0.0
    yield cut.traffic.total(), cut.bytes_moved(samples), 0.0


def set_up(case, s):
    """A round is 'steps' steps, ten times as many of the MLP; its time is a step's. The first looks at memory, too."""
    net = _split(case, s, stage=case.stage, optimizer="adam")
    steps = s.steps * STEPS[case.net]
    X, y = net.batch(s.batch_size * case.devices)
    known = {}
    if not case.number and can_record(net.devices):
        known = _memory(net, X, y)
    made = net.make()
    split.train(made, X, y, split.WARM_UP, LR)
    known["moved_bytes"] = made.traffic.total()
    known["layer_bytes"] = LAYERS[case.stage] * made.itemsize * max(made.sizes)
    lasting = made.lasting_bytes(len(X))[-1]
    known["predicted_peak_bytes"] = lasting + made.peak_bytes(len(X))[-1]

    def one_round():
        begin_anywhere(net.devices[0])
        return timed(lambda: split.train(made, X, y, steps, LR)) / steps, known

    return Work(one_round)


def _memory(net, X, y):
    """The bytes that stay on the last device from step to step, and the most at a time from the start to the end of two
    steps. The first device would not do: MXNet counts the temporary space of all CPU devices as the first one's."""

    def trained():
        made = net.make()
        split.train(made, X, y, 2, LR)
        return made

    lasting = peak_bytes(net.make, net.devices)[-1]
    return dict(lasting_bytes=lasting, peak_bytes=peak_bytes(trained, net.devices)[-1])


def _split(case, s, **options):
    size = s.width if case.net == "resnet" else s.units
    return split.split_net(case, s, "fully-sharded", case.net, size, **options)


def _tell_claims(t):
    third = t.find(stage=3)
    sentence = """In stage 3 a device holds, at its peak and beside one gathered layer, at most 1.15 / k of the plain
        parameters, gradients and state (the number is k times the share)."""
    held = [row.held * row.devices for row in third if row.get("held")]
    source = f"{sources.ZERO}, stage 3, read as 1.15 / k"
    t.claim(sentence, *held, at_most=1.15, exact=True, source=source)
    source = f"{sources.ZERO}, section 7"
    sentence = "Stages 1 and 2 move no more bytes than plain data parallelism."
    moved = [row.of_moved for row in t if row.stage in (1, 2)]
    t.claim(sentence, *moved, at_most=1.0, exact=True, source=source)
    sentence = "Stage 3 moves at most 1.5 times the bytes of plain data parallelism."
    moved = [row.of_moved for row in third]
    t.claim(sentence, *moved, at_most=1.5, exact=True, source=source)


def tell(t, s):
    for row in t:
        plain = t.one(stage=0, net=row.net, devices=row.devices)
        row.of_time = row.seconds / plain.seconds
        row.of_moved = row.moved_bytes / plain.moved_bytes
        if row.get("peak_bytes") and plain.get("peak_bytes"):
            activations = plain.peak_bytes - plain.lasting_bytes
            row.held = (row.peak_bytes - activations - row.layer_bytes) / plain.lasting_bytes
    _tell_claims(t)
    t.column(
        "seconds",
        "ms",
        ".1f",
        1e3,
        about="a step of 'batch_size' samples a device, with Adam's update",
    )
    t.column("of_time", "time", ".2f", spread=True, about="that over the time of the plain step")
    t.column(
        "moved_bytes",
        "moved MB",
        ".1f",
        1e-6,
        about="what a step and its update send between all devices",
    )
    about = "the memory of the last device at its peak, with the activations, as MXNet counts it in the first process"
    t.column("peak_bytes", "MB", ".1f", 1e-6, about=about)
    t.column(
        "predicted_peak_bytes",
        "MB pred.",
        ".1f",
        1e-6,
        about="that, calculated from the plan and the shapes",
    )
    about = "the peak without activations and the one layer that is whole"
    t.column(
        "held", "of plain", ".3f", about=f"{about}, over the plain parameters, gradients and state"
    )
    t.note("MXNet's CPU devices share their temporary space, which is not in these numbers.")
    last = t.one(stage=3, net="resnet", devices=several(s)[0])
    memory = ""
    if last.get("held"):
        memory = f"each device holds {last.held:.2f} of the plain memory, and "
    devices = plural(last.devices, "device")
    t.answer(
        f"In stage 3 on {devices}, ResNet-18: {memory}a step takes {last.of_time:.2f} of the plain step's time."
    )
    other = t.one(stage=3, net="wide", devices=last.devices)
    t.explain(f"A step of the MLP takes {other.of_time:.2f} of the plain step's time.")
    t.explain("""The memory is that of parameters, gradients and Adam's state, beside one gathered layer. The devices
        wait for each gather; PyTorch's FSDP gathers a layer while the one before it computes.""")
    t.bars("peak_bytes", "MB", 1e-6, title="Memory of a device at its peak", colour="stage")
    for net, title in NETS.items():
        rows = t.find(net=net)
        t.bars(unit="ms", scale=1e3, title=f"{title}: time of a step", colour="stage", rows=rows)
