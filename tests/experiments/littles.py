"""What tests of this folder import. (Several folders have a ``conftest``: only one of them can be imported.)"""

from mxdp.experiments.lab.module import Settings
from mxdp.experiments.lab.settings import COMMON


def little(question, **changes):
    """The settings with which a test runs ``question``, a module or a Question, in a few seconds."""
    given = vars(question)["PRESETS"]["quick"] if "PRESETS" in vars(question) else question.preset("quick")
    quick = {**COMMON["quick"], **given, "processes": 1}
    data = {"data": "synthetic"} if "data" in quick else {}
    return Settings({**quick, **data, **getattr(question, "LITTLE", {}), **changes})
