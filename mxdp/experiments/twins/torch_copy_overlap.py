"""PyTorch: can results be copied to the host while the next are computed?

It is ``copy-overlap`` in PyTorch. The slides copy the results of 50 products to the host in the default stream and to
ordinary (pageable) memory: 0.12 s to compute, 2.16 s to copy, 3.13 s for both "overlapped", longer than one after the
other. Two things are missing. A copy to pageable memory makes the driver wait; a copy to pinned memory is a job of the
GPU. And a stream does its work in order, so copies need a stream of their own.
"""

from mxdp.experiments import sources
from mxdp.experiments.lab import Case, Work, by_process
from mxdp.experiments.twins import places

SOURCE = f"{sources.PARALLELISM}, in its PyTorch version; {sources.PARALLELISM_SLIDES}"
COMPARED = "the copies on the host, against NumPy's products, exactly"
NEEDS = places.NEEDS
PRESETS = places.PRESETS
LITTLE = places.LITTLE
PAGEABLE = "pageable"
PINNED = "pinned"
DEFAULT = "default stream"
SIDE = "side stream"


def cases(s):
    for memory in (PAGEABLE, PINNED):
        for stream in (DEFAULT, SIDE):
            yield Case(f"{memory}, {stream}", 1, memory=memory, stream=stream)


def expect(s, cores):
    return "With pinned memory and a side stream both take as long as the longer one, otherwise as long as their sum."


def oracle(case, s):
    _, x, w, host, push = _ready(case, s, min(s.size, 500))
    places.seconds_of(push)
    expected = x.cpu().numpy() @ w.cpu().numpy()
    for copied in host:
        yield copied.numpy(), expected, 0.0


def set_up(case, s):
    """A round does both, and then each alone."""
    place, *_, push = _ready(case, s, s.size)

    def one_round():
        both = places.seconds_of(push)
        run = places.seconds_of(lambda: push(copies=False))
        copy = places.seconds_of(lambda: push(products=False))
        return both, {"run_ms": run * 1e3, "copy_ms": copy * 1e3}

    one_round()
    return Work(one_round, [place.device], processor=places.processor(place))


def _ready(case, s, size):
    """Where it computes, the two factors, where the results are copied to on the host, and what pushes the work."""
    import torch

    device = places.two_places(s)[0].device
    gpu = device.type == "cuda"
    place = places.Place(device, torch.cuda.default_stream(device) if gpu else None)
    side = torch.cuda.Stream(device) if gpu and case.stream == SIDE else place.stream
    pinned = gpu and case.memory == PINNED
    x, w, y = places.square_factors(size, place, s.seed)
    results = [torch.empty_like(y) for _ in range(s.products)]
    host = [torch.empty(size, size, pin_memory=pinned) for _ in results]

    def push(products=True, copies=True):
        """Each product, and then the copy of its result, which waits for it on the device; or either alone."""
        for result, copied in zip(results, host):
            if products:
                places.push(place, x, w, [result])
            if products and copies and side is not place.stream:
                side.wait_stream(place.stream)
            if copies:
                with torch.cuda.stream(side):
                    copied.copy_(result, non_blocking=True)

    return place, x, w, host, push


def tell(t, s):
    for row in t:
        both = row.seconds * 1e3
        row.over_longer = both / by_process(max, row.run_ms, row.copy_ms)
        row.over_sum = both / (row.run_ms + row.copy_ms)
    slides = t.one(memory=PAGEABLE, stream=DEFAULT)
    best = t.one(memory=PINNED, stream=SIDE)
    t.column("run_ms", "run", ".1f", about="ms of the products alone")
    t.column("copy_ms", "copy", ".1f", about="ms of the copies of their results to the host alone")
    t.column(
        "seconds",
        "both",
        ".1f",
        1e3,
        spread=True,
        about="ms: a copy pushed after each product, then one wait",
    )
    t.column(
        "over_longer",
        "/longer",
        ".2f",
        spread=True,
        about="both over the longer (1: it hides the other)",
    )
    t.column("over_sum", "/sum", ".2f", about="both over their sum (1: nothing is hidden)")
    t.note(
        "The slides: 120 ms, 2160 ms, 3130 ms. --kind cpu runs it without a GPU, where nothing overlaps."
    )
    t.answer(f"""On {places.tell_where(best)}, products and copies take {best.over_longer:.2f} times the longer one's
        time with pinned memory and a side stream; as the book's slides do it, {slides.over_longer:.2f} times.""")
    t.bars(unit="ms", scale=1e3)
