from __future__ import annotations

from collections import Counter

import pytest
from drawn import check_drawing, drawing

from mxdp.plans.collective import rings
from mxdp.plans.collective.rings import all_gather, bidirectional_ring, ring
from mxdp.plans.show.contents import contents


def test_the_drawn_ring_of_three():
    check_drawing(rings.__doc__, ring(3))
    assert drawing(rings.__doc__)[1].sends == ["0 -c-> 1", "1 -a-> 2", "2 -b-> 0"]


def test_the_drawn_ring_that_goes_both_ways():
    check_drawing(bidirectional_ring.__doc__, bidirectional_ring(3))


@pytest.mark.parametrize("devices", range(1, 9))
def test_all_gather_leaves_chunk_i_of_device_i_everywhere(devices):
    gathered = {(device, chunk): (chunk,) for device in range(devices) for chunk in range(devices)}
    assert contents(all_gather(devices))[-1] == gathered


@pytest.mark.parametrize("devices", range(3, 9))
def test_both_ways_each_link_carries_one_chunk_a_step(devices):
    """One ring forward and one back, each with half of the vector."""
    for step in bidirectional_ring(devices).steps:
        links = Counter((send.source, send.target) for send in step)
        forward = {(device, (device + 1) % devices) for device in range(devices)}
        assert links == Counter(forward | {(target, source) for source, target in forward})
