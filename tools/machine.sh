#!/bin/sh
# Print a name for this machine that can be a folder's: the CPU's model and how many cores this process may use.
model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
[ -n "$model" ] || model=$(sysctl -n machdep.cpu.brand_string 2>/dev/null)
[ -n "$model" ] || model=$(uname -m)    # Linux on ARM names no model
cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz" is intel-core-i7-9750h.
model=$(echo "$model" | sed 's/([A-Za-z]*)//g; s/ CPU//; s/ @.*//')
echo "$model $cores cores" | sed 's/[^A-Za-z0-9]\{1,\}/-/g' | tr '[:upper:]' '[:lower:]'
