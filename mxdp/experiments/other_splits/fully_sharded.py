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
from mxdp.experiments.devices import SEVERAL, devices_of, several, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.memory import peak_bytes
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
NETS, STAGES = {"wide": "MLP", "resnet": "ResNet-18"}, ("plain", "stage 1", "stage 2", "stage 3")
STEPS = {"wide": 10, "resnet": 1}
LR, ODD = 1e-3, 5
"""Of Adam; samples that the oracle compares, at least: a prime, so that shards are uneven."""
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
    """The serial run is compared with SGD, since Adam makes a whole step of a gradient that is nothing but rounding;
    and in float64, since eight residual layers enlarge the rounding of float32."""
    net = _split(case, s, stage=case.stage)
    yield from replace(net, dtype="float64").compare(ODD)
    cut, plain = (
        _split(case, s, stage=stage, optimizer="adam").make() for stage in (case.stage, 0)
    )
    samples = split.uneven(ODD, cut)
    X, y = net.batch(samples)
    for made in (cut, plain):
        split.train(made, X, y, 2, LR)
    for param, expected in zip(flat(cut.params()), flat(plain.params())):
        yield param.asnumpy(), expected.asnumpy(), 0.0
    yield cut.traffic.total(), cut.bytes_moved(samples), 0.0


def set_up(case, s):
    """A round is 'steps' steps, ten times as many of the MLP; its time is a step's. The first looks at memory, too."""
    net, steps = _split(case, s, stage=case.stage, optimizer="adam"), s.steps * STEPS[case.net]
    X, y = net.batch(s.batch_size * case.devices)
    known = _memory(net, X, y) if not case.number and can_record(net.devices) else {}
    made = net.make()
    split.train(made, X, y, split.WARM_UP, LR)
    known.update(
        moved_bytes=made.traffic.total(),
        layer_bytes=LAYERS[case.stage] * made.itemsize * max(made.sizes),
    )
    known["predicted_peak_bytes"] = made.lasting_bytes(len(X))[-1] + made.peak_bytes(len(X))[-1]

    def one_round():
        begin_anywhere(net.devices[0])
        return timed(lambda: split.train(made, X, y, steps, LR)) / steps, known

    return Work(one_round, net.devices)


def _memory(net, X, y):
    """Bytes of the last device, since MXNet counts the temporary space of all CPU devices as the first one's: what
    stays from step to step, and the most at a time from the start to the end of two steps."""

    def trained():
        made = net.make()
        split.train(made, X, y, 2, LR)
        return made

    lasting, peak = (peak_bytes(work, net.devices)[-1] for work in (net.make, trained))
    return dict(lasting_bytes=lasting, peak_bytes=peak)


def _split(case, s, **options):
    net = split.net_and_shape(case.net, s.width if case.net == "resnet" else s.units)
    return split.SplitNet("fully-sharded", *net, devices_of(case, s), s.seed, options)


def _tell_claims(t, row):
    third = row.stage == 3
    zero = f"{sources.ZERO}, section 7"
    sentence = """In stage 3 a device holds, at its peak and beside one gathered layer, at most 1.15 / k of the plain
        parameters, gradients and state (the number is k times the share)."""
    held = row.held * row.devices if third and row.get("held") else None
    t.claim(
        sentence,
        held,
        at_most=1.15,
        exact=True,
        source=f"{sources.ZERO}, stage 3, read as 1.15 / k",
    )
    sentence = "Stages 1 and 2 move no more bytes than plain data parallelism."
    t.claim(
        sentence,
        row.of_moved if row.stage in (1, 2) else None,
        at_most=1.0,
        exact=True,
        source=zero,
    )
    sentence = "Stage 3 moves at most 1.5 times the bytes of plain data parallelism."
    t.claim(sentence, row.of_moved if third else None, at_most=1.5, exact=True, source=zero)


def tell(t, s):
    for row in t:
        plain = t.one(stage=0, net=row.net, devices=row.devices)
        row.of_time, row.of_moved = row.seconds / plain.seconds, row.moved_bytes / plain.moved_bytes
        if row.get("peak_bytes") and plain.get("peak_bytes"):
            activations = plain.peak_bytes - plain.lasting_bytes
            row.held = (row.peak_bytes - activations - row.layer_bytes) / plain.lasting_bytes
        _tell_claims(t, row)
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
    memory = (
        f"each device holds {last.held:.2f} of the plain memory, and " if last.get("held") else ""
    )
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
        t.bars(
            unit="ms",
            scale=1e3,
            title=f"{title}: time of a step",
            colour="stage",
            rows=t.find(net=net),
        )
