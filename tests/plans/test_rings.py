from __future__ import annotations

from collections import Counter

from drawn import check_drawing
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.collective import rings
from mxdp.plans.collective.rings import all_gather, bidirectional_ring, reduce_scatter, ring
from mxdp.plans.show.contents import contents


def test_the_drawn_rings_of_three():
    check_drawing(rings.__doc__, ring(3))
    check_drawing(bidirectional_ring.__doc__, bidirectional_ring(3))


@given(devices=st.integers(1, 12))
def test_device_i_gets_the_sum_of_chunk_i_and_then_its_chunk_i_is_everywhere(devices):
    complete = tuple(range(devices))
    held = contents(reduce_scatter(devices))[-1]
    assert [place for place, parts in held.items() if parts == complete] == [(each, each) for each in range(devices)]
    gathered = {(device, chunk): (chunk,) for device in range(devices) for chunk in range(devices)}
    assert contents(all_gather(devices))[-1] == gathered


@given(devices=st.integers(3, 12))
def test_both_ways_each_link_carries_one_chunk_a_step(devices):
    """One ring forward and one back, each with half of the vector."""
    for step in bidirectional_ring(devices).steps:
        links = Counter((send.source, send.target) for send in step)
        forward = {(device, (device + 1) % devices) for device in range(devices)}
        assert links == Counter(forward | {(target, source) for source, target in forward})
