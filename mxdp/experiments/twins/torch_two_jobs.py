"""PyTorch: do independent jobs on two GPUs take as long as one?

This is the question ``two-jobs``, in PyTorch. MXNet's CUDA wheels have no code for GPUs of compute capability 9.0 and
later; PyTorch's wheels have it. Both libraries run Python ahead of the device, so the slides' code reads alike. With
one GPU the jobs share it, in two streams: a large product fills a GPU by itself, so there is little to gain.
"""

from mxdp.experiments import sources
from mxdp.experiments.lab import Case, Work, mean
from mxdp.experiments.twins import places

SOURCE = f"{sources.PARALLELISM}, in its PyTorch version"
COMPARED = "products, against NumPy's, exactly"
NEEDS = places.NEEDS
PRESETS = places.PRESETS
LITTLE = places.LITTLE
ALONE = "alone"
TURN = "in turn"
ONCE = "at once"


def cases(s):
    yield Case("job 1 alone", 1, run=ALONE, job=0)
    yield Case("job 2 alone", 1, run=ALONE, job=1)
    yield Case("both jobs, in turn", 2, run=TURN)
    yield Case("both jobs at once", 2, run=ONCE)


def expect(s, cores):
    return "Both at once over one: 1.00 on two GPUs; up to 2.00 on one GPU, if a product fills it; 2.00 on the CPU."


def oracle(case, s):
    size = min(s.size, 1000)
    jobs = []
    for number, place in enumerate(_places(case, s)):
        jobs.append((place, *places.square_factors(size, place, s.seed + number)))
    for place, x, w, y in jobs:
        places.push(place, x, w, [y] * 2)
    places.wait_for_gpus()
    for _, x, w, y in jobs:
        expected = x.cpu().numpy() @ w.cpu().numpy()
        yield y.cpu().numpy(), expected, 0.0


def set_up(case, s):
    """A round is every job of the case."""
    jobs = []
    for place in _places(case, s):
        jobs.append((place, *places.square_factors(s.size, place, s.seed)))

    def run():
        for place, x, w, y in jobs:
            places.push(place, x, w, [y] * s.products)
            if case.run == TURN:
                places.wait_for_gpus()

    # Two warm-ups: one product, and a whole round.
    first, left, right, product = jobs[0]
    places.seconds_of(lambda: places.push(first, left, right, [product]))
    places.seconds_of(run)
    devices = [place.device for place, *_ in jobs]
    return Work(lambda: places.seconds_of(run), devices, processor=places.processor(first))


def _places(case, s):
    of_jobs = places.two_places(s)
    return [of_jobs[case.job]] if case.run == ALONE else of_jobs


def tell(t, s):
    alone = mean(t.one(run=ALONE, job=job).seconds for job in range(2))
    for row in t:
        row.over_one = row.seconds / alone
    once = t.one(run=ONCE)
    t.column("seconds", form=".4f", spread=True, about="the time of all jobs of the row")
    t.column(
        "over_one",
        form=".2f",
        spread=True,
        about="over the mean of a job alone: 1 side by side, 2 in turn",
    )
    t.column("device_names", "devices")
    t.note(f"""On one GPU the two jobs run in two streams. --kind cpu runs it without a GPU:
        PyTorch computes on the CPU while Python waits, so jobs there run one after the other. {places.RUN}""")
    t.answer(
        f"On {places.tell_where(once)}, two jobs at once take {once.over_one:.2f} times as long as one job alone."
    )
    t.explain(f"On two GPUs both took 1.02 times as long as one: {sources.PARALLELISM_SLIDES}.")
    t.bars(colour="job")
