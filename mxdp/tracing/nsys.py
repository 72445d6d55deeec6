"""The same experiment under NVIDIA's own profiler, which sees the kernels behind MXNet's operators."""

from __future__ import annotations

import shlex
from typing import Sequence


def nsys_command(name: str, arguments: Sequence[str] = (), output: str = "") -> str:
    """The command line that runs experiment ``name`` under Nsight Systems, as text for a shell; it runs nothing.

    ``arguments``: more of them for ``python -m mxdp.experiments run NAME``. ``output``: the report's name, by default
    the experiment's; ``nsys-ui`` opens it. CUDA calls, kernels and copies, cuDNN, cuBLAS and the system's waits are
    recorded, child processes too. MXNet's operators are named in it where its build has NVTX and its profiler runs.
    Not run on a GPU. Source: the User Guide of Nsight Systems, "CLI profile command switch options".
    """
    command = ["nsys", "profile", "--trace=cuda,cudnn,cublas,nvtx,osrt", "--sample=none", "--force-overwrite=true"]
    command += [f"--output={output or name}", "python", "-m", "mxdp.experiments", "run", name, *arguments]
    return " ".join(map(shlex.quote, command))
