"""What mxdp's stores have no server for."""

from __future__ import annotations

from typing import Any, NoReturn

from mxdp.backend import mx


class NoServer(mx.kv.KVStoreBase):  # type: ignore[misc]
    """The methods of MXNet's stores that mxdp's stores lack. Each raises an error that names an alternative."""

    def set_optimizer(self, optimizer: Any) -> NoReturn:
        """Refused."""
        self._refuse("runs no optimiser", "leave update_on_kvstore out")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> NoReturn:
        """Refused."""
        self._refuse("runs no optimiser", "save the states by the trainer's save_states")

    def load_optimizer_states(self, fname: str) -> NoReturn:
        """Refused."""
        self._refuse("runs no optimiser", "load the states by the trainer's load_states")

    def set_gradient_compression(self, compression_params: Any) -> NoReturn:
        """Refused."""
        self._refuse(
            f"sums gradients as they are and compresses none (compression_params={compression_params!r})",
            "leave compression_params out, or use MXNet's 'device' store",
        )

    def init(self, key: Any, value: Any) -> NoReturn:
        """Refused."""
        self._refuse("keeps no values", "use broadcast")

    def push(self, key: Any, value: Any, priority: int = 0) -> NoReturn:
        """Refused."""
        self._refuse("keeps no values to push to", "use pushpull")

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> NoReturn:
        """Refused."""
        self._refuse("keeps no values to pull", "use pushpull or broadcast")

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> NoReturn:
        """Refused."""
        self._refuse("holds dense arrays only", "use MXNet's 'device' store for sparse parameters")

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise NotImplementedError(f"the store {self.type} {what}: {instead}.")
