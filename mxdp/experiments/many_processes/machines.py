"""What does it cost to train in several processes, and by which engine?

Each device gets a process, and an engine sums the gradients over them: MPI (``mxdp.world()``), whose sums are jobs of
MXNet's engine, so nothing waits; MXNet's ``dist_sync``, where a server process adds up; Horovod over Gloo. All end with
the parameters of one process with k devices. The yardstick is k processes that exchange nothing, each on its part of
the batch. A process that waits for MPI keeps its core busy. So with more processes than cores a step is slower than
with as many devices in one process.
"""

from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.lab import Case, Work, ranks
from mxdp.experiments.lab.ranks import ALONE, HOROVOD, MPI, SYNC, WORDS
from mxdp.experiments.many_processes.lenet_ranks import TrainingRank, compare_ranks

SOURCE = sources.PARAMETER_SERVERS
COMPARED = "parameters of every replica in every process after three steps; bit for bit among the processes"
COMMON = dict(
    devices=[2],
    data="auto",
    data_dir=None,
    batch_size=256,
    lr=0.2,
)
PRESETS = {"quick": dict(COMMON, steps=10), "full": dict(COMMON, steps=20)}
LITTLE = dict(data="synthetic", batch_size=24, steps=2)


def cases(s):
    for n in s.devices:
        yield Case(f"{plural(n, 'device')}: one process", devices=n, devices_in_all=n)
        for engine in (MPI, SYNC, HOROVOD, ALONE):
            yield Case(
                f"{plural(n, 'device')}: {WORDS[engine]}",
                processes=n,
                engine=engine,
                reference=engine == ALONE,
                needs=ranks.NEEDS.get(engine, {}),
                devices_in_all=n,
            )


def expect(s, cores):
    return f"""A step computes for tens of milliseconds and exchanges 0.45 MB, which MPI sums in 0.1 ms, dist_sync in 2.
        With a core for each process all but dist_sync should take 1.00 to 1.05 times as long as without any exchange.
        There are {plural(cores, "core")} here."""


def oracle(case, s):
    yield from compare_ranks(case, s, TrainingRank(case, s))


def set_up(case, s):
    rank = TrainingRank(case, s)
    rank.train(s.steps)
    return Work(lambda: rank.train(s.steps), rank.devices, data=rank.dataset.name)


def tell(t, s):
    for row in t:
        row.step_ms = row.seconds * (1e3 / s.steps)
        yardstick = t.maybe(reference=True, devices_in_all=row.devices_in_all)
        # No engine and no reference: one process with all devices.
        one_process = t.maybe(reference=False, engine="", devices_in_all=row.devices_in_all)
        if yardstick and row is not yardstick:
            row.of_alone = row.seconds / yardstick.seconds
        if one_process and row is not one_process:
            row.of_one = row.seconds / one_process.seconds
        row.mpi_has_cores = row.engine == MPI and 1 < row.processes <= row.cores
    t.column("step_ms", "ms/step", ".1f")
    t.column(
        "of_alone",
        form=".2f",
        spread=True,
        about="over the time of as many processes that exchange nothing",
    )
    t.column(
        "of_one",
        "of one process",
        ".2f",
        spread=True,
        about="over that of one process with as many devices",
    )
    t.note("""All rows train LeNet with the same batch. dist_sync has a server process beside the workers. Horovod
        averages over processes by default; here it sums.""")
    with_cores = [row.processes for row in t.find(mpi_has_cores=True)]
    n = max(with_cores or s.devices)
    by = {row.engine: row for row in t.find(devices_in_all=n)}
    times = []
    for engine, words in ((MPI, "MPI"), (SYNC, "MXNet's dist_sync")):
        if engine in by:
            times.append(f"{by[engine].of_alone:.2f} times as long by {words}")
    t.answer(f"Exchanging gradients makes a step of {plural(n, 'process')} {' and '.join(times)}.")
    if MPI in by:
        t.explain(f"""By MPI it takes {by[MPI].of_one:.2f} times as long as in one process with as many devices: its
            sums are jobs of MXNet's engine, which run while backward still computes.""")
    t.bars("step_ms", "ms/step")
