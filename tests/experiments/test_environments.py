from __future__ import annotations

import pytest

from mxdp.experiments.harness import environments as engines
from mxdp.experiments.harness.children import environment_for
from mxdp.experiments.harness.experiment import Case

OURS = {"MXNET_CPU_TEMP_COPY": "128", "MXNET_CPU_WORKER_NTHREADS": "1", "OMP_NUM_THREADS": "1"}


def test_stock_has_none_of_our_settings_but_the_threads():
    user = {"PATH": "/bin", **OURS, "MXNET_CPU_WORKER_NTHREADS": "3"}
    found = environment_for(Case("stock", environment=engines.STOCK), user)
    assert found == {"PATH": "/bin", "OMP_NUM_THREADS": "1", "MXDP_PREPARE": "0"}


@pytest.mark.parametrize(("devices", "cores", "threads"), [(1, 8, None), (2, 2, None), (2, 4, "1")])
def test_the_defaults_have_one_thread_only_where_a_product_would_hang(monkeypatch, devices, cores, threads):
    monkeypatch.setattr(engines.process, "cores", lambda: cores)
    found = environment_for(Case("book", environment=engines.defaults(devices)), OURS)
    assert found == {"MXDP_PREPARE": "0", **({"OMP_NUM_THREADS": threads} if threads else {})}


@pytest.mark.parametrize("environment", [engines.STOCK, engines.NAIVE, engines.workers(1), engines.workers(2)])
def test_no_engine_has_more_threads_than_one(environment):
    """Two large products at the same time hang for ever with two OpenMP threads or more."""
    assert environment_for(Case("x", environment=environment), {"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "1"


def test_the_users_number_of_workers_gives_way():
    found = environment_for(Case("x", environment=engines.workers(2)), {"MXNET_CPU_WORKER_NTHREADS": "7"})
    assert found["MXNET_CPU_WORKER_NTHREADS"] == found["MXNET_GPU_WORKER_NTHREADS"] == "2"
