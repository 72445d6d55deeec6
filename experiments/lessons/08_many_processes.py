# %% [markdown]
# # 8. From one process to many
#
# One process can have several devices. It can't span two machines, and in Python all its devices share one thread that
# pushes their work. So large trainings give each device a process of its own, and the processes send each other their
# gradients. MPI starts such processes, numbers them (*ranks*), and adds up arrays over them.
#
# A program that knows its rank and the number of ranks works alike in one process and in many. This one is alone:

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import mxdp

world = mxdp.world()
print(world, "takes of 10 samples", world.shard(10))

# %% [markdown]
# ## The same program, in two processes
#
# `python -m mxdp.launch -n 2 -- COMMAND` starts the command twice. Each rank trains one replica on its part of every
# batch. After backward the gradients are summed over the ranks, and all make the same step. Rank 0 prints.

# %%
PROGRAM = """
import sys, zlib, mxdp
world = mxdp.world()
data = mxdp.load("synthetic").take(400, 100)
history = mxdp.train(int(sys.argv[1]), 20, 0.3, 3, data=data, world=world, checkpoint=sys.argv[2])
print("checksum", [zlib.crc32(param.asnumpy()) for param in history.device_params[0]][:3])
"""
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
program = folder / "program.py"
program.write_text(PROGRAM)
launch = [sys.executable, "-m", "mxdp.launch", "-n"]
subprocess.run([*launch, "2", "--", sys.executable, program, "1", folder / "two"], check=True)

# %% [markdown]
# The checksums of both ranks are the same. Two devices in one process give them, too: the sum of two gradients has the
# same bits, whoever adds them.

# %%
subprocess.run([sys.executable, program, "2", folder / "one"], check=True)

# %% [markdown]
# ## A rank is lost
#
# `train` leaves a checkpoint after each epoch. In this program the last rank is killed after the first epoch. The
# launcher says which rank failed and at which step, and ends the other one, which would wait for ever. With
# `--restarts 1` it starts both again, and they continue from the checkpoint, to the same checksums.

# %%
KILLED = """
import os, signal, sys, zlib, mxdp
world, begun = mxdp.world(), os.path.isdir(sys.argv[2])
world.barrier()
data = mxdp.load("synthetic").take(400, 100)
history = mxdp.train(1, 20, 0.3, 3 if begun else 1, data=data, world=world, checkpoint=sys.argv[2])
if world.rank == 1 and not begun:
    os.kill(os.getpid(), signal.SIGKILL)
world.barrier()
print("checksum", [zlib.crc32(param.asnumpy()) for param in history.device_params[0]][:3])
"""
program.write_text(KILLED)
subprocess.run([*launch, "2", "--restarts", "1", "--", sys.executable, program, "1", folder / "lost"], check=True)

# %% [markdown]
# ## Try it
#
# `python -m mxdp.experiments run machines loader async-sgd lost-worker predicted`: what does it cost to train in
# several processes, and by which engine? When is one loader for all too slow? What if nobody waits for the others? Who
# notices that a worker is lost? Does one process's time predict several, and hosts with a slow link?
# `python -m mxdp.experiments run less-traffic`: what if they say less, as float16, 2 bits or the largest 1 %?
#
# What would 64 machines give? `python -m mxdp.experiments predict --model resnet50 --machine dlperf-v100 --nodes 64`
# says so from the speed of one GPU; LeNet and ResNet-18 are measured here (`docs/predict.md`). And does it fit?
# `python -m mxdp.experiments predict --memory --parameters 7e9 --devices 8` says what each device must hold.
#
# ## Questions
#
# 1. Two devices in one process and two processes give the same checksums, but three processes other ones. Why?
# 2. Take `--restarts 1` away. What does the launcher print, and what is its exit status?
# 3. One rank has a batch less than the others. What happens in most frameworks, and what here?
#
# Exercise 10 of `experiments/exercises` cuts an optimiser's state into shards, as ranks do.

# %%
temporary.cleanup()
