"""For how much of the time do two devices work at once?

A timeline of any other question, by MXNet's profiler: ``python -m mxdp.experiments run profile --of two-jobs``.
"""

from mxdp.errors import TraceError, UsageError
from mxdp.experiments import sources
from mxdp.experiments.devices import devices_of, timed
from mxdp.experiments.lab import Settings, Work
from mxdp.experiments.lab.module import find
from mxdp.experiments.timelines import recorded

SOURCE = f"exercise 4 of {sources.PARALLELISM}"
COMPARED = "what the recorded experiment compares"
PRESETS = {
    "quick": dict(devices=[2], timeout=120.0, of="two-jobs"),
    "full": dict(devices=[2], timeout=3600.0, of="two-jobs"),
}
LITTLE = dict(size=64, products=2)  # the recorded question's


def other(s):
    """The question to record, and its settings: its quick ones, but those of ``s`` where it has the same. Raises a
    UsageError if no question has that name, or it is this one."""
    question = find(s.of)
    if question.module.__name__ == __name__:
        raise UsageError("profile can't record itself: set 'of' to another experiment")
    known = question.preset("quick")
    same = {name: value for name, value in s.items() if name in known}
    return question, Settings({**known, **same})


def cases(s):
    question, its = other(s)
    return [case for case in question.cases(its) if case.processes == 1]


def expect(s, cores):
    question, its = other(s)
    return f"What {question.name} expects: {question.expect(its, cores)}"


def oracle(case, s):
    question, its = other(s)
    return question.oracle(case, its)


def set_up(case, s):
    """A round does two of the other question's: one plain, then one recorded, whose time counts."""
    question, its = other(s)
    work = question.set_up(case, its)
    devices = work.devices or devices_of(case, its)

    def seconds():
        done = []
        whole = timed(lambda: done.append(work.round()))
        (measured,) = done
        if isinstance(measured, tuple):
            measured = measured[0]
        return whole if measured is None else measured

    def measure():
        plain = seconds()
        took = []
        try:
            timeline = recorded(lambda: took.append(seconds()), devices)
        except TraceError as error:
            raise UsageError(f"{s.of} records its own rounds: run it by itself") from error
        if not timeline:
            raise UsageError(
                f"MXNet's profiler can't follow {len(devices)} CPU devices on this machine"
            )
        return took[0], {"cost": took[0] / plain, **timeline}

    return Work(measure, devices, **work.facts)


def tell(t, s):
    t.column("busy", form=".0%", about="the share of the round in which each device worked")
    t.column("together", form=".0%", about="the share in which at least two did")
    t.column(
        "hidden",
        "comm. beside compute",
        ".0%",
        about="the share of the copies and sums that lay beside compute",
    )
    t.column("critical", about="the device that decided, in the last process")
    t.column("cost", form=".2f", about="a recorded round over a plain one")
    t.note(
        "The timelines in the report are of the last process, with a trace of each for ui.perfetto.dev."
    )
    t.bars("together", "%", 100, title="At least two devices work")
    most = max(t, key=lambda row: row.together.median)
    worst = max(t, key=lambda row: row.cost.median)
    t.answer(f"""Two devices work at the same time for up to {most.together:.0%} of a round; that is the case
        {most.label!r} of {s.of}.""")
    t.explain(f"A recorded round takes at most {worst.cost:.2f} times as long as a plain one.")
    if worst.cost.at_most(1.25) is False:
        t.explain("Doubt timelines that cost so much time.")
    # Never run on a GPU. Source: Nsight Systems' User Guide, "CLI profile command switch options".
    t.explain(f"""With GPUs, NVIDIA's own profiler sees more: nsys profile --trace=cuda,cudnn,cublas,nvtx,osrt
        --sample=none --force-overwrite=true --output={s.of} python -m mxdp.experiments run {s.of} --kind gpu""")
