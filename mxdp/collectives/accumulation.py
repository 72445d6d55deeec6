"""Gradients that add up over several backward passes, until the next sum."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, List

_ACCUMULATING: List[Accumulating] = []
"""Objects inside ``no_sync``, kept alive: else Python may free a dead cycle's arrays before the clean-up needs them."""


class Accumulating:
    """What :class:`mxdp.GradientSync` and the gradients of :class:`mxdp.Trainer` have in common: ``no_sync``."""

    def __init__(self) -> None:
        self._held_back = False
        self.accumulating = False
        """True if there are gradients from :meth:`no_sync` that are not summed yet."""

    def _begin_adding(self) -> None:
        """Set the gradients to zero, and let backward add to them."""
        raise NotImplementedError

    def _end_adding(self) -> None:
        """Let backward overwrite the gradients again."""
        raise NotImplementedError

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients: backward passes inside this context, and after it, add up until the next sum.

        For k micro-batches with one all-reduce, run the forward and backward passes of k - 1 inside and of the last one
        after it, then sum. Inside, a sum is refused; nesting has no effect. After an exception, the next backward pass
        overwrites the gradients since the last sum (those that always add up, you set to zero). MXNet 1.9.1 adds
        nothing up for ``astype`` of a parameter: add it to zeros of the other dtype instead.
        """
        outer = self._held_back
        _ACCUMULATING.append(self)
        try:
            if not self.accumulating:
                self._begin_adding()
                self.accumulating = True
            self._held_back = True
            yield
        except BaseException:
            if not outer:
                self.end_accumulating()
            raise
        finally:
            self._held_back = outer
            _ACCUMULATING.remove(self)

    def _check_sum(self) -> None:
        if self._held_back:
            raise RuntimeError(
                "a step or a sum inside no_sync would leave each device with its own gradients: call it after no_sync"
            )

    def end_accumulating(self) -> None:
        """After a sum: let backward overwrite the gradients again."""
        if self.accumulating:
            self._end_adding()
        self.accumulating = False
