#!/bin/sh
# Let MXNet's wheel for Linux on aarch64 be imported by this PYTHON. The wheel was linked with Arm's Performance Libraries,
# which it lacks, and looks for them in its own folder first. OpenBLAS and LAPACKE have all functions that it calls.
#
#   tools/aarch64.sh PYTHON
set -eu

python=$1
place=$("$python" -c 'import importlib.util as u; print(u.find_spec("mxnet").submodule_search_locations[0])')

# link NAME FILE: give the system's FILE the NAME that the wheel asks for.
link() {
    for folder in /usr/lib/aarch64-linux-gnu /lib/aarch64-linux-gnu /usr/lib64 /usr/lib; do
        if [ -e "$folder/$2" ]; then
            ln -sf "$folder/$2" "$place/$1"
            return
        fi
    done
    echo "mxdp: MXNet can't be imported without $2: on Debian and Ubuntu, apt-get install libopenblas0 liblapacke;" \
        "then tools/aarch64.sh $python" >&2
}

link libarmpl_lp64_mp.so libopenblas.so.0
link libamath.so liblapacke.so.3
link libastring.so libm.so.6 # its functions are libc's; any library will do
