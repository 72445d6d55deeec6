import contextlib
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from children import printed
from gate import Gate
from whole_numbers import inputs

from mxdp.backend import mx, npx
from mxdp.collectives import AllReduce
from mxdp.collectives import in_place as jobs


@pytest.fixture(autouse=True, scope="module")
def small():
    """All vectors count as large, with pieces of 64 bytes."""
    with patch("mxdp.plans.collective.operations.IN_PLACE_BYTES", 1), patch.object(jobs, "PIECE_BYTES", 64):
        yield


def numbers(devices, size):
    return [array.tolist() for array in inputs(devices, (size,))]


def vectors(devices, size):
    return [mx.nd.array(array, ctx=mx.cpu(rank)) for rank, array in enumerate(inputs(devices, (size,)))]


@pytest.mark.parametrize("rank", [0, 1])
def test_who_reads_before_sees_the_vector_before_the_sum(rank):
    xs = vectors(2, 64)
    run = AllReduce(xs, "shared-memory")
    yes = mx.nd.ones((64,))
    gate = Gate(yes)
    before = mx.nd.where(yes, xs[rank], xs[rank])
    run()
    time.sleep(0.1)
    gate.open()
    assert before.asnumpy().tolist() == numbers(2, 64)[rank]


def wrong_behind(devices, size, rank):
    """How many numbers are not the sum, in the vectors and where others read them behind it, while what is written to
    the vector of ``rank`` is late."""
    xs, aliases, alias = vectors(devices, size), [], jobs.alias
    with patch.object(jobs, "alias", lambda chunk: aliases.append((chunk.ctx, alias(chunk))) or aliases[-1][1]):
        run = AllReduce(xs, "shared-memory")
    gates = [Gate(array) for device, array in aliases if device == mx.cpu(rank)]
    run()
    behind = [x + 0 for x in xs]
    time.sleep(0.2)
    for gate in gates:
        gate.open()
    total = sum(inputs(devices, (size,)))
    return sum(int((x.asnumpy() != total).sum()) for x in [*xs, *behind])


@pytest.mark.parametrize("rank", [0, 1])
def test_who_reads_behind_sees_the_sum(rank):
    assert wrong_behind(2, 64, rank) == 0


WITHOUT_BULKS = """
import sys
from mxdp.backend import mx
from test_in_place import wrong_behind

mx.profiler.set_config(profile_all=True, aggregate_stats=True, filename=sys.argv[1])
mx.profiler.set_state("run")
print(wrong_behind(2, 600000, 0), wrong_behind(3, 600000, 0))
"""


def test_the_engine_knows_the_order_without_a_bulk(tmp_path):
    """MXNet's profiler switches bulks off while it collects aggregate statistics. Two workers keep no order."""
    here = Path(__file__).parent
    options = dict(path=[here, here.parent], arguments=[tmp_path / "profile.json"], MXNET_CPU_WORKER_NTHREADS="2")
    assert printed(WITHOUT_BULKS, **options).split() == ["0", "0"]


@pytest.mark.parametrize("algorithm", ["shared-memory", "ring"])
@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("looked_at", [0, 1])
def test_an_error_on_one_device_is_raised_on_every_device(algorithm, failed, looked_at):
    xs = vectors(2, 64)
    run = AllReduce(xs, algorithm)
    mx.nd.random.normal(0, -1, shape=(64,), ctx=xs[failed].ctx, out=xs[failed])  # no such distribution
    run()
    with pytest.raises(mx.MXNetError, match="has to be positive"):
        xs[looked_at].asnumpy()
    with contextlib.suppress(mx.MXNetError):  # MXNet forgets an error that was raised, but not on all arrays
        npx.waitall()
    for rank, x in enumerate(xs):
        x[:] = mx.nd.array(numbers(2, 64)[rank], ctx=x.ctx)
    run()
    assert [x.asnumpy().tolist() for x in xs] == [sum(inputs(2, (64,))).tolist()] * 2


def test_a_bulk_asks_for_as_many_operators_as_it_has(monkeypatch):
    """MXNet reserves memory for the requested number of operators in every bulk. A job sums 50 numbers in pieces of 16,
    and copies each; a guard for each vector, and what gathers the aliases."""
    asked, bulk = [], mx.engine.bulk
    monkeypatch.setattr(mx.engine, "bulk", lambda size: asked.append(size) or bulk(size))
    AllReduce(vectors(2, 100), "shared-memory")()
    assert asked == [2, 2 * 4, 2 * 4, 2 + 1]
