#!/bin/sh
# On a machine with 16 cores: `scaling` on 1, 2, 4, 8 and 16 CPU devices, and `allreduce` on 8 and 16, in at most 12 minutes.
#
#   tools/sixteen-cores.sh                          nothing else may run meanwhile
#   MOST=2 OUT=/tmp/tried tools/sixteen-cores.sh    the same on two cores, to try it; PROCESSES=1 makes it short
#
# The results go to OUT, by default this machine's folder of committed results of this version. PYTHON is a Python that has mxdp's needs.
# What is not measured within its time is left out, and the result says so.
set -eu
[ $# -eq 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }  # it takes no arguments, only variables
CDPATH= cd -- "$(dirname -- "$0")/.."
MOST=${MOST:-16}
OUT=${OUT:-experiments/reference/$(tools/machine.sh)/$(sed -n 's/^__version__ = "\(.*\)"/\1/p' mxdp/__init__.py)}
devices=1
n=2
while [ "$n" -le "$MOST" ]; do
    devices=$devices,$n
    n=$((2 * n))
done
half=$((MOST / 2))
[ "$half" -gt 1 ] && sums=$half,$MOST || sums=$MOST
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

# measure SECONDS NAME DEVICES: after an interrupt the program writes what it has so far.
measure() {
    timeout --signal INT --kill-after 15 "$1" \
        "${PYTHON:-.venv/bin/python}" -m mxdp.experiments run "$2" --preset experiments/presets/sixteen-cores.toml \
        --kind cpu --devices "$3" ${PROCESSES:+--processes "$PROCESSES"} --out "$OUT" || failed=1
}

failed=0
measure 490 scaling "$devices"
measure 190 allreduce "$sums"
echo "mxdp: the results are in $OUT" >&2
exit "$failed"
