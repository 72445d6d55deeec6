"""What an experiment is, and how it is found.

An experiment is one question. It lives in one file of ``catalog/`` and registers itself with :func:`experiment`; there
is no list to edit. The record is split by *where* its parts run:

====================  ==========================================================================================
in the parent         ``cases`` (what to compare), ``predict`` (before a number exists), ``finish`` (numbers that
                      need several rows), ``verdict``, ``columns`` and ``draw`` (from the JSON alone)
in a child process    ``run`` (set up, then one measured round each time it is resumed) and ``oracle``
====================  ==========================================================================================

A catalog file must be cheap to import: ``list`` imports all of them and may not load MXNet. Import ``mxdp``'s floors
inside ``run`` and ``oracle``.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

from mxdp.errors import UsageError
from mxdp.experiments.harness.results import NAME

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Dict[str, Any]
Result = Dict[str, Any]
Settings = Dict[str, Any]

NO_ROOMS = ("harness", "measure", "report")
"""Folders of ``mxdp/experiments/`` that hold no experiments."""
EXTRA_MODULES = "MXDP_EXPERIMENTS"
"""Environment variable: names of further modules (comma-separated) that register experiments, for a teacher's own."""


@dataclass(frozen=True)
class Case:
    """One configuration: it becomes one row. It has a child process of its own, or ``processes`` of them, resumed
    together, or shares one with other cases (see :attr:`Experiment.together`).

    ``settings`` is what makes this case differ; it goes into the row's ``case``, beside the names of the devices, which
    only the child can know. ``environment`` is laid over the user's environment; ``None`` takes a variable away.
    A ``reference`` is a yardstick (a ceiling, say): measured in turn with the others, listed apart from the rows.
    """

    label: str
    devices: int = 1
    processes: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Optional[str]] = field(default_factory=dict)
    reference: bool = False
    process: int = 0
    """Which of ``processes`` this is; set by the runner."""


@dataclass(frozen=True)
class Ready:
    """What ``run`` yields first, when it has set up and warmed up: the names of the devices it will use.

    ``case`` goes into the row's ``case``. So does ``shared``, and all cases that are set up later have it among their
    settings: what is measured once and must be the same for all, such as a rate that sizes are scaled by.
    """

    devices: Sequence[str]
    case: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """What ``run`` yields after each measured round. ``metrics`` of the last round become the row's."""

    seconds: float
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Oracle:
    """How many numbers were compared with the serial computation, how many differed, and in words what was compared."""

    checked: int
    wrong: int
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """Does the claim hold here? ``None``: this run can't tell. ``text``: a few sentences, with the numbers."""

    holds: Optional[bool]
    text: str


@dataclass(frozen=True)
class Column:
    """One column of the table: its heading, and how a row (with ``case``, ``seconds``, ``metrics``) is written in it.

    A ``cell`` that raises KeyError or TypeError lacks its number, and a dash is shown.
    """

    heading: str
    cell: Callable[[Row], str]


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

    Loading MXNet costs 1.5 s and 200 MB a child. The rounds still take turns case by case, and ``timeout`` still counts
    for each (the first pays for loading). All cases of a child have the same instance of the experiment, which may keep
    on itself what is needed once (a calibration). All stay set up to the end, so ``run`` must hold little memory
    between its rounds. A case that raises leaves the others be; one that hangs or crashes takes those with it that were
    not done.
    """
    needs: ClassVar[Mapping[str, str]] = {}
    """Modules that it imports and mxdp does not require, each with the command that installs it. If one is not there,
    the experiment is skipped."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """``quick`` and ``full``: each a mapping of setting to value, with the same keys.

    ``rounds`` and ``timeout`` (seconds that one case may work) are among them. The common options of the command line
    (``devices``, ``kind``, ``data``, ``data_dir``, ``of``, ``seed``, ``rounds``, ``timeout``) apply to those keys.
    """

    def cases(self, settings: Settings) -> List[Case]:
        """The configurations to compare, in the order of the rows."""
        raise NotImplementedError

    def predict(self, settings: Settings, cores: int) -> str:
        """What the cost model expects on ``cores`` cores, in words and numbers, before anything is measured."""
        raise NotImplementedError

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        """In the child: yield one :class:`Ready`, then one :class:`Round` each time it is resumed."""
        raise NotImplementedError

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        """In the child, before ``run``: compare this case's computation with the serial one."""
        raise NotImplementedError

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        """In the parent: add to ``row["metrics"]``, in place, the numbers that need several rows (a speed-up).

        After a failure rows may be missing, and one may have fewer samples than another."""

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        """In the parent, with all rows complete: what the numbers say about the question."""
        raise NotImplementedError

    def columns(self) -> List[Column]:
        """The columns of the table, after the row's label."""
        raise NotImplementedError

    def draw(self, result: Result, figure: Figure) -> None:
        """Draw the picture of a result, as read back from its JSON, on an empty matplotlib figure."""
        raise NotImplementedError


_registry: Dict[str, Experiment] = {}
E_ = TypeVar("E_", bound=Type[Experiment])


def experiment(cls: E_) -> E_:
    """Class decorator: make the experiment known under its name."""
    if not NAME.fullmatch(cls.name):
        raise ValueError(f"a file is named after an experiment: {cls.name!r} has other than letters, digits, - and _")
    known = _registry.get(cls.name)
    if known is not None and _address(type(known)) != _address(cls):
        raise ValueError(f"two experiments are called {cls.name!r}: {type(known).__module__} and {cls.__module__}")
    _registry[cls.name] = cls()
    return cls


def _address(cls: Type[Experiment]) -> Tuple[str, str]:
    return cls.__module__, cls.__qualname__


def discover() -> Dict[str, Experiment]:
    """Import every file of ``catalog/`` and every module in ``MXDP_EXPERIMENTS``; experiments by name, sorted."""
    from mxdp import experiments

    for room in pkgutil.iter_modules(experiments.__path__, "mxdp.experiments."):
        if room.ispkg and room.name.split(".")[-1] not in NO_ROOMS:
            for module in pkgutil.iter_modules(importlib.import_module(room.name).__path__, f"{room.name}."):
                if not module.ispkg:
                    importlib.import_module(module.name)
    for name in filter(None, (part.strip() for part in os.environ.get(EXTRA_MODULES, "").split(","))):
        try:
            importlib.import_module(name)
        except Exception as error:  # a teacher's file: whatever is wrong in it, say which file it is
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
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}."
    raise UsageError(f"no experiment is called {name!r}; {hint}")
