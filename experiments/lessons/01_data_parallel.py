# %% [markdown]
# # One network, two devices
#
# The chapter "Training on Multiple GPUs" of *Dive into Deep Learning*, piece by piece, on devices that every laptop
# has: MXNet's contexts `cpu(0)` and `cpu(1)`, each with a worker thread of its own. Run the cells in order, in an
# editor that supports `# %%` cells, or all at once: `python experiments/lessons/01_data_parallel.py`.
#
# All functions of this lesson are in one file, `mxdp/scratch.py`. Read it beside the cells.
#
# Import `mxdp` first: it sets up the process before MXNet is loaded.

# %%
import mxdp
from mxdp.backend import np
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.plans.collective.rings import ring
from mxdp.scratch import naive_allreduce, ring_allreduce

devices = mxdp.devices(2)
print(devices)

# %% [markdown]
# ## Parameters on each device
#
# A replica is a full copy of the parameters, with a gradient attached to each. Here is the first layer's bias on the
# second device. Its gradient starts at zero.

# %%
params = mxdp.init_lenet(seed=0)
device_params = [mxdp.get_params(params, device) for device in devices]
bias = device_params[1][1]
print("bias:", bias[:5], "on", bias.ctx)
print("gradient:", bias.grad[:5])
print("replicas in sync:", mxdp.in_sync(device_params))

# %% [markdown]
# ## All-reduce
#
# Before, each device has numbers of its own. Afterwards each device has the sum, in the same array. The book's
# all-reduce sends everything to device 0 and back. In a ring, each device sends only to its right neighbour.

# %%
for allreduce in (naive_allreduce, ring_allreduce):
    data = [np.ones((1, 2), ctx=device) * (i + 1) for i, device in enumerate(devices)]
    print("before:", *data)
    allreduce(data)
    print("after: ", *data, allreduce.__name__)

# %% [markdown]
# Both are loops over arrays. `mxdp.allreduce` computes the same sums by a plan, which you can print before anything
# runs: who sends what to whom. `+>` adds the chunk that arrives, `->` overwrites with it.

# %%
print(ring(2))
mxdp.allreduce(data, algorithm="ring")
print("after another all-reduce:", *data)

# %% [markdown]
# ## A minibatch in two shards
#
# Five samples on two devices: three and two. No sample is dropped, and the result is still exact, since gradients are
# summed over all shards and divided once, by the size of the whole batch.

# %%
for shard in mxdp.split_and_load(np.arange(10).reshape(5, 2), devices):
    print(shard.shape, "on", shard.ctx)

# %% [markdown]
# ## One step
#
# `train_batch` splits the batch, runs forward and backward on both devices, sums every gradient by an all-reduce, and
# takes the same SGD step on both devices. Afterwards the replicas are equal, bit for bit.

# %%
dataset = mxdp.load("digits")
X, y = dataset.train.X[:128], dataset.train.y[:128]
losses = mxdp.train_batch(X, y, device_params, devices, lr=0.2)
print("mean loss of each shard:", [float(loss.mean()) for loss in losses])
print("replicas in sync:", mxdp.in_sync(device_params))

# %% [markdown]
# ## How long does it take?
#
# MXNet returns before it has computed, so a time needs a fence: `Benchmark` waits for all devices before it starts and
# before it stops. Two numbers are only a first look. For a measurement, with alternating rounds and a comparison with
# the best possible on this machine: `python -m mxdp.experiments run epochs`. It ends with an account that adds up: of
# the two-fold speed-up that two devices could give, how much is lost to the machine, to slower compute, to the
# all-reduce, to waiting, to Python and to the input.

# %%
for n in (1, 2):
    some = mxdp.devices(n)
    replicas = [mxdp.get_params(params, device) for device in some]
    mxdp.train_batch(X, y, replicas, some, lr=0.2)
    with mxdp.Benchmark(f"20 steps on {n} device(s)"):
        for _ in range(20):
            mxdp.train_batch(X, y, replicas, some, lr=0.2)

# %% [markdown]
# ## Evaluate on all devices
#
# The exercise asks for the accuracy on all devices. Each device counts the right answers of its shard. Counts may be
# added up; accuracies of uneven shards may not be averaged. `python -m mxdp.experiments run parallel-evaluation`
# compares the time with one device's.

# %%
print("accuracy on one device: ", mxdp.evaluate(dataset.test, device_params[:1]))
print("accuracy on two devices:", mxdp.evaluate(dataset.test, device_params))

# %% [markdown]
# ## Devices of different speed
#
# With equal shards the fast device waits for the slow one at each all-reduce. Shards in proportion to the speeds end at
# the same time, and the sums of gradients are the same. `python -m mxdp.experiments run uneven` slows a device down.

# %%
for shard in mxdp.split_and_load(X, mxdp.devices(2), weights=[2, 1]):
    print(len(shard), "samples on", shard.ctx)

# %% [markdown]
# ## When does it pay?
#
# A second device takes over half of the compute, and brings an all-reduce. So it pays with few parameters, much compute
# a sample, and a large batch. `python -m mxdp.experiments run break-even` draws a map of it, predicted and measured;
# `resnet` trains the book's larger network through gluon. A larger batch also makes fewer updates:
# `python -m mxdp.experiments run batch-scaling` tries three rules for the learning rate.

# %% [markdown]
# ## The optimiser's state
#
# With momentum each device holds as many more numbers as there are parameters, and all devices hold the same ones. So
# cut them: a device holds the momentum of its share, updates its share, and sends it to the others. The all-reduce
# becomes a reduce-scatter before the update and an all-gather after it, and moves as many bytes.
# `python -m mxdp.experiments run sharded-optimizer` measures memory and time.

# %%
history = mxdp.train(2, 16, 0.05, 1, data="digits", kind="cpu", momentum=0.9, shard_optimizer=True)

# %% [markdown]
# ## Batch normalisation
#
# In a batch normalisation a sample's result depends on the others of its batch. So with each device's own statistics
# two devices don't train what one does: below, each shard has mean 0, and the batch in one piece has other results.
# `mxdp.parallel.batch_norm.SyncBatchNorm` takes the statistics of the whole batch, by one exchange forward and one
# backward. `python -m mxdp.experiments run batch-norm` measures what either way changes and costs, and which running
# statistics to save.

# %%
x = np.arange(6.0).reshape(6, 1)
shards, ones, zeros = mxdp.split_and_load(x, devices), np.ones(1), np.zeros(1)
arrays = [[mxdp.get_params([each], device)[0] for device in devices] for each in (ones, zeros, zeros, ones)]
for shard in shards:
    print("own statistics:  ", ((shard - shard.mean()) / shard.std()).reshape(-1), "on", shard.ctx)
for y in SyncBatchNorm(*arrays)(shards):
    print("the whole batch's:", y.reshape(-1), "on", y.ctx)

# %% [markdown]
# ## Questions
#
# 1. Set the environment variable `MXNET_CPU_TEMP_COPY=4` (MXNet's default) before you start Python, and run the last
#    cell again. How much faster are two devices now? The experiment `two-jobs` shows why.
# 2. Replace the all-reduce by one that does nothing: `train_batch(..., allreduce=lambda data: None)`. How long do the
#    replicas stay in sync?
# 3. Give `train_batch` another all-reduce: `allreduce=naive_allreduce`. When is the ring faster?
