"""Records ``traces/`` with MXNet 1.9.1. Run it by hand: ``python tests/tracing/record_traces.py``.

``first.json``    a process's first trace, of two devices: an all-reduce (layout, copy, sum), a product, a wait
``second.json``   the same once more, in the same process: no names, and a comma too many
``other.json``    more CPU devices than processors (made on two), and MXNet's key-value store with its pinned memory
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "traces"


def start(name):
    from mxdp.backend import mx, npx

    npx.waitall()
    options = {"profile_imperative": True, "profile_symbolic": True, "profile_api": True, "profile_memory": False}
    mx.profiler.set_config(filename=str(FOLDER / name), continuous_dump=False, **options)
    mx.profiler.set_state("run")


def stop():
    from mxdp.backend import mx, npx

    npx.waitall()
    mx.profiler.set_state("stop")
    mx.profiler.dump()


def work():
    """The work, prepared and run once, so that the trace is small."""
    from mxdp.backend import mx, np
    from mxdp.collectives import AllReduce

    data = [np.ones((300, 300), ctx=mx.cpu(number)) for number in (0, 1)]
    reduce = AllReduce(data, "doubling")

    def once():
        reduce()
        np.dot(data[0], data[0]).wait_to_read()

    once()
    return once


def first():
    once = work()
    for name in ("first.json", "second.json"):
        start(name)
        once()
        stop()


def other():
    from mxdp.backend import mx, np

    store = mx.kv.create("local")
    data = [np.ones((300, 300), ctx=mx.cpu(number)) for number in (0, 2)]
    store.init(0, data[0])
    start("other.json")
    store.pushpull(0, data, out=data)
    mx.nd.zeros((9,), ctx=mx.cpu(3))
    stop()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        FOLDER.mkdir(exist_ok=True)
        for part in ("first", "other"):
            subprocess.run([sys.executable, __file__, part], check=True)
    else:
        {"first": first, "other": other}[sys.argv[1]]()
