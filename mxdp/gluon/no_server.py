"""What mxdp's stores have no server for."""

from __future__ import annotations

from functools import partialmethod
from typing import Any, NoReturn

from mxdp.backend import mx


class NoServer(mx.kv.KVStoreBase):  # type: ignore[misc]
    """The methods of MXNet's stores that mxdp's stores lack. Each raises an error that names an alternative."""

    def _refuse(self, what: str, instead: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"the store {self.type} {what}: {instead}.")

    set_optimizer = partialmethod(_refuse, "runs no optimiser", "leave update_on_kvstore out")
    save_optimizer_states = partialmethod(_refuse, "runs no optimiser", "save the states by the trainer's save_states")
    load_optimizer_states = partialmethod(_refuse, "runs no optimiser", "load the states by the trainer's load_states")

    def set_gradient_compression(self, compression_params: Any) -> NoReturn:
        """Refused."""
        self._refuse(
            f"sums gradients as they are and compresses none ({compression_params=!r})",
            "leave compression_params out, or use MXNet's 'device' store",
        )

    init = partialmethod(_refuse, "keeps no values", "use broadcast")
    push = partialmethod(_refuse, "keeps no values to push to", "use pushpull")
    pull = partialmethod(_refuse, "keeps no values to pull", "use pushpull or broadcast")
    row_sparse_pull = partialmethod(
        _refuse, "holds dense arrays only", "use MXNet's 'device' store for sparse parameters"
    )
