"""The checksums by which ranks notice that they have other parameters."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mxdp.backend import host_view, mx, npx
from mxdp.collectives.checksums import Checksums

KINDS = st.tuples(st.sampled_from(["float16", "float32", "float64"]), st.integers(0, 9))


@settings(max_examples=40)
@given(kinds=st.lists(KINDS, min_size=1, max_size=11), data=st.data())
def test_a_change_of_any_element_changes_its_parameters_checksum_alone(kinds, data):
    """Of the second or third of four ranks. (Squares are summed: a change of the sign alone is not noticed.)"""
    sized = [number for number, (_, size) in enumerate(kinds) if size]
    assume(sized)
    params = [mx.nd.arange(1, size + 1, dtype=dtype) if size else mx.nd.zeros((0,)) for dtype, size in kinds]
    checksums = Checksums(params)

    def told():
        checksums.push()
        npx.waitall()
        return b"".join(host_view(array).tobytes() for array in checksums.arrays)

    before, number = told(), data.draw(st.sampled_from(sized))
    place = data.draw(st.integers(0, kinds[number][1] - 1))
    params[number][place] = data.draw(st.sampled_from([0, -20, 20.5]))
    assert sorted(checksums.numbers) == sized
    assert checksums.differing([before] * 4) == []
    ranks = [before] * 4
    ranks[data.draw(st.integers(0, 3))] = told()
    assert checksums.differing(ranks) == [number]
