"""Trains two networks in several processes, by MPI, on this host or on two with a slow link; and in one."""

from __future__ import annotations

import atexit
import itertools
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type

import numpy as onp

from mxdp import process
from mxdp.backend import HostArray, NDArray, autograd, devices, mx, np, npx, upload
from mxdp.collectives import GradientSync
from mxdp.experiments.harness.exchanges import MPI, ONE
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.many_processes.work.exchanges import join
from mxdp.experiments.many_processes.work.hosts import Hosts, two_hosts
from mxdp.experiments.many_processes.work.wire import slow_cable
from mxdp.experiments.measure.crew import Crew
from mxdp.experiments.measure.oracle import TOLERANCE, largest
from mxdp.experiments.measure.resnet import resnet18
from mxdp.gluon import Trainer
from mxdp.plans.cost.link import Link, fit_link
from mxdp.plans.partition import fill_buckets
from mxdp.scratch import cross_entropy, get_params, init_lenet, lenet
from mxdp.training import TrainStep

LR = 1e-3
"""Small, since all steps train on the same random batch."""
BUCKET = 25 << 20
SUMS = (4, 65_536, 1_048_576)
"""Bytes of the sums that tell what a sum takes: none is a network's."""
Place = Tuple[int, int, int]
"""Where a case runs: its processes, Mbit/s and ms of the cable between them (0: one host, no delay)."""
MOST = 200
"""Steps of one measurement."""


class PredictedRank:
    """One process with one device: its replicas of the networks, and its part of each batch."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.ranks, _ = join(order["engine"])
        self.number = self.ranks.rank
        (self.device,) = devices(1, order["kind"])
        self._seed = order["seed"]
        self._models: Dict[str, Any] = {}

    def model(self, net: str) -> Any:
        """Made when it is first asked for."""
        if net not in self._models:
            self._models[net] = {"lenet": _LeNet, "resnet": _ResNet}[net](self.device, self.ranks, self._seed)
        return self._models[net]

    def steps(self, net: str, X: HostArray, y: HostArray, steps: int, warm_up: int = 0) -> Tuple[float, float]:
        """``steps`` steps on its part of the batch, after ``warm_up`` others: the mean seconds, and those of Python's
        processor time. Waits."""
        own, model = self.ranks.shard(len(X)), self.model(net)
        X, y, samples = X[own], y[own], len(X)
        for _ in range(warm_up):  # while the other places were measured, this process slept
            model.step(X, y, samples)
        npx.waitall()
        self.ranks.barrier()
        started, python = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            model.step(X, y, samples)
        python = time.thread_time() - python
        npx.waitall()
        return (time.perf_counter() - started) / steps, python / steps

    def stepped(self, net: str, params: Sequence[HostArray], X: HostArray, y: HostArray) -> List[HostArray]:
        """The parameters after a step from ``params``. Waits."""
        model = self.model(net)
        for param, value in zip(model.params, params):
            param[()] = upload(value, self.device)
        self.steps(net, X, y, 1)
        return [param.asnumpy() for param in model.params]

    def sums(self, rounds: int = 3) -> List[Tuple[float, float]]:
        """Bytes, and median seconds of a sum over all processes. Waits."""
        found: List[Tuple[float, float]] = []
        for nbytes in SUMS:
            array, times = mx.nd.zeros((nbytes // 4,), ctx=self.device), []
            for _ in range(1 + rounds):
                npx.waitall()
                self.ranks.barrier()
                started = time.perf_counter()
                self.ranks.sum([array])
                npx.waitall()
                times.append(time.perf_counter() - started)
            found.append((nbytes, statistics.median(times[1:])))
        return found


class _LeNet:
    def __init__(self, device: Any, ranks: Any, seed: int) -> None:
        self.params = get_params(init_lenet(seed, scale=0.1), device)
        self.sizes = [param.size for param in self.params]
        self._step = TrainStep([self.params], [device], LR, GradientSync([self.params], world=ranks))

    def step(self, X: HostArray, y: HostArray, samples: int) -> None:
        """Doesn't wait."""
        self._step(X, y, samples)

    def loss(self, X: NDArray, y: NDArray) -> NDArray:
        """Without a step."""
        return cross_entropy(lenet(X, self.params), y)


class _ResNet:
    def __init__(self, device: Any, ranks: Any, seed: int) -> None:
        onp.random.seed(seed)  # by which gluon's initialisers draw
        self._net, self._device = resnet18(), device
        self._net.initialize(mx.init.Xavier(), ctx=device)
        self._net.hybridize()
        self._net(np.zeros((1, 1, 28, 28), ctx=device))
        npx.waitall()  # a pass that is still running may change the layout of its weights while they are read
        trained = [param for param in self._net.collect_params().values() if param.grad_req != "null"]
        self._trainer = Trainer(self._net.collect_params(), "sgd", {"learning_rate": LR}, world=ranks)
        self.params = [param.data(device) for param in trained]
        self.sizes = [param.size for param in self.params]

    def step(self, X: HostArray, y: HostArray, samples: int) -> None:
        """Doesn't wait."""
        with autograd.record():
            losses = self.loss(upload(X, self._device), upload(y, self._device))
        losses.backward()
        self._trainer.step(samples)

    def loss(self, X: NDArray, y: NDArray) -> NDArray:
        """Without a step."""
        return cross_entropy(self._net(X), y)


class _OneDeviceCrew(Crew):
    """Ranks that have a core each: one that waits for the others asks MPI all the time, and must not do so on their
    core. With ``hosts``: one on each."""

    hosts: Optional[Hosts] = None

    def _start(self, engine: str, size: int, rank: Sequence[str], environ: Mapping[str, str]) -> None:
        command, options = [sys.executable, "-m", "mxdp.launch"], ["-n", str(size), "--silent-after", "0"]
        if self.hosts is None:
            options.append("--mpiexec=-bind-to core")
        else:
            options += self.hosts.options
            command, environ = [*self.hosts.inside, *command], {**self.hosts.environ, **environ}
        self._run([*command, *options, "--", *rank], environ)


class _Places:
    """The processes of all cases, and one device in this process, each made when it is first needed. Processes and
    hosts are gone when this process ends."""

    def __init__(self, settings: Settings) -> None:
        self._stack, self._settings = ExitStack(), settings
        atexit.register(self._stack.close)
        self._crews: Dict[Place, Crew] = {}
        self._links: Dict[Tuple[Place, int], Link] = {}
        self.alone = PredictedRank({**settings, "engine": ONE})

    def crew(self, case: Case) -> Crew:
        """The ranks of ``case``."""
        key = processes, rate, delay = _place(case)
        if key not in self._crews:
            order = {name: self._settings[name] for name in ("kind", "seed")}
            kind = self._on_hosts(rate, delay) if rate else _OneDeviceCrew
            self._crews[key] = self._stack.enter_context(kind(MPI, processes, PredictedRank, order))
        return self._crews[key]

    def link(self, case: Case, number: int) -> Link:
        """What a sum takes between the processes of ``case``, measured once in round ``number``."""
        key = _place(case), number
        if key not in self._links:
            each = self.crew(case).ask("sums")
            self._links[key] = fit_link([max(own) for own in zip(*each)])
        return self._links[key]

    def _on_hosts(self, rate: int, delay: int) -> Type[Crew]:
        """A class of crews on two hosts, whose cable carries ``rate`` Mbit/s and takes ``delay`` ms in each direction.

        Raises:
            Skipped: they, or a slow cable, can't be made here.
        """
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mxdp-predicted-")))
        hosts = self._stack.enter_context(two_hosts(folder))
        self._stack.enter_context(slow_cable(hosts, rate, delay / 1e3))
        return type("HostCrew", (_OneDeviceCrew,), {"hosts": hosts})


def _place(case: Case) -> Place:
    return case.settings["processes"], case.settings["rate"], case.settings["delay"]


@lru_cache(maxsize=1)
def _places(words: str) -> _Places:
    return _Places(json.loads(words))


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """A step from parameters that differ from zero everywhere, against one device that computes the shards one by one,
    in float64; and the processes bit for bit with each other."""
    places, net = _places(json.dumps(settings)), case.settings["net"]
    model, (X, y) = places.alone.model(net), _batch(case.settings["batch"], settings["seed"])
    before = [param.asnumpy() for param in model.params]
    total = [onp.zeros(each.shape) for each in before]
    for own_X, own_y in zip(*(onp.array_split(each, case.settings["processes"]) for each in (X, y))):
        with autograd.record():
            loss = model.loss(upload(own_X, places.alone.device), upload(own_y, places.alone.device))
        loss.backward()
        total = [sum_ + param.grad.asnumpy() for sum_, param in zip(total, model.params)]
    first, *others = places.crew(case).ask("stepped", net, before, X, y)
    for found, start, gradient in zip(first, before, total):
        change = -LR / len(X) * gradient
        yield found, start + change, 1.0, TOLERANCE * largest(change) + 2**-22 * largest(start)
    for other in others:
        for found, expected in zip(other, first):
            yield found.view("u4") != expected.view("u4"), onp.zeros(found.shape), 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps of all processes, then what the prediction takes: steps of one device, and sums."""
    places, own, numbers = _places(json.dumps(settings)), case.settings, itertools.count()
    (X, y), n = _batch(own["batch"], settings["seed"]), own["processes"]
    X_own, y_own = (each[: len(X) // n] for each in (X, y))
    crew = places.crew(case)
    once = max(seconds for seconds, _ in crew.ask("steps", own["net"], X, y, 2))
    steps = max(1, min(MOST, round(settings["at_least"] / once)))
    warm_up = -(-steps // 4)
    places.alone.steps(own["net"], X_own, y_own, 1)

    def one_round() -> Round:
        link = places.link(case, next(numbers))
        seconds = max(each for each, _ in crew.ask("steps", own["net"], X, y, steps, warm_up))
        shard_seconds, python = places.alone.steps(own["net"], X_own, y_own, steps, warm_up)
        sizes = [4 * size for size in places.alone.model(own["net"]).sizes]
        buckets = fill_buckets(sizes, ["float32"] * len(sizes), BUCKET)
        sums = sum(link.seconds(sum(sizes[number] for number in bucket)) for bucket in buckets)
        return Round(seconds, {"shard_seconds": shard_seconds, "python_seconds": python, "sum_seconds": sums})

    return Work([f"cpu(0) of process {rank}" for rank in range(n)], one_round, case={"cores": process.cores()})


def _batch(samples: int, seed: int) -> Tuple[HostArray, HostArray]:
    """Random pictures and labels, on the host."""
    random = onp.random.RandomState(seed)
    return random.uniform(size=(samples, 1, 28, 28)).astype("float32"), random.randint(0, 10, samples).astype("int32")
