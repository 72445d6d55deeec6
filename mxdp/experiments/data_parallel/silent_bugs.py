"""Which data-parallel bugs go unnoticed?

A bug that raises an error is found. These raise none: the loss falls, and the accuracy rises. Each is a change of a few
lines of the front door, ``mxdp/scratch.py`` (``bugs.py``), trained beside the right version. What would find it: a look
at the accuracy, at replicas that are no longer equal, or a comparison of two steps with the serial run?
"""

from __future__ import annotations

import math
from typing import List, Optional

from mxdp.experiments.data_parallel.bugs import ADAM, BUGS, SGD, of
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import MPI, NEEDS
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style

CLOSE = 0.05
"""An accuracy that is at most so much below the right one's says nothing to somebody who does not know it."""
LAST_BATCH = "last-batch"
PARTS = 4
"""Evaluations of a training."""


@experiment
class SilentBugs(Experiment):
    """LeNet on two devices with a dozen bugs, by SGD and by Adam, and beside each the right version."""

    name = "silent-bugs"
    question = "Which data-parallel bugs go unnoticed?"
    source = "issues of d2l, PyTorch, BytePS, build-nanogpt and MXNet; a source a bug in docs/silent-bugs.md"
    how_to_read = (
        "A round trains from a new seed, equal in all rows. 'Wrong': how many parameters and gradients "
        "are not the serial run's after two steps, on the worst replica. 'In sync': are the replicas equal bit for bit "
        "in the end? "
        "'Accuracy': after the last step. 'Behind': the right version's accuracy less this one's, seed by seed. 'Shown "
        f"after': the first evaluation (of {PARTS}) from which on it is surely more than {CLOSE} behind. Training with "
        "dropout, running statistics, uneven shards or k times the batch has a right version of its own."
    )
    claims = {
        "caught": Claim(
            "Compared with the serial run, two steps give every bug away: at least 1 parameter or gradient is wrong.",
            "the definition: data parallelism is exact",
            1,
            least=True,
            exact=True,
        ),
        "hidden_by_adam": Claim(
            f"Adam hides a wrong scale: gradients that are averaged twice, or not at all, cost at most {CLOSE}.",
            "Kingma and Ba 2015, 2: the step does not change if gradients are scaled",
            CLOSE,
        ),
        "silent": Claim(
            f"At least a third of the bugs end at most {CLOSE} behind the right version, with SGD as with Adam.",
            "ours: what a reader of a loss curve would miss",
            1 / 3,
            least=True,
        ),
        "ended": Claim(
            "A rank that drops its last batch hangs others; mxdp ends the job, within 60 s.",
            "PyTorch 38174 and its like, where it waits for ever; the bound is ours",
            60.0,
        ),
    }
    compared = "parameters and gradients after two steps: right versions equal the serial run, and no bug does"
    together = True
    common = dict(
        devices=[2], kind="auto", data="auto", data_dir=None, seed=0, lr=0.1, rounds=1, batch_size=32, budget=0.0,
    )  # fmt: skip
    # A process takes minutes: no more of them than the pilot has.
    presets = {
        "quick": dict(common, timeout=300.0, samples=640),
        "full": dict(common, timeout=600.0, samples=960),
    }
    little = dict(data="synthetic", samples=64, batch_size=32)

    def cases(self, settings: Settings) -> List[Case]:
        n, cases = max(settings["devices"]), []
        for optimizer in (SGD, ADAM):
            rights = dict.fromkeys(bug.right for bug in BUGS)
            for right in rights:
                same = next(bug for bug in BUGS if bug.right == right)
                own = dict(bug=same.name, right=True, optimizer=optimizer)
                cases.append(Case(f"{right}, {optimizer}", n, settings=own, reference=True))
            for bug in BUGS:
                own = dict(bug=bug.name, right=False, optimizer=optimizer)
                cases.append(Case(f"{bug.name}, {optimizer}", n, settings=own))
        last = dict(bug=LAST_BATCH, right=False, optimizer="")
        # It trains nothing, so it is no row beside the others.
        return [*cases, Case("a rank drops its last batch", n, settings=last, reference=True, needs=NEEDS[MPI])]

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            "Every bug changes the update, so two steps compared with the serial run find it. A wrong scale of the "
            "gradient is another learning rate: Adam does not see it, and SGD may still learn. A device that uses its "
            "own gradients alone still learns, from half of the data."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            right = _right(row, references)
            if right is None:
                continue
            for part in range(PARTS):
                name = f"accuracy_{part}"
                row.keep(f"behind_{part}", [b - a for a, b in zip(row.rounds[name], right.rounds[name])])
            row.keep("behind", row.rounds[f"behind_{PARTS - 1}"])
            row.keep("caught", row.rounds["wrong"])
            near = [row.at_most(f"behind_{part}", CLOSE) is not False for part in range(PARTS)]
            shown = [part for part in range(PARTS) if not any(near[part:])]
            row.metrics["shown_after"] = (shown[0] + 1) * row.case["steps"] if shown else None
            if row.case["optimizer"] == ADAM and row.case["bug"] in ("averaged-twice", "not-divided"):
                row.keep("hidden_by_adam", row.rounds["behind"])
        for optimizer in (SGD, ADAM):
            own = [row for row in find_all(rows, optimizer=optimizer) if "behind" in row.rounds]
            if own:
                close = [[value <= CLOSE for value in row.rounds["behind"]] for row in own]
                own[-1].keep("silent", [sum(each) / len(each) for each in zip(*close)])
        for row in find_all(references, bug=LAST_BATCH):
            row.rounds["ended"] = list(row.samples)

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        known = [row for row in rows if "behind" in row.rounds]
        sgd, adam = (find_all(known, optimizer=optimizer) for optimizer in (SGD, ADAM))
        (close, open_), (close_adam, open_adam) = (
            [sum(row.at_most("behind", CLOSE) is answer for row in own) for answer in (True, None)]
            for own in (sgd, adam)
        )
        return (
            f"Of {len(sgd)} bugs, {close} with SGD and {close_adam} with Adam surely end at most {CLOSE} behind the "
            f"right accuracy ({open_} and {open_adam} are open); two steps compared with the serial run find all."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        hidden = [row for row in rows if "behind" in row.rounds and row.at_most("behind", CLOSE)]
        synced = [row.label for row in hidden if row.metrics["in_sync"]]
        names = sorted({row.case["bug"] for row in hidden})
        ended = find(references, bug=LAST_BATCH)
        said = f" {ended.label.capitalize()}: the job ends after {ended.estimate():.1f} s." if ended else ""
        return (
            f"Surely not seen in the accuracy: {', '.join(names) or 'none'}. {len(synced)} of these {len(hidden)} "
            f"trainings keep the replicas equal, so a comparison of the replicas does not find them either.{said}"
        )

    def columns(self) -> List[Column]:
        return [
            Column("wrong", "wrong", ",.0f"),
            Column("in_sync", "in sync"),
            Column("test_accuracy", "accuracy", ".3f"),
            Column("behind", "behind", "+.3f", spread=True),
            Column("shown_after", "shown after", ".0f", unit=" steps"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """For each bug the accuracy by steps, by SGD and by Adam, beside the right version's, in grey."""
        names = [bug.name for bug in BUGS if find(result["rows"], bug=bug.name)]
        width = 3
        parts = figure.subplots(math.ceil(len(names) / width), width, squeeze=False, sharex=True, sharey=True).ravel()
        for axes, name in zip(parts, names):
            for row in find_all(result["rows"], bug=name):
                right = _right(row, result["references"])
                line = "-" if row.case["optimizer"] == SGD else "--"
                for each, colour in ((right, style.LIGHT_GREY), (row, style.COLOURS[row.case["optimizer"] == ADAM])):
                    if each is not None:
                        steps = [(part + 1) * each.case["steps"] for part in range(PARTS)]
                        axes.plot(
                            steps, [each.metrics[f"accuracy_{part}"] for part in range(PARTS)], line, color=colour
                        )
            axes.set_title(name, size=9)
        for axes in parts[len(names) :]:
            axes.axis("off")
        for axes in parts[len(names) - width : len(names)]:
            axes.set_xlabel("steps")
        parts[0].plot([], [], color=style.LIGHT_GREY, label="right")
        parts[0].plot([], [], color=style.COLOURS[0], label="with SGD")
        parts[0].plot([], [], "--", color=style.COLOURS[1], label="with Adam")
        figure.set_figheight(1.6 * math.ceil(len(names) / width) + 0.8)
        figure.legend(loc="outside lower center", ncols=3)


def _right(row: Row, references: List[Row]) -> Optional[Row]:
    own = find_all(references, optimizer=row.case["optimizer"])
    return next((each for each in own if of(each.case["bug"]).right == of(row.case["bug"]).right), None)
