#!/bin/sh
# Try the wheel in dist/ in an empty environment, away from the clone: what a user of `pip install` has. PYTHON=... is the
# Python to try it with.
set -eu
CDPATH= cd -- "$(dirname -- "$0")/.."
wheel=$(ls "$(pwd -P)"/dist/mxdp-*.whl)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$PYTHON" -m venv "$folder/venv"
cd "$folder"
python=venv/bin/python
pip() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip "$wheel[cpu]"
# From Python 3.13 on the extra can't name MXNet: see docs/install.md.
pip --no-deps mxnet==1.9.1
"$python" -c "import mxdp; mxdp.Trainer, mxdp.Checkpoint, mxdp.train(2, 100, lr=0.1, num_epochs=1, data='synthetic')"
! "$python" -m mxdp.experiments list 2>/dev/null  # it says which extra it needs
pip "$wheel[experiments]"
"$python" -m mxdp.plans ring 4 >/dev/null
"$python" -m mxdp.plans ring 4 --html >/dev/null
"$python" -m mxdp.exercises copy exercises >/dev/null
"$python" -m mxdp.exercises list >/dev/null
"$python" -m mxdp.experiments list >/dev/null
MXDP_OFFLINE=1 "$python" -m mxdp.scratch --devices 2 --epochs 1
echo "mxdp: $(basename "$wheel") works in an empty environment" >&2
