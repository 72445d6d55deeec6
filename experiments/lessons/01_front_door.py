# %% [markdown]
# # 1. One network, two devices
#
# The chapter "Training on Multiple GPUs" of *Dive into Deep Learning*, piece by piece, on devices that every laptop
# has: MXNet's contexts `cpu(0)` and `cpu(1)`, each with a worker thread of its own. Run the cells in order, in an
# editor that knows `# %%`, or all at once: `python experiments/lessons/01_front_door.py`.
#
# All functions of this lesson are in one file, `mxdp/scratch.py`. Read it beside the cells.
#
# Import `mxdp` first: it sets up the process before MXNet is loaded.

# %%
import mxdp
from mxdp.backend import np
from mxdp.scratch import naive_allreduce

devices = mxdp.devices(2)
print(devices)

# %% [markdown]
# ## Parameters on each device
#
# A replica is a full copy of the parameters, with a gradient attached to each. What will the gradients hold before any
# backward pass?

# %%
params = [np.array([1.0, 2.0]), np.array([0.5])]
device_params = [mxdp.get_params(params, device) for device in devices]
for replica in device_params:
    print("w =", replica[0], "b =", replica[1], "on", replica[0].ctx, " gradients", replica[0].grad, replica[1].grad)
print("replicas in sync:", mxdp.in_sync(device_params))

# %% [markdown]
# ## A minibatch in shards
#
# Five samples on two devices. Which device gets which samples?

# %%
X = np.arange(10).reshape(5, 2)
y = np.array([1.0, 0.0, 2.0, 1.0, 3.0])
for shard in mxdp.split_and_load(X, devices):
    print(shard.reshape(-1), shard.shape, "on", shard.ctx)

# %% [markdown]
# No sample is dropped, and the result will still be exact: gradients are summed over all shards, and divided once, by
# the size of the whole batch.
#
# ## All-reduce
#
# Before, each device has numbers of its own. Afterwards each device has the sum, in the same array. What will the two
# arrays hold?

# %%
data = [np.ones((1, 2), ctx=device) * (i + 1) for i, device in enumerate(devices)]
print("before:", *data)
naive_allreduce(data)
print("after: ", *data)

# %% [markdown]
# ## One step
#
# `train_batch` splits the batch, runs forward and backward on both devices, sums every gradient by an all-reduce, and
# takes the same SGD step on both. Here is a network small enough to follow by hand: a line, `X w + b`, with half the
# squared error. One device, with the whole batch, must end with the same parameters. Will it, to the last bit?

# %%
line = dict(net=lambda X, params: (X * params[0]).sum(axis=1) + params[1], loss=lambda scores, y: (scores - y) ** 2 / 2)
alone = [mxdp.get_params(params, devices[0])]
losses = mxdp.train_batch(X, y, device_params, devices, lr=0.01, **line)
mxdp.train_batch(X, y, alone, devices[:1], lr=0.01, **line)
print("losses of each shard:", *losses)
for name, replicas in (("two devices", device_params), ("one device", alone)):
    for replica in replicas:
        print(f"{name:12} w =", replica[0], "b =", replica[1])
print("replicas in sync:", mxdp.in_sync(device_params))

# %% [markdown]
# ## The book's network
#
# The same functions, with LeNet on pictures. The small initial weights of the book keep the loss at 2.303 for a few
# hundred steps: a first step changes almost nothing. What must hold already?

# %%
pictures = mxdp.load("digits").train
lenet = [mxdp.get_params(mxdp.init_lenet(seed=0), device) for device in devices]
losses = mxdp.train_batch(pictures.X[:128], pictures.y[:128], lenet, devices, lr=0.2)
print("mean loss of each shard:", [round(float(loss.mean()), 3) for loss in losses])
print("replicas in sync:", mxdp.in_sync(lenet))

# %% [markdown]
# ## Questions
#
# 1. Replace the all-reduce by one that does nothing: `train_batch(..., allreduce=lambda data: None)`. After how many
#    steps are the replicas out of sync?
# 2. `train_batch` sums gradients and divides by `len(X)`. What would be wrong with the mean of the two shards' means?
# 3. The batch has one sample and there are two devices. What does the second one do?
#
# Then write them yourself: exercises 1, 3 and 4 of `experiments/exercises`; the ring, exercise 2, is the
# next lesson's.
