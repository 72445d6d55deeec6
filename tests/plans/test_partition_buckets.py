from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.partition import fill_buckets

gradients = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab")), max_size=12)


@given(gradients, st.integers(1, 20))
def test_each_gradient_is_in_one_bucket_of_its_kind_that_has_room(gradients, room):
    nbytes, kinds = [size for size, _ in gradients], [kind for _, kind in gradients]
    buckets = fill_buckets(nbytes, kinds, room)
    assert sorted(number for bucket in buckets for number in bucket) == list(range(len(gradients)))
    for bucket in buckets:
        assert bucket == sorted(bucket, reverse=True)
        assert len({kinds[number] for number in bucket}) == 1
        assert sum(nbytes[number] for number in bucket) <= room or len(bucket) == 1


@given(gradients, st.integers(1, 20))
def test_no_bucket_is_closed_before_it_is_full(gradients, room):
    nbytes, kinds = [size for size, _ in gradients], [kind for _, kind in gradients]
    for kind in set(kinds):
        same = [bucket for bucket in fill_buckets(nbytes, kinds, room) if kinds[bucket[0]] == kind]
        for bucket, following in zip(same, same[1:]):
            assert sum(nbytes[number] for number in bucket) + nbytes[following[0]] > room


def test_one_room_for_all_or_none_for_two():
    assert fill_buckets([1, 1, 1], "aaa", room=3) == [[2, 1, 0]]
    assert fill_buckets([1, 1, 1], "aaa", room=1) == [[2], [1], [0]]
