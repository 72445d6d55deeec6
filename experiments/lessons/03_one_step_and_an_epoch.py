# %% [markdown]
# # 3. A step and an epoch, on one device and on two
#
# The book asks how much faster two GPUs train. Here is why that is hard to say, and how to say it.

# %%
import time

import mxdp
from mxdp.backend import np, npx

devices = mxdp.devices(2)
digits = mxdp.load("digits")
X, y = digits.train.X[:128], digits.train.y[:128]
params = mxdp.init_lenet(seed=0)

# %% [markdown]
# ## Is it right? One step, before any time
#
# Train one step on one device and one on two, from the same start, with the same batch. How far may they differ?

# %%
before, after = [param.asnumpy() for param in params], []
for n in (1, 2):
    some = mxdp.devices(n)
    replicas = [mxdp.get_params(params, device) for device in some]
    mxdp.train_batch(X, y, replicas, some, lr=0.2)
    after.append([param.asnumpy() for param in replicas[0]])
step = max(abs(new - old).max() for new, old in zip(after[0], before))
difference = max(abs(one - two).max() for one, two in zip(*after))
print(f"the largest update is {step:.0e}, and one device differs from two by at most {difference:.0e}, by rounding")

# %% [markdown]
# ## A time needs a fence
#
# Python only pushes work; MXNet computes later. Which of the two times below is the product's?

# %%
x = np.ones((500, 500)) * 1e-3
np.dot(x, x).wait_to_read()
started = time.perf_counter()
product = np.dot(x, x)
pushed = time.perf_counter() - started
npx.waitall()
print(f"after the push: {pushed * 1e3:.2f} ms; after waitall: {(time.perf_counter() - started) * 1e3:.2f} ms")

# %% [markdown]
# `mxdp.Benchmark` waits for all devices before it starts and before it stops.
#
# ## Twenty steps
#
# Half of the samples on each device. What is the best ratio that is possible? What could be lost?

# %%
for n in (1, 2):
    some = mxdp.devices(n)
    replicas = [mxdp.get_params(params, device) for device in some]
    mxdp.train_batch(X, y, replicas, some, lr=0.2)  # the first step of a process is slower
    with mxdp.Benchmark(f"20 steps on {n} device(s)"):
        for _ in range(20):
            mxdp.train_batch(X, y, replicas, some, lr=0.2)
print("replicas in sync:", mxdp.in_sync(replicas))

# %% [markdown]
# Run the cell again: the numbers change. Two numbers are a first look and no measurement. For one:
# `python -m mxdp.experiments run epochs` measures the rows in turns, each in a process of its own, and repeats that in
# new processes. It gives intervals, and has a yardstick: two processes that exchange nothing.
#
# ## Epochs
#
# `mxdp.train` is the book's loop, faster: it records the step once and plays it again, and the next batch is copied
# while a step runs. The result stays equal to `train_batch`'s, and two devices must learn as one does. Do they reach
# the same accuracy to the last digit?

# %%
for n in (1, 2):
    print(f"on {n} device(s):")
    larger = mxdp.init_lenet(seed=0, scale=0.1)  # with the book's weights nothing is learned in so few steps
    history = mxdp.train(n, batch_size=16, lr=0.1, num_epochs=2, data=digits, kind="cpu", params=larger)

# %% [markdown]
# ## Evaluate on all devices
#
# Each device counts the right answers of its shard. Counts may be added up; accuracies of uneven shards may not be
# averaged. `python -m mxdp.experiments run parallel-evaluation` has the time.

# %%
print("accuracy on one device: ", mxdp.evaluate(digits.test, history.device_params[:1]))
print("accuracy on two devices:", mxdp.evaluate(digits.test, history.device_params))

# %% [markdown]
# ## Devices of different speed
#
# With equal shards the fast device waits for the slow one at each all-reduce. Shards in proportion to the speeds end at
# the same time (`python -m mxdp.experiments run uneven`). How many of nine samples does a device of twice the speed
# get?

# %%
for shard in mxdp.split_and_load(np.arange(9), devices, weights=[2, 1]):
    print(shard, "on", shard.ctx)

# %% [markdown]
# ## When does it pay?
#
# A second device takes over half of the compute, and brings an all-reduce. So it pays with few parameters, much compute
# a sample, and a large batch. `python -m mxdp.experiments run break-even` predicts it and measures it. A
# larger batch also makes fewer updates: `python -m mxdp.experiments run batch-scaling` tries three rules for the
# learning rate. `python -m mxdp.experiments run scaling` says how much of each further device is lost, and to what.
#
# `python -m mxdp.experiments run stock-loop peers` compares with the book's loop as it stands, and with PyTorch.
#
# ## Questions
#
# 1. Time the 20 steps with a batch of 16 instead of 128. Do two devices still pay? Why not?
# 2. Set the environment variable `MXNET_CPU_TEMP_COPY=4` (MXNet's default) before you start Python, and time them
#    again. `python -m mxdp.experiments run two-jobs` shows what happens.
# 3. Put `npx.waitall()` after each step. What does it cost, on one device and on two?
