from __future__ import annotations

import pytest

from mxdp.experiments import environments

USERS = {"PATH": "/bin", "MXNET_CPU_TEMP_COPY": "128", "MXNET_CPU_WORKER_NTHREADS": "7", "OMP_NUM_THREADS": "4"}
STOCK = {"PATH": "/bin", "MXDP_PREPARE": "0"}
ONE = {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("of", "devices", "cores", "expected"),
    [
        # Two large products at the same time hang for ever with two OpenMP threads, which MXNet takes from 4 cores on.
        (environments.defaults, 1, 8, STOCK),
        (environments.defaults, 2, 2, STOCK),
        (environments.defaults, 2, 4, {**STOCK, **ONE}),
        (environments.workers, 2, 2, {**USERS, **ONE, **dict.fromkeys(environments.workers(2), "2"), **ONE}),
    ],
)
def test_what_a_case_of_another_engine_is_started_with(monkeypatch, of, devices, cores, expected):
    monkeypatch.setattr(environments.process, "cores", lambda: cores)
    changed = {**USERS, **of(devices)}
    assert {name: value for name, value in changed.items() if value is not None} == expected
