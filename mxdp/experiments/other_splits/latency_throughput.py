"""Do several devices give more answers a second, or each answer sooner?

Stages don't shorten the latency: a batch still goes through all layers, and over a link too. But the next batch follows
close behind, so p balanced stages give up to p times the throughput. Replicas do, too.
"""

from mxdp.backend import upload
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, devices_of, several, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.other_splits.nets import net_and_shape
from mxdp.experiments.other_splits.split import FULL, QUICK, SplitNet, stage_cuts
from mxdp.layers import forward, init
from mxdp.plans.cost.simulate import last_end, pipeline_spans
from mxdp.plans.pipeline import inference

SOURCE = f"ours; pipelines as in {sources.GPIPE}"
COMPARED = "scores of every replica"
TOGETHER = True
PRESETS = {
    "quick": dict(QUICK, batches=[1, 8, 64], stream=8),
    "full": dict(FULL, batches=[1, 16, 256], stream=8),
}
CHECKS = SEVERAL
LITTLE = dict(batches=[1, 2], stream=2)
ONE = "1 device"


def cases(s):
    layouts = [(ONE, 1, 1)]
    for n in several(s):
        layouts += [(f"{n} stages", n, n), (f"{n} replicas", n, 1)]
    for layout, n, stages in layouts:
        for batch in s.batches:
            yield Case(f"{layout}, batch {batch}", n, layout=layout, stages=stages, batch=batch)


def expect(s, cores):
    gains = []
    for n in several(s):
        spans = pipeline_spans(inference(n, s.stream), [1 / n] * n, cores=cores)
        gains.append(f"{n} equal stages give {s.stream / last_end(spans):.2f} times")
    return f"On {plural(cores, 'core')}, {' and '.join(gains)} the throughput of one device, at the same latency."


def oracle(case, s):
    replicas = _replicas(case, s)
    first = replicas[0]
    X, _ = first.batch(case.batch)
    params = init(first.net, first.shape, s.seed)
    expected = forward(first.net, upload(X, params[0][0].ctx), params).asnumpy()
    for replica in replicas:
        yield replica.make().scores(X).asnumpy(), expected


def set_up(case, s):
    """A round is one batch, then a stream of batches."""
    replicas = _replicas(case, s)
    pipes = [replica.make() for replica in replicas]
    X, _ = replicas[0].batch(case.batch)

    def send(batches):
        return [pipes[number % len(pipes)].scores(X) for number in range(batches)]

    for _ in range(4):  # to warm up: a process has one round
        send(s.stream)

    def one_round():
        latency = timed(lambda: send(1))
        seconds = timed(lambda: send(s.stream))
        throughput = case.batch * s.stream / seconds
        return seconds, dict(answers_per_second=throughput, latency_seconds=latency)

    return Work(one_round)


def _replicas(case, s):
    """The replicas of the network, each with its stages on devices of its own."""
    devices = devices_of(case, s)
    stages = case.stages
    net, shape = net_and_shape("stages")
    cuts = stage_cuts(devices[0], stages, 1, max(s.batches), s.seed, training=False)
    options = {"cuts": cuts}
    replicas = []
    for first in range(0, len(devices), stages):
        group = devices[first : first + stages]
        replicas.append(SplitNet("pipeline", net, shape, group, s.seed, options))
    return replicas


def tell(t, s):
    t.column("latency_seconds", "ms", scale=1e3, about="the latency: the time of one batch alone")
    about = "the throughput: that of a stream of batches, with no wait between them"
    t.column("answers_per_second", "answers/s", about=about)
    t.column(
        "answers_of_one",
        "of 1 dev.",
        ".2f",
        spread=True,
        about="the throughput over that of one device",
    )
    t.note("With replicas, each device has the whole network, and they take turns.")
    most = max(s.batches)
    largest = t.find(batch=most)
    t.bars("answers_per_second", "answers/s", title="Throughput", rows=largest)
    t.bars("latency_seconds", "ms", 1e3, title="Latency", rows=largest)
    for row in t.rows:
        one = t.one(layout=ONE, batch=row.batch)
        row.answers_of_one = row.answers_per_second / one.answers_per_second
        row.latency_of_one = row.latency_seconds / one.latency_seconds
    staged = [row for row in largest if row.stages > 1]
    if not staged:
        return
    row = staged[0]
    t.answer(f"""With batches of {most}, {row.layout} give {row.answers_of_one:.2f} times the throughput of one device,
        at {row.latency_of_one:.2f} times its latency.""")
