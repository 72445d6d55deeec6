from __future__ import annotations

import pytest

from mxdp.backend import mx
from mxdp.errors import UsageError
from mxdp.experiments.automatic_parallelism.small_ops import BOTH, ENVIRONMENTS, SmallOps
from mxdp.experiments.automatic_parallelism.work import small_ops as work
from mxdp.experiments.automatic_parallelism.work.small_ops import BULK, COUNT, Additions
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.harness.settings import resolve
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.measure.timelines import recorded
from mxdp.tracing import Timeline

SIZES = [4, 4096, 1 << 20]
SETTINGS = dict(kind="cpu", seed=0, rounds=2, timeout=60.0, round_seconds=1e-3, sizes=SIZES)
CASES = {case.label: case for case in SmallOps().cases(SETTINGS)}

ONE, TWO = [mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]
WAYS = ("calls", "bulk", "ready", "graph")


def rows(devices=(1.0, 1.0, 0.5), workers=(1.2, 0.7, 0.5)):
    """Rows whose calls take 20 µs and whose ready ones take 5, and these times that side by side."""
    found = []
    for case in CASES.values():
        engine, number = case.settings["engine"], SIZES.index(case.settings["bytes"])
        factor = workers[number] if engine == "2 workers" else 1.0
        metrics = {"ops_per_sec": 50000.0}
        for way, us in (("calls", 20.0), ("bulk", 12.0), ("ready", 5.0), ("graph", 8.0)):
            metrics.update({f"{way}_us": us * factor, f"{way}_push_us": us, f"{way}{BOTH}_us": us * devices[number]})
            if engine == "1 worker":
                metrics[f"{way}_two_devices_over_one"] = devices[number]
        rounds = {name: [value] * 6 for name, value in metrics.items()}
        place = {"devices": ["cpu(0)"], **case.settings}
        found.append(Row(case.label, place, metrics=metrics, rounds=rounds))
    SmallOps().finish(found, [], SETTINGS)
    return found


def held(found):
    return {name: claims.judged(name, claim, found)["holds"] for name, claim in SmallOps.claims.items()}


def test_each_environment_has_its_own_process():
    environments = {case.settings["engine"]: dict(case.environment) for case in CASES.values()}
    assert len(CASES) == len(ENVIRONMENTS) * len(SIZES)
    assert environments["1 worker"]["MXNET_CPU_WORKER_NTHREADS"] == "1"
    assert environments["2 workers"]["MXNET_CPU_WORKER_NTHREADS"] == "2"
    assert environments["no engine"]["MXNET_ENGINE_TYPE"] == "NaiveEngine"
    assert environments["bulk 1"]["MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN"] == "1"
    assert len({tuple(sorted(each.items())) for each in environments.values()}) == len(ENVIRONMENTS)


@pytest.mark.parametrize("engine", ENVIRONMENTS)
def test_the_oracle_compares_every_result_of_every_way(engine):
    assert count(work.oracle(CASES[f"{engine}, 4 KiB"], SETTINGS)) == (len(ENVIRONMENTS[engine][1]) * COUNT * 1024, 0)


def test_of_large_arrays_the_oracle_compares_smaller_ones():
    assert count(work.oracle(CASES["bulk 1, 1 MiB"], SETTINGS)) == (2 * COUNT * (1 << 16), 0)


def test_the_oracle_catches_calls_that_all_write_one_array(monkeypatch):
    prepare = work.prepare
    first = []

    def into_the_first(operator, inputs, out, **more):
        first.append(out)
        return prepare(operator, inputs, first[0], **more)

    monkeypatch.setattr(work, "prepare", into_the_first)
    _, wrong = count(work.oracle(CASES["no engine, 4 bytes"], SETTINGS))
    assert wrong == COUNT  # of 'ready', whose first array holds the last sum


def test_a_round_measures_every_way_on_its_devices(monkeypatch):
    asked = []

    class Made:
        def __init__(self, devices, nbytes, seed):
            self.ways = {way: (way, len(devices), nbytes) for way in ("calls", "bulk", "ready", "graph")}

    def mean_seconds(push, at_least):
        asked.append(push)
        return 30e-6, 60e-6 * len(asked)

    monkeypatch.setattr(work, "Additions", Made)
    monkeypatch.setattr(work, "mean_seconds", mean_seconds)
    ready = work.set_up(CASES["1 worker, 4 KiB"], {**SETTINGS, "sizes": [4, 4096, 1 << 18]})
    assert list(map(str, ready.devices)) == ["cpu(0)", "cpu(1)"]
    first = one_round(ready)
    one = [(way, 1, 4096) for way in ("calls", "bulk", "ready", "graph")]
    assert asked == [*one, ("calls", 2, 4096), ("ready", 2, 4096)]
    assert first.seconds == pytest.approx(60e-6 / COUNT)
    assert first.metrics["calls_us"] == pytest.approx(60 / COUNT)
    assert first.metrics["calls_push_us"] == pytest.approx(30 / COUNT)
    assert first.metrics["ready_two_devices_us"] == pytest.approx(360 / COUNT)
    assert first.metrics["ops_per_sec"] == pytest.approx(COUNT / 60e-6)
    # Each round's own: here 5 / 1 and 6 / 3, then 11 / 7 and 12 / 9.
    assert first.metrics["calls_two_devices_over_one"] == pytest.approx(5.0)
    second = one_round(ready).metrics
    assert second["calls_two_devices_over_one"] == pytest.approx(11 / 7)
    assert second["ready_two_devices_over_one"] == pytest.approx(12 / 9)


@pytest.mark.parametrize(
    ("label", "ways"),
    [
        ("1 worker, 4 bytes", ["calls", "bulk", "ready", "graph", "calls+", "ready+"]),
        ("no engine, 1 MiB", None),
        ("bulk 1, 4 bytes", None),
    ],
)
def test_a_group_in_each_way_is_recorded(label, ways):
    ready = work.set_up(CASES[label], SETTINGS)
    assert (ready.record is not None) is (ways is not None)
    if ways:
        timeline = Timeline.from_json(recorded(ready.record(), ready.devices)["timeline"])
        assert [event.name for event in timeline.events if event.kind == "section"] == ways
        assert sum(event.kind == "compute" for event in timeline.lanes["cpu(1)"]) == COUNT  # half of two groups
        assert timeline.python("section")[-1][1] <= timeline.length


def test_ratios_are_to_one_device_with_one_worker():
    numbers = {row.label: row.metrics for row in rows()}
    assert numbers["1 worker, 1 MiB"]["calls_two_devices_over_one"] == 0.5
    assert numbers["2 workers, 4 KiB"]["ready_two_workers_over_one"] == pytest.approx(0.7)
    assert not [name for name in numbers["no engine, 4 bytes"] if name.endswith("over_one")]


def test_a_failed_engine_leaves_the_others_their_ratios():
    left = [row for row in rows() if row.case["engine"] != "1 worker"]
    for row in left:
        for numbers in (row.metrics, row.rounds):
            for name in [name for name in numbers if name.endswith("over_one") or name in SmallOps.claims]:
                del numbers[name]
    SmallOps().finish(left, [], SETTINGS)
    assert not [name for row in left for name in row.metrics if name.endswith("over_one")]
    assert set(held(left).values()) == {None}


def test_each_way_is_judged_on_its_own_and_on_the_smallest_row():
    found = rows()
    found[0].rounds["calls_two_devices_over_one"] = [0.5] * 6
    SmallOps().finish(found, [], SETTINGS)
    assert [name for name, holds in held(found).items() if holds] == ["calls_two_devices"]
    for name, claim in SmallOps.claims.items():
        (measured,) = claims.judged(name, claim, found)["measured"]
        assert measured["label"].endswith(", 4 bytes")


def test_the_times_with_two_workers_are_compared_round_by_round():
    found = {row.label: row for row in rows()}
    found["1 worker, 4 bytes"].rounds["calls_us"] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    found["2 workers, 4 bytes"].rounds["calls_us"] = [5.0, 10.0, 15.0, 40.0, 25.0, 30.0]
    SmallOps().finish([*found.values()], [], SETTINGS)
    assert found["2 workers, 4 bytes"].rounds["calls_two_workers"] == [0.5, 0.5, 0.5, 1.0, 0.5, 0.5]


@pytest.mark.parametrize("nbytes", [4, 40])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_numpys_sums(way, nbytes):
    assert count(Additions(ONE, nbytes).compared(way)) == (COUNT * nbytes // 4, 0)


@pytest.mark.parametrize("way", ["calls", "bulk", "ready"])
def test_every_second_operator_is_on_the_second_device(way):
    made = Additions(TWO, 40)
    assert count(made.compared(way)) == (COUNT * 10, 0)
    assert [out.ctx for out in made.out] == TWO * (COUNT // 2)


def test_no_two_results_are_alike():
    made = Additions(ONE, 40)
    count(made.compared("ready"))
    assert len({tuple(out.asnumpy()) for out in made.out}) == COUNT


@pytest.mark.parametrize("way", WAYS)
def test_what_was_there_before_does_not_count(way):
    made = Additions(ONE, 40)
    made.ways[way] = lambda: None
    assert count(made.compared(way)) == (COUNT * 10, COUNT * 10)


def test_results_that_change_places_are_found():
    made = Additions(ONE, 40)
    push = made.ways["calls"]

    def swapped():
        push()
        made.out[3], made.out[4] = made.out[4], made.out[3]

    made.ways["calls"] = swapped
    assert count(made.compared("calls")) == (COUNT * 10, 20)


def test_one_wrong_number_is_found():
    made = Additions(ONE, 40)
    push = made.ways["graph"]

    def spoilt():
        push()
        made.out[29][7] += 1

    made.ways["graph"] = spoilt
    assert count(made.compared("graph")) == (COUNT * 10, 1)


def test_a_bulk_has_its_number_of_operators(monkeypatch):
    sizes = []
    bulk = mx.engine.bulk
    monkeypatch.setattr(work.mx.engine, "bulk", lambda size: (sizes.append(size), bulk(size))[1])
    assert count(Additions(ONE, 4).compared("bulk")) == (COUNT, 0)
    assert sizes == [BULK]


def test_ready_calls_do_not_go_through_mxnets_function(monkeypatch):
    made = Additions(ONE, 4)
    monkeypatch.setattr(work.np, "add", None)
    made.ways["ready"]()
    with pytest.raises(TypeError):
        made.ways["calls"]()


@pytest.mark.parametrize("nbytes", [-4, 0, 2, 6, 4.0])
def test_a_size_is_of_whole_float32_numbers(nbytes):
    with pytest.raises(UsageError, match="small-ops: sizes must be "):
        resolve([SmallOps()], "quick", {"sizes": [4, nbytes]})


def test_the_smallest_and_the_largest_arrays_answer():
    rows = [Row("", {"bytes": nbytes}) for nbytes in (4, 64, 4096) * 2]
    assert [row.case["bytes"] for row in SmallOps().answering(rows)] == [4, 4096, 4, 4096]
