from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.layers.column_row import COLUMNS, OWN, ROWS, WHOLE, cut_layers, segments

nets = st.lists(st.booleans(), max_size=12)


@given(weights=nets)
def test_columns_and_rows_take_turns_and_what_is_between_keeps_their_cut(weights):
    last = ROWS
    for weighted, cut in zip(weights, cut_layers(weights)):
        if weighted:
            assert cut == (COLUMNS if last == ROWS else ROWS)
            last = cut
        else:
            assert cut == (OWN if last == COLUMNS else WHOLE)


@given(weights=nets, data=st.data())
def test_segments_are_all_layers_in_order_and_end_whole(weights, data):
    cuts = cut_layers(weights)
    back = data.draw(st.lists(st.booleans(), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    parts = segments(cuts, back)
    assert [layer for segment in parts for layer in segment.layers] == list(range(len(cuts)))
    assert not parts[-1].split
    assert sum(segment.then == "all-reduce" for segment in parts) == sum(weights) // 2
    assert sum(segment.then == "all-gather" for segment in parts) == sum(weights) % 2
    for segment in parts:
        assert segment.back == back[segment.layers[0] if segment.layers else -1]
        inside = [cuts[layer] for layer in segment.layers]
        assert segment.split == (COLUMNS in inside)
        if segment.split:
            assert inside[0] == COLUMNS
            assert (segment.then == "all-reduce") == (inside[-1] == ROWS)
            assert set(inside[1:-1]) <= {OWN}
        else:
            assert set(inside) <= {WHOLE}
