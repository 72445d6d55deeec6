"""What each question computes of its rows, found by search: rows get drawn numbers, ``tell`` is called, and each number
that it adds or judges is a quotient, a sum or a difference of others. ``formulas.json`` has a line for each formula,
for people to read: a wrong baseline is seen there. Where none is found, the line has the values of rows drawn with seed
0. After a change that is meant, ``MXDP_GOLDEN=write`` writes it anew, as in ``test_golden``."""

import json
import os
import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as onp
import pytest
from littles import MEASURED
from matplotlib.figure import Figure

from mxdp.experiments.data_parallel import lenet_steps
from mxdp.experiments.lab.module import Settings, discover
from mxdp.experiments.lab.rows import Number, Row
from mxdp.experiments.lab.told import Bars, Told
from mxdp.plans.collective.algorithms import ALGORITHMS

# By these words tools/mutants.py finds that this file tests them:
# mxdp.experiments.allreduce import allreduce, buckets, links, parameter_server
# mxdp.experiments.automatic_parallelism import copy_overlap, graph, memory_guard, mixed_devices, operators, profile
# mxdp.experiments.automatic_parallelism import run_ahead, small_ops, task_graph, two_jobs
# mxdp.experiments.data_parallel import batch_norm, batch_scaling, break_even, epochs, parallel_evaluation, resnet
# mxdp.experiments.data_parallel import scaling, sharded_optimizer, silent_bugs, stock_loop, uneven
# mxdp.experiments.data_parallel import where_the_time_went
# mxdp.experiments.many_processes import async_sgd, less_traffic, loader, lost_worker, machines, peers, predicted
# mxdp.experiments.other_splits import combined, fully_sharded, latency_throughput, layerwise, pipeline, strategies
# mxdp.experiments.other_splits import tiles
# mxdp.experiments.twins import torch_copy_overlap, torch_data_parallel, torch_two_jobs
RUNS = {name: [path for folder in MEASURED for path in folder.glob(f"{name}/*.json")] for name in discover()}
QUESTIONS = {name: one for name, one in discover().items() if RUNS[name]}
GOLDEN = Path(__file__).with_name("formulas.json")
COMMAND = "make golden ARGS='-k formulas'"
SEEDS = 3
"""Others than 0 show what is chosen by the numbers."""
PROCESSES = 15
FORMS = {
    "{} / {}": onp.divide,
    "{} - {}": onp.subtract,
    "|{} - {}|": lambda a, b: abs(a - b),
    "{} + {}": onp.add,
    "max({0} / {1}, {1} / {0})": lambda a, b: onp.maximum(a / b, b / a),
    "1 - {} / {}": lambda a, b: 1 - a / b,
}
SCALED = [*FORMS][:4]
"""Those that may be multiplied by something."""
SHOWN = 12
"""At most so many values are in a line, of rows that are evenly apart."""
MANY = 4
"""Of a setting with more values every second is taken."""
NUMBER = r"\d+(?:[.,]\d+)*"


def alike(own, row):
    """In how much a case is like a measured row: as what, on one or several devices, and in how many settings."""
    case = row["case"]
    several = (case["devices"] > 1) == (own["devices"] > 1)
    return own["reference"] == row["reference"], several, sum(case.get(name) == own[name] for name in own)


def drawn(name, value, random, label):
    """Of such a number, one for each process."""
    if isinstance(value, dict):
        return {entry: drawn(entry, one, random, label) for entry, one in value.items()}
    if not isinstance(value, (int, float)):
        return value
    values = 10 ** (random.uniform(-0.3, 0.3) + random.uniform(-2, 2, PROCESSES))
    if isinstance(value, bool):
        values = values > 0.0125
    if name.endswith("choice"):
        values = values * 1e3 // 1 % len(ALGORITHMS)
    return Number(values.tolist(), label=label)


def cases_of(question, seed):
    """The settings, and a row for each case: it has what the row of the last result has that is most like it."""
    path = max(RUNS[question.name], key=lambda path: path.stem)
    measured = json.loads(path.read_text(encoding="utf-8"))
    s = Settings({**question.preset("full"), **measured["settings"]})
    if s.get("devices", [1]) != [1]:
        s["devices"] = sorted({*s.devices, 3})
    s.update({name: value[::2] for name, value in s.items() if isinstance(value, list) and len(value) > MANY})
    random = onp.random.RandomState(seed)
    rows = []
    labels = set()
    for case in question.cases(s):
        if case.label in labels:
            continue  # of another number of devices, as no result has it
        labels.add(case.label)
        known = dict(devices=case.devices, processes=case.processes, engine=case.engine, **case.settings)
        own = json.loads(json.dumps({**known, "reference": case.reference}))
        like = max(measured["rows"], key=partial(alike, own))
        known.update(like["facts"], cores=2 + seed % 2, device_names=like["devices"], oracle=like["oracle"])
        for name, value in like["processes"][0].items():
            known[name] = drawn(name, value, random, case.label)
        rows.append((case, Row(case.label, case.reference, known)))
    return s, rows


def numbers_of(row, *names):
    """Its numbers, or those of these names, and those in its dicts."""
    every = {}
    for name, value in vars(row).items():
        every.update(entries(name, value))
    return {
        name: onp.array(value.values)
        for name, value in every.items()
        if isinstance(value, Number) and None not in value.values and (name in names or not names)
    }


class Search:
    """Finds formulas in the numbers of all rows, as they are before ``tell``."""

    def __init__(self, cases):
        self.rows = [row for _, row in cases]
        self.before = {row.label: {**vars(row)} for row in self.rows}
        self.raw = {row.label: numbers_of(row) for row in self.rows}
        settings = dict.fromkeys(name for case, _ in cases for name in case.settings)
        self.settings = ["devices", "processes", "engine", *settings, "reference"]
        self.everywhere = [(name, label) for label, own in self.raw.items() for name in own]
        self.values = onp.array([values for own in self.raw.values() for values in own.values()])

    def of(self, name, label, here):
        """A number's name; of another row with what that row has otherwise."""
        if label == here:
            return name
        one, other = self.before[here], self.before[label]
        unlike = [f"{key}={other.get(key)}" for key in self.settings if one.get(key) != other.get(key)]
        return f"{name} of ({', '.join(unlike)})"

    def find(self, number, names):
        """The formula of this number, of a row that has those of these names, the ones to prefer first; or None."""
        values, label = onp.array(number.values), number.label
        if onp.ptp(values) <= 1e-12 * abs(values[0]):
            return short(number)
        one = ([("1", label)], onp.ones((1, PROCESSES)))
        own = ([("1", label), *((name, label) for name in names)], onp.array([one[1][0], *names.values()]))
        every = (self.everywhere, self.values)
        for form, function in FORMS.items():
            for left, right in ((own, one), (own, own), (own, every), (every, own)):
                with onp.errstate(all="ignore"):
                    factors = values / function(left[1][:, None], right[1])
                    fits = (factors[..., 0] > 0) & (onp.ptp(factors, axis=-1) < 1e-9 * factors[..., 0])
                for at in map(tuple, onp.argwhere(fits)):
                    factor = f"{factors[at][0]:.4g}"
                    scale = "" if factor == "1" else f" x {factor}"
                    if not scale or form in SCALED:
                        words = [self.of(*side[0][index], label) for side, index in zip((left, right), at)]
                        return re.sub(r" / 1$", "", form.format(*words)) + scale
        return None

    def lines(self, found):
        """One for each formula: ``found`` has pairs of one and a row's label."""
        rows = {}
        for formula, label in found:
            rows.setdefault(formula, []).append(label)
        for formula, labels in rows.items():
            others = [row.label for row in self.rows if row.label not in labels]
            which = f"all but {'; '.join(others)}" if len(others) < len(labels) else "; ".join(labels)
            yield f"{formula} [{which}]"


def short(value):
    value = value.median if isinstance(value, Number) else value
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def entries(name, value):
    """The parts of a dict, or the value itself, by name."""
    return {f"{name}[{key}]": one for key, one in value.items()} if isinstance(value, dict) else {name: value}


def marks(draw):
    """Of what is drawn: how many lines and boxes, the sums of all their x and y, and the numbers of the texts."""
    axes = Figure().subplots()
    draw(axes)
    boxes = [box.get_path().transformed(box.get_patch_transform()).vertices for box in axes.patches]
    for kind, found in (("lines", [line.get_xydata() for line in axes.lines]), ("boxes", boxes)):
        x, y = onp.nansum(onp.concatenate([onp.empty((0, 2)), *found]), axis=0)
        yield f"{len(found)} {kind} {x:.5g} {y:.5g}"
    yield from re.findall(NUMBER, " ".join(text.get_text() for text in axes.texts))


def formulas(question, seed):
    """The lines of this question that do not depend on the size of what was drawn, and those that do."""
    s, cases = cases_of(question, seed)
    search = Search(cases)
    told = Told(search.rows)
    question.tell(told, s)
    computed, valued = {}, {}
    for row in search.rows:
        names = dict(search.raw[row.label])
        new = [name for name, value in vars(row).items() if search.before[row.label].get(name, ...) is not value]
        for name in new:
            for full, value in entries(name, getattr(row, name)).items():
                formula = isinstance(value, Number) and search.find(value, names)
                if formula:
                    computed.setdefault(full, []).append((formula, row.label))
                else:
                    valued.setdefault(full, []).append((short(value), row.label))
                names.update(numbers_of(row, full))
    lines = [f"{name} = {line}" for name, found in computed.items() for line in search.lines(found)]
    for at, claim in enumerate(told.claims.values(), 1):
        found = []
        for number in claim.numbers:
            row = next(row for row in search.rows if row.label == number.label)
            names = dict(reversed(list(numbers_of(row).items())))
            found.append((search.find(number, names) or short(number), row.label))
        bound = f"{'>=' if claim.least else '<='} {claim.bound:g}{', exactly' * claim.exact}"
        lines += [f"claim {at}: {line}: {bound}" for line in search.lines(found)]
    for column in told.columns:
        lines.append(f"column {column.heading!r}: {column.name} x {column.scale:g} {column.unit}")
    for panel in told.panels:
        if isinstance(panel, Bars):
            lines.append(f"bars: {panel.name} x {panel.scale:g} {panel.unit}")
    sizes = [f"picture: {', '.join(marks(panel.draw))}" for panel in told.panels if not isinstance(panel, Bars)]
    for name, known in valued.items():
        words = [f"{value} ({label})" for value, label in known][:: -(-len(known) // SHOWN)]
        if not any(re.match(r"-?\d", value) for value, _ in known):
            words = [f"{value} x {count}" for value, count in Counter(value for value, _ in known).items()]
        sizes.append(f"{name}: {', '.join(words)}")
    for name, text in (("answer", told.sentence), ("explanation", told.explanation)):
        sizes.append(f"{name}: {', '.join(re.findall(NUMBER, text))}")
    for cores in (1, 4):
        sizes.append(f"expected on {cores} cores: {', '.join(re.findall(NUMBER, question.expect(s, cores)))}")
    return lines, sizes


def found(question):
    """All lines of a question: of seed 0, and those by which other seeds differ from it."""
    lines, sizes = formulas(question, 0)
    for seed in range(1, SEEDS):
        sizes += [f"seed {seed}: {line}" for line in formulas(question, seed)[0] if line not in lines]
    return [line.strip() for line in lines + sizes]


@pytest.fixture(scope="module")
def golden():
    if os.environ.get("MXDP_GOLDEN") == "write":
        text = json.dumps({name: found(one) for name, one in QUESTIONS.items()}, indent=0, ensure_ascii=False)
        GOLDEN.write_text(text + "\n", encoding="utf-8")
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_computes_what_is_written_down(name, golden):
    assert found(QUESTIONS[name]) == golden.get(name), f"if this is meant: {COMMAND}"
    assert golden.keys() == QUESTIONS.keys()


SPLITS = [name for name, one in QUESTIONS.items() if ".other_splits." in one.module.__name__]


@pytest.mark.parametrize("name", [*SPLITS, "epochs"])
def test_what_a_machine_does_not_measure_is_told_of_without(name):
    """MXNet counts no bytes of some devices, and its profiler may have no events."""
    s, cases = cases_of(QUESTIONS[name], 0)
    for _, row in cases:
        for lacking in vars(row).keys() & {*lenet_steps.PARTS, "peak_bytes", "lasting_bytes"}:
            setattr(row, lacking, None)
    told = Told([row for _, row in cases])
    QUESTIONS[name].tell(told, s)
    assert told.sentence


@pytest.mark.parametrize("name", [name for name in SPLITS if name != "fully-sharded"])
def test_what_could_not_be_cut_is_told_of_without(name):
    """All cases that have a setting in common. A pipeline's stages or micro-batches are too many always."""
    settings = ("strategy", "devices", "batch", "stages", "micro_batches", "grid", "label")
    for setting in settings[: -1 if name == "pipeline" else None]:
        for value in {str(row.get(setting)) for _, row in cases_of(QUESTIONS[name], 0)[1] if row.devices > 1}:
            s, cases = cases_of(QUESTIONS[name], 0)
            rows = [row for _, row in cases if row.devices == 1 or str(row.get(setting)) != value]
            told = Told(rows)
            QUESTIONS[name].tell(told, s)
            said = " ".join([told.sentence, told.explanation, *told.notes])
            assert told.columns
            assert not re.search(r"\b(None|nan|inf)\b", said), (setting, value)
