# On Colab, Kaggle or the like: put the address of mxdp's repository here.
REPOSITORY = ""

import importlib.util
import shutil
import subprocess
import sys

query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
listed = subprocess.run(query, capture_output=True, text=True).stdout if shutil.which(query[0]) else ""
gpus = [line.rsplit(", ", 1) for line in listed.splitlines()]
usable = [name for name, capability in gpus if float(capability) < 9]  # MXNet 1.9.1 has no code for newer ones
if importlib.util.find_spec("mxdp") is None:
    if not REPOSITORY:
        raise SystemExit("mxdp is not installed: set REPOSITORY above to its address, and run this cell again.")
    pip, backend = [sys.executable, "-m", "pip", "install", "--quiet"], "cu112" if usable else "cpu"
    subprocess.run([*pip, f"mxdp[{backend},experiments] @ git+{REPOSITORY}"], check=True)
    subprocess.run([*pip, "--no-deps", "mxnet-cu112==1.9.1" if usable else "mxnet==1.9.1"], check=True)
if usable:
    print(f"GPUs that MXNet 1.9.1 has code for: {', '.join(usable)}. (mxdp was not run on a GPU by its authors.)")
elif gpus:
    print(f"MXNet 1.9.1 has no code for {', '.join(name for name, _ in gpus)}: the lesson runs on CPU devices.")
else:
    print("No GPU was found: the lesson runs on CPU devices, such as cpu(0) and cpu(1).")
