"""A question whose cases go wrong as their label says: `fault: where`, where the fault is met."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as onp
from littles import hang

from mxdp.backend import mx
from mxdp.experiments.lab import Case, Skipped, Work

PRESETS = {"quick": dict(devices=[1], faults="none", timeout=60.0, processes=2)}
COMPARED = "ones"
TOGETHER = os.environ.get("FAULTY_TOGETHER") == "1"


def cases(s):
    if s.faults == "alike":
        yield Case("good")
    yield Case("good", devices=1)
    if s.faults == "cases":
        sys.exit("enough")
    for fault in s.faults.split(","):
        if fault != "none":
            twice = 2 if "rank" in fault else 1
            yield Case(fault, processes=twice, fault=fault, needs={"no_such": "`make`"} if fault == "needs" else {})


def expect(s, cores):
    if s.faults == "expect":
        raise RuntimeError("no idea")
    return "Good,\n    soon."


def oracle(case, s):
    do(case, "oracle")
    if case.get("fault") == "unchecked":
        return
    wrong = case.get("fault") == ("wrong rank" if case.process else "wrong")
    yield onp.ones(3), onp.full(3, 1 + wrong), 0.0


def set_up(case, s):
    do(case, "set_up")
    seeds = case.seeds(s.seed)

    def one_round():
        do(case, "round")
        numbers = dict(process=case.number, pid=os.getpid(), entries={"a": 1.0, "b": 2.0}, right=True, word="x")
        numbers["seed"] = next(seeds)
        return {"nan time": onp.nan, "none": "1"}.get(case.get("fault"), 0.25), {**numbers, "nan": onp.nan}

    return Work(one_round, [], rate=os.getpid(), found=case.label)


def do(case, where):
    fault, _, place = case.get("fault", "").partition(" in ")
    if place == where:
        {
            "raises": lambda: 1 / 0,
            "skips": lambda: skip("a GPU is missing: buy one"),
            "exits": lambda: os._exit(3),
            "leaves": lambda: os._exit(0),
            "calls exit": lambda: sys.exit(0),
            "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
            "hangs": hang,
            "prints": lambda: print("{}\n" * 5, flush=True) or os.system("echo out; echo err >&2"),
            "forks": fork,
            "leaves an error to mxnet": lambda: mx.nd.random.normal(0, -1, shape=(2,)),
        }[fault]()  # fmt: skip


def skip(why):
    raise Skipped(why)


def fork():
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(os.environ["FAULTY_PIDS"]).write_text(str(started.pid))


def tell(t, s):
    if s.faults == "tell":
        raise RuntimeError("speechless")
    if s.faults == "tell no more":
        sys.exit(3)
    t.column("seconds", form=".2f", spread=True, about="the time")
    t.column("nan")
    t.column("rate", form="x" if s.faults == "column" else ".0f")
    for row in t.rows:
        t.claim("It takes at most 0.3 s.", row.seconds, at_most=0.3)
    t.answer(f"It takes {t.rows[0].seconds:.2f} s.")
    t.bars()
