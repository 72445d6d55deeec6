from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.errors import UsageError
from mxdp.experiments.data_parallel.account import PARTS
from mxdp.experiments.data_parallel.where_the_time_went import WhereTheTimeWent
from mxdp.experiments.data_parallel.work import where_the_time_went as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row


def rows(rest=(0.01, 0.03)):
    """One device and two, whose second round is the slower one, as in every pair of twelve rounds."""
    rest = [*rest] * 6
    return [
        Row(
            f"{n} devices",
            {"devices": [f"cpu({rank})" for rank in range(n)], "sync": "buckets"},
            samples=[4.0 / n, 9.0 / n] * 6,
            rounds={**{name: [0.0] * 12 for name in PARTS}, "compute": [1 - each for each in rest], "rest": rest},
        )
        for n in (1, 2)
    ]


def test_its_timelines(timelines):
    assert timelines("where-the-time-went") == 3


def test_the_shares_of_a_row_add_up_to_one(measured):
    _, result = measured("where-the-time-went")
    for row in result["rows"]:
        assert sum(row.metrics[name] for name in PARTS) == pytest.approx(1)
        assert row.metrics["rest_most"] == max(row.rounds["rest"])
    assert [row.case["sync"] for row in result["rows"]] == ["buckets", "buckets", "book"]


@pytest.mark.parametrize(("rest", "holds"), [((0.01, 0.05), True), ((0.01, 0.06), None), ((0.06, 0.07), False)])
def test_it_holds_if_no_round_has_much_that_is_unexplained(rest, holds):
    found = rows(rest)
    WhereTheTimeWent().finish(found, [], {})
    assert claims.judged("rest", WhereTheTimeWent.claims["rest"], found)["holds"] is holds
    middle, most = sum(rest) / 2, max(rest)
    assert WhereTheTimeWent().answer(found, [], {}) == (
        f"On 2 devices {1 - middle:.1%} ({1 - most:.1%} to {1 - min(rest):.1%}) of a training step is compute; the "
        f"next largest part, unexplained, takes {middle:.1%} ({min(rest):.1%} to {most:.1%})."
    )
    said = WhereTheTimeWent().explanation(found, [], {})
    assert said == f"At most {most:.1%} of any round is unexplained."
    assert found[1].estimate("speedup") == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(("share", "told"), [(0.61, True), (0.94, True), (0.95, False)])
def test_compute_without_a_processor_is_told(share, told):
    found = rows()
    for row in found:
        row.rounds["on_processor"] = [share] * 12
    WhereTheTimeWent().finish(found, [], {})
    text = f"had a processor for {share:.0%} ({share:.0%} to {share:.0%}) of their working time"
    assert (text in WhereTheTimeWent().explanation(found, [], {})) is told


def test_more_devices_than_the_profiler_can_follow_are_refused(monkeypatch):

    monkeypatch.setattr(work, "can_record", lambda devices: False)
    settings = {**WhereTheTimeWent.presets["quick"], "kind": "cpu"}
    with pytest.raises(UsageError, match="can't follow 2 CPU devices on this machine: ask for fewer"):
        work.set_up(WhereTheTimeWent().cases(settings)[1], settings)


def test_the_picture_writes_the_numbers_in_plain_words():
    found = rows(rest=(0.2, 0.2))
    for row in found:
        row.rounds.update(exposed_communication=[0.01] * 12, compute=[0.79] * 12)
    WhereTheTimeWent().finish(found, [], {})
    figure = Figure(layout="constrained")
    WhereTheTimeWent().draw({"rows": found}, figure)
    texts = [text.get_text().replace("\N{NO-BREAK SPACE}", " ") for text in figure.axes[0].texts]
    shares = "compute 79.0% · unexplained 20.0% · all-reduce waited for 1.0%"
    assert texts == ["5,135", "1,300", "1 devices", "6,500 ms", shares, "2,568", "650", "2 devices", "3,250 ms", shares]
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(named) == len(set(named)) == len(PARTS)
    assert not {"hidden", "exposed"} & set(named)
