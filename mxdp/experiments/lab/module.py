"""What a question is, and how it is found.

A question is one module. It lies in a room of ``mxdp/experiments/``, or is named in ``MXDP_EXPERIMENTS``. Its name is
the module's, with ``-`` for ``_``. The first line of its docstring is the question, and the rest says what is known
about the answer. ``CONTRIBUTING.md`` has a whole one. Its functions:

- ``cases(s)`` yields what to compare: a :class:`Case` for each row, in their order.
- ``expect(s, cores)`` returns what the cost model says for this number of cores, before anything is measured.
- ``oracle(case, s)`` computes as the case does, and serially. It yields ``(actual, expected, tolerance)``, arguments of
  :func:`~mxdp.experiments.oracle.count_wrong`.
- ``set_up(case, s)`` makes everything ready, warms up, and returns a :class:`Work`, whose rounds are measured.
- ``tell(t, s)`` gives columns, claims, the answer and pictures (:class:`~mxdp.experiments.lab.told.Told`). It is called
  whenever a result is shown, never when it is measured. In what it and ``expect`` say, a line break counts as a space.

``oracle`` and ``set_up`` run in a process that is started for the case, with its environment; the others run in the
parent, where MXNet is never loaded: the names of :mod:`mxdp.backend` load it at their first use.

Its constants, all optional but ``PRESETS``:

- ``PRESETS``: ``quick``, and ``full`` if it differs: settings, whose values declare their types. Each number must be
  above 0. Every question has those of :data:`COMMON`, too.
- ``LITTLE``: settings, in place of quick's, with which the tests run it in a few seconds.
- ``CHECKS``: further checks: a dict from a setting's name to a pair (a test of the value; what is allowed, in words).
- ``SOURCE``: who answered the question before. ``COMPARED``: what the oracle compares with the serial run, in words.
- ``TOUR``: True if it is part of the tour.
- ``TOGETHER``: True if all cases of one environment share a process, in which they take turns. A process costs half a
  second. If a case raises, the others go on; if it crashes or hangs, they are lost, too.
- ``NEEDS``: modules that mxdp does not need, each with the command that installs it.
"""

from __future__ import annotations

import importlib
import os
import re
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from mxdp.errors import UsageError, described, did_you_mean, without_exit

EXTRA_MODULES = "MXDP_EXPERIMENTS"
"""Environment variable: names of further modules (comma-separated) that are questions, for a teacher's own."""
COMMON: Mapping[str, Mapping[str, Any]] = {
    "quick": dict(processes=None, minutes=1.0, rounds=1, timeout=300.0, seed=0, kind="auto"),
    "full": dict(processes=15, minutes=None, rounds=1, timeout=900.0, seed=0, kind="auto"),
}
"""The presets, with the settings of every question. ``processes``: how many processes of each case are started, one
after the other. ``minutes``: for how many minutes, instead. ``rounds``: of each process. ``timeout``: seconds that one
case may work in one process. ``seed``: of parameters, data and their order. ``kind``: of the devices."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
NEEDED = ("PRESETS", "cases", "expect", "oracle", "set_up", "tell")
DEFAULTS = dict(
    LITTLE={}, CHECKS={}, SOURCE="ours", COMPARED="", TOUR=False, TOGETHER=False, NEEDS={}
)


class Skipped(Exception):
    """Raised by ``oracle`` or ``set_up`` where this machine can't do the case: what is missing, and what to do."""


class Settings(Dict[str, Any]):
    """A question's settings, also as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"there is no setting {name!r}; there are {', '.join(self)}")


class Case:
    """One configuration, which becomes one row.

    Args:
        label: the row's label.
        devices: how many it uses, in each of its processes.
        processes: how many work on it at the same time. Each calls ``oracle``, ``set_up`` and the rounds. A round
            begins in all at the same time, and the slowest decides its time.
        engine: what starts the processes, so that they can exchange something (:mod:`.ranks`).
        environment: changes the user's environment; ``None`` removes a variable.
        reference: True for a yardstick, such as a ceiling, that is listed apart from the rows.
        needs: as ``NEEDS``, of this case: without one of these modules it is skipped, and the result says so.
        settings: what distinguishes this case, as attributes; JSON must be able to hold them.

    Its processes also find in it:

    - ``process``: the number of the process among them, from 0.
    - ``number``: how many times the case was started before.
    - ``draw``: a number that differs from run to run.
    - ``folder``: where they may leave something for later processes. It is gone at the end.
    - ``share(value)``: waits until all processes have made the same call. Returns the values of all (anything that can
      be pickled), in their order.
    """

    process = 0
    number = 0
    draw = 0
    folder = ""

    def __init__(
        self,
        label: str,
        devices: int = 1,
        processes: int = 1,
        engine: str = "",
        environment: Optional[Mapping[str, Optional[str]]] = None,
        reference: bool = False,
        needs: Optional[Mapping[str, str]] = None,
        **settings: Any,
    ) -> None:
        self.label = label
        self.devices = devices
        self.processes = processes
        self.engine = engine
        self.environment = environment or {}
        self.reference = reference
        self.needs = needs or {}
        self.settings = settings
        self.share: Callable[..., List[Any]] = lambda value=None: [value]

    def __getattr__(self, name: str) -> Any:
        # ``settings`` is missing while a Case is copied or unpickled; without the test this would recurse.
        if name != "settings" and name in self.settings:
            return self.settings[name]
        raise AttributeError(f"the case {self.__dict__.get('label')!r} has no {name!r}")

    def get(self, name: str, default: Any = None) -> Any:
        """One of its settings, or ``default``."""
        return self.settings.get(name, default)

    def seeds(self, first: int) -> Iterator[int]:
        """A seed for each of its rounds. All cases, and all processes that work together, get the same seeds. Each
        later start of a case, and each run, gets others."""
        return count((first + 1000 * (1000 * self.draw + self.number)) % 2**31)


class Work:
    """What ``set_up`` has made ready, warmed up, for one case.

    Args:
        round: does one round. If it returns None, the time counts between two waits for all devices, one before and one
            after. It may instead return the seconds, or the seconds and a dict of other measurements. In the row, a
            number has a value for each process. So has each entry of a dict of numbers. Of any other value the row
            keeps the last.
        devices: the devices it uses; by default those of :func:`mxdp.experiments.devices.devices_of`.
        record: True to run a round once more under MXNet's profiler, or a function that is run in its place; the row
            gets its timeline.
        prepare: makes ready what ``record`` needs, after the rounds: in ``set_up`` it would take memory from them.
        facts: what else is known of the case, for the row.
    """

    def __init__(
        self,
        round: Callable[[], Any],
        devices: Optional[Sequence[Any]] = None,
        record: Any = False,
        prepare: Callable[[], Any] = lambda: None,
        **facts: Any,
    ) -> None:
        self.round = round
        self.devices = devices
        self.record: Any = record or None
        if record is True:
            self.record = round
        self.prepare = prepare
        self.facts = facts


class Question:
    """A module, its name, its question, and what it has as attributes."""

    def __init__(self, module: ModuleType) -> None:
        if missing := [name for name in NEEDED if not hasattr(module, name)]:
            raise ValueError(f"{module.__name__} is no question: it has no {', '.join(missing)}")
        self.module = module
        self.name = module.__name__.rpartition(".")[2].replace("_", "-")
        self.question = (module.__doc__ or "").strip().partition("\n")[0]
        if not NAME.fullmatch(self.name) or self.name == "all":
            raise ValueError(
                f"no question can be called {self.name!r}: its files are named after it"
            )

    def __getattr__(self, name: str) -> Any:
        if name in DEFAULTS:
            return getattr(self.module, name, DEFAULTS[name])
        return getattr(self.module, name)

    def preset(self, name: str) -> Dict[str, Any]:
        """The settings of that preset."""
        return changed(COMMON[name], self.PRESETS.get(name) or self.PRESETS["quick"])


def changed(settings: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """``settings``, updated by ``given``. ``minutes`` and ``processes`` exclude each other: if one is given, the other
    becomes None."""
    if "minutes" in given or "processes" in given:
        return {**settings, "minutes": None, "processes": None, **given}
    return {**settings, **given}


def lacking(needs: Mapping[str, str]) -> str:
    """The first of these modules that is not installed, and the command that installs it, in words; or nothing."""
    for name, command in needs.items():
        if find_spec(name) is None:
            return f"{name} is not installed: {command}"
    return ""


def discover() -> Dict[str, Question]:
    """All questions by name, sorted: those in a room, and those in ``MXDP_EXPERIMENTS``."""
    ours = []
    for file in sorted(Path(__file__).parents[1].glob("*/*.py")):
        # A module without ``tell`` is no question but a helper.
        if "\ndef tell(" in file.read_text("utf-8"):
            ours.append(f"mxdp.experiments.{file.parent.name}.{file.stem}")
    others = os.environ.get(EXTRA_MODULES, "").replace(",", " ").split()
    known: Dict[str, Question] = {}
    for name in ours + others:
        try:
            with without_exit():
                question = Question(importlib.import_module(name))
        except Exception as error:  # whatever is wrong in a teacher's file, name the file
            if name in ours:
                raise
            why = f"which can't be used: {described(error)}"
            raise UsageError(f"{EXTRA_MODULES} names {name!r}, {why}") from error
        if question.name in known:
            both = f"{known[question.name].module.__name__} and {name}"
            raise UsageError(
                f"two questions are called {question.name!r}: {both}; rename one of the files"
            )
        known[question.name] = question
    return dict(sorted(known.items()))


def find(name: str) -> Question:
    """The question of that name. Raises a UsageError that suggests the nearest name if there is none."""
    if name not in (known := discover()):
        raise UsageError(f"no experiment is called {name!r}; {did_you_mean(name, known)}")
    return known[name]
