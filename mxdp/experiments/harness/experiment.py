"""What an experiment is, and how it is found.

An experiment is one question. It has a file in a room of ``mxdp/experiments/`` and registers itself with
:func:`experiment`; there is no list to edit. Its methods run in two places:

====================  ==========================================================================================
in the parent         ``cases`` (what to compare), ``predict`` (before a number exists), ``finish`` (numbers that
                      need several rows, and what the claims are about), ``answer``, ``columns``, ``answering`` and
                      ``draw`` (from the JSON alone)
in a child process    ``oracle`` and ``set_up``. By default they are the functions of these names in the module of
                      the same name in the folder ``work`` beside the file.
====================  ==========================================================================================

The file of the question imports neither MXNet nor anything that does, since ``list`` imports all of them. Its work
imports MXNet at the top. A teacher's own experiment may be one file that overrides ``oracle`` and ``set_up`` and
imports MXNet inside them.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.harness.schema import NAME

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Skipped(Exception):
    """Raised by ``oracle`` or ``set_up`` where this machine can't do the case: what is missing, and what to do."""


Result = Dict[str, Any]
Settings = Dict[str, Any]

NO_ROOMS = ("harness", "measure", "predict", "report")
"""Folders of ``mxdp/experiments/`` that hold no experiments."""
EXTRA_MODULES = "MXDP_EXPERIMENTS"
"""Environment variable: names of further modules (comma-separated) that register experiments, for a teacher's own."""


@dataclass(frozen=True)
class Case:
    """One configuration, which becomes one row. It has a child process of its own, or ``processes`` of them that work
    at the same time, or shares one with other cases (see :attr:`Experiment.together`).

    ``settings`` is what distinguishes this case; it goes into the row's ``case``, with the names of the devices.
    ``environment`` changes the user's environment; ``None`` removes a variable. A ``reference`` is a yardstick, such as
    a ceiling: it is measured alternately with the others and listed apart from the rows. ``needs`` is as
    :attr:`Experiment.needs`; without a module the case alone is skipped, and the answer says so.
    """

    label: str
    devices: int = 1
    processes: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Optional[str]] = field(default_factory=dict)
    reference: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)
    process: int = 0
    """Which of ``processes`` this is; set by the runner."""
    folder: str = ""
    """Where the processes that are started for this case, one after the other, may leave something for the next; empty
    at first, gone at the end. Set by the runner."""


@dataclass(frozen=True)
class Round:
    """One measured round. In the row stands the median of each of ``metrics`` over the rounds (of numbers in a dict,
    each; ``all`` of booleans), and what ``last`` had in the last round."""

    seconds: float
    metrics: Mapping[str, Any] = field(default_factory=dict)
    last: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What ``set_up`` has made ready, warmed up, for one case.

    ``devices``: those it uses. ``round``: does one round. If it returns None, the harness takes its time, between two
    waits for all devices. ``record``: called after the last round, makes ready what is then run once more under MXNet's
    profiler, and returns it; the row gets its timeline. ``case`` goes into the row's ``case``. So does ``shared``, and
    all cases that are set up later have it among their settings: what is measured once and must be the same for all,
    such as a rate that sizes are scaled by.
    """

    devices: Sequence[Any]
    round: Callable[[], Optional[Round]]
    record: Optional[Callable[[], Callable[[], Any]]] = None
    case: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """One column of the table: which number, its heading, and how it is written.

    ``name``: of a metric, of an entry of the row's ``case``, or ``seconds`` (the median); of several names, the first
    that the row has. ``spread``: with its interval, where it was kept in each round. A number is multiplied by
    ``scale``, written by the format ``form`` (default: three significant digits) and followed by ``unit``. A row
    without the number shows a dash.
    """

    name: Union[str, Sequence[str]]
    heading: str
    form: str = ""
    scale: float = 1.0
    unit: str = ""
    spread: bool = False


class Experiment:
    """Subclass, fill in, and decorate with :func:`experiment`."""

    name: ClassVar[str]
    question: ClassVar[str]
    source: ClassVar[str]
    how_to_read: ClassVar[str]
    tour: ClassVar[bool] = False
    together: ClassVar[bool] = False
    """True: cases of equal ``environment`` and one process share one child process, for many cases that work for
    milliseconds each.

    Loading MXNet costs half a second and 200 MB a child. The rounds still alternate case by case, and ``timeout`` still
    counts for each case (the first pays for loading). All cases stay set up until the process ends, so a case must hold
    little memory between its rounds. If a case raises, the others go on. If a case crashes or hangs, unfinished cases
    in the same process fail too.
    """
    needs: ClassVar[Mapping[str, str]] = {}
    """Modules that it needs and mxdp does not, each with the command that installs it. Without one of them the
    experiment is skipped."""
    claims: ClassVar[Mapping[str, Claim]] = {}
    """What it judges, by name; ``finish`` writes the measured numbers. Without claims it has an answer, and no verdict.
    """
    compared: ClassVar[str] = ""
    """What the oracle compares with the serial run, in words."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """``quick`` and ``full``: each a mapping of setting to value, with the same keys. The values declare the settings'
    types; each number, also in a list, must be above 0.

    ``timeout`` (seconds that one case may work in one process) is among them. The harness's own settings
    (:data:`.settings.BUILT_IN`), such as ``rounds``, may be. The common options of the command line (``devices``,
    ``kind``, ``data``, ``data_dir``, ``of``, ``seed``, ``rounds``, ``timeout``) apply to those keys.
    """
    checks: ClassVar[Mapping[str, Tuple[Callable[[Any], bool], str]]] = {}
    """For settings that must meet more: a test of the value, and what is allowed, in words."""
    little: ClassVar[Mapping[str, Any]] = {}
    """In place of ``quick``'s values: settings with which the tests run it in a few seconds."""
    slide_panel: ClassVar[int] = 0
    """Which panel of the picture a slide shows: a slide has room for one. Panels are the figure's axes, in the order in
    which ``draw`` makes them, without colour bars."""

    def cases(self, settings: Settings) -> List[Case]:
        """The configurations to compare, in the order of the rows."""
        raise NotImplementedError

    def predict(self, settings: Settings, cores: int) -> str:
        """What the cost model expects on ``cores`` cores, in words and numbers. Called before anything is measured."""
        raise NotImplementedError

    def oracle(self, case: Case, settings: Settings) -> Iterable[Tuple[Any, ...]]:
        """In the child, before ``set_up``: compute as this case does, and serially. Yields ``(actual, expected,
        tolerance)``, the arguments of :func:`mxdp.experiments.measure.oracle.count_wrong`."""
        answers: Iterable[Tuple[Any, ...]] = self._work().oracle(case, settings)
        return answers

    def set_up(self, case: Case, settings: Settings) -> Work:
        """In the child: make everything ready, and warm up."""
        work: Work = self._work().set_up(case, settings)
        return work

    def _work(self) -> Any:
        return importlib.import_module(self._work_module())

    def _work_module(self) -> str:
        package, _, name = type(self).__module__.rpartition(".")
        return ".".join(filter(None, (package, "work", name)))

    def load(self) -> None:
        """In the child, first: import the work, with MXNet. A file that holds both parts has none."""
        with suppress(ModuleNotFoundError):
            self._work()

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        """In the parent: add, in place, numbers that need several rows, by :meth:`.rows.Row.keep`: those of the claims
        too, one for each round (see :class:`.claims.Claim`). It is called after each look, and with the rows of a file.

        After a failure rows may be missing, and one may have fewer samples than another."""

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        """The answer to the question, if all rows are complete: one sentence to be read aloud, of at most 30 words
        beside its numbers, with at most two numbers and their intervals (:meth:`.rows.Row.estimate`). It says what was
        measured, never whether a claim holds. The report calls it, too, with the rows of a file."""
        raise NotImplementedError

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        """A second paragraph, for what explains the answer: reasons, other rows, advice. Advice is given only where it
        is known to be right (:meth:`.rows.Row.at_most`)."""
        return ""

    def columns(self) -> List[Column]:
        """The columns of the table, after the row's label."""
        raise NotImplementedError

    def more_columns(self) -> List[Column]:
        """Of a second table, for the rows that have such numbers, where one table would be too wide."""
        return []

    def answering(self, rows: List[Row]) -> List[Row]:
        """Of a long table, the rows that answer the question: these are shown first. By default all."""
        return rows

    def draw(self, result: Result, figure: Figure) -> None:
        """Draw a result on an empty matplotlib figure. Without this method the report draws a bar for each row."""


def missing(needs: Mapping[str, str]) -> Optional[str]:
    """The first of these modules that is not installed, and the command that installs it, in words."""
    first = next((name for name in needs if find_spec(name) is None), None)
    return f"{first} is not installed: {needs[first]}" if first else None


_registry: Dict[str, Experiment] = {}
E_ = TypeVar("E_", bound=Type[Experiment])


def experiment(cls: E_) -> E_:
    """Class decorator: registers the experiment under its name."""
    if not NAME.fullmatch(cls.name):
        raise ValueError(f"a file is named after an experiment: {cls.name!r} has other than letters, digits, - and _")
    if cls.name == "all":
        raise ValueError("'all' runs every experiment, so none can be called that: choose another name")
    known = _registry.get(cls.name)
    if known is not None and _address(type(known)) != _address(cls):
        raise ValueError(f"two experiments are called {cls.name!r}: {type(known).__module__} and {cls.__module__}")
    _registry[cls.name] = cls()
    return cls


def _address(cls: Type[Experiment]) -> Tuple[str, str]:
    return cls.__module__, cls.__qualname__


def discover() -> Dict[str, Experiment]:
    """Import every question and every module in ``MXDP_EXPERIMENTS``; experiments by name, sorted."""
    from mxdp import experiments

    for room in pkgutil.iter_modules(experiments.__path__, "mxdp.experiments."):
        if room.ispkg and room.name.split(".")[-1] not in NO_ROOMS:
            for module in pkgutil.iter_modules(importlib.import_module(room.name).__path__, f"{room.name}."):
                if not module.ispkg:
                    importlib.import_module(module.name)
    for name in filter(None, (part.strip() for part in os.environ.get(EXTRA_MODULES, "").split(","))):
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever is wrong in a teacher's file, name the file
            raise UsageError(
                f"{EXTRA_MODULES} names {name!r}, which can't be imported: {type(error).__name__}: {error}"
            ) from error
    return dict(sorted(_registry.items()))


def find(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        UsageError: there is none; the message suggests the nearest name.
    """
    known = discover()
    if name in known:
        return known[name]
    raise UsageError(f"no experiment is called {name!r}; {did_you_mean(name, known)}")
