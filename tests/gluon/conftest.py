import pytest

from mxdp.backend import npx


@pytest.fixture(params=["numpy", "classic"])
def semantics(request):
    """Gluon with arrays of either kind."""
    if request.param == "classic":
        npx.reset_np()
    yield request.param
    npx.set_np()
