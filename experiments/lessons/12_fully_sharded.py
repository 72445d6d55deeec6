# %% [markdown]
# # 12. What must a device hold? Parameters in shards
#
# Data parallelism copies everything to each device. With more memory than one device has, something must be cut.

# %%
import mxdp
from mxdp.backend import np
from mxdp.layers import Dense, Relu, init
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.plans.layers.fully_sharded import fully_sharded
from mxdp.plans.show.text import as_text

devices = mxdp.devices(2)

# %% [markdown]
# ## The life of a layer
#
# Data parallelism keeps all parameters, gradients and the optimiser's state on every device. Fully sharded (FSDP, or
# stage 3 of ZeRO), a device owns a part of each layer, and borrows the rest while the layer is computed. A row is the
# life of a layer. How often do its parameters travel, and how often its gradients?

# %%
print(as_text(fully_sharded(3, 2), 110))

# %% [markdown]
# The same life of one tiny layer, y = W x, on two devices with a sample each. Device 0 owns the first row of W, and
# device 1 the second. The loss is half of the sum of all squares of y, so the gradient of y is y itself.

# %%
W = np.array([[1.0, 2.0], [3.0, 4.0]])
shards = [row.copyto(device) for row, device in zip(W, devices)]
samples = [np.array(x, ctx=device) for x, device in zip(([1.0, 0.0], [1.0, 1.0]), devices)]

gathered = mxdp.all_gather(shards)
print("gather          W =", *(whole.tolist() for whole in gathered))
outputs = [np.dot(whole.reshape(2, 2), x) for whole, x in zip(gathered, samples)]
print("forward         y =", *(y.tolist() for y in outputs))
del gathered
print("free            W =", *(shard.tolist() for shard in shards))
gathered = mxdp.all_gather(shards)  # the backward pass to the layer before needs it: its gradient is W^T y
input_gradients = [np.dot(whole.reshape(2, 2).T, y) for whole, y in zip(gathered, outputs)]
layer_gradients = [np.outer(y, x).reshape(-1) for y, x in zip(outputs, samples)]
print("gather, backward    ", *(gradient.tolist() for gradient in layer_gradients))
sums = mxdp.reduce_scatter(layer_gradients)
del gathered, layer_gradients
print("reduce-scatter, free", *(total.tolist() for total in sums))
for shard, total in zip(shards, sums):
    shard -= 0.5 / len(samples) * total
print("step            W =", *(shard.tolist() for shard in shards))

whole_batch = np.array([[1.0, 0.0], [1.0, 1.0]])
expected = W - 0.5 / 2 * np.dot(np.dot(W, whole_batch.T), whole_batch)
assert all(abs(shard.as_in_ctx(row.ctx) - row).max() < 1e-6 for shard, row in zip(shards, expected))

# %% [markdown]
# ZeRO's stages cut first the optimiser's state, then the gradients, too, then the parameters, too. Stage 0 is data
# parallelism. All give the same bits. Which of them sends more? (The gathered layer counts, so we take four layers of
# equal size; in LeNet one layer has most of the parameters, and little is saved.)

# %%
net, shape, data = (Dense(784), Relu()) * 4 + (Dense(10),), (784,), mxdp.load("synthetic")
params, plain = init(net, shape, seed=0), None
for stage in range(4):
    sharded = FullySharded(net, params, shape, devices, stage=stage, optimizer="adam")
    sharded.step(data.train.X[:50].reshape(50, -1), data.train.y[:50])
    gradients = [gradient.asnumpy() for layer in sharded.gradients() for gradient in layer]
    plain = plain or gradients
    assert all((gradient == first).all() for gradient, first in zip(gradients, plain))
    moved, held = sharded.bytes_moved(50), sharded.lasting_bytes(50)[0]
    print(f"stage {stage}: {moved / 1e6:.2f} MB moved; {held / 1e6:.2f} MB of parameters, gradients and state")

# %% [markdown]
# `python -m mxdp.experiments run fully-sharded` measures memory and time, for an MLP and for ResNet-18.
#
# ## Questions
#
# 1. In stage 3 a layer is gathered twice. Why? What would it cost, and save, not to free it after the forward pass?
# 2. How large a model with Adam fits on 8 devices of 80 GB, by copies and fully sharded?
#    (`python -m mxdp.experiments predict --memory --parameters 7e9 --devices 8`)
#
# Exercise 11 of `experiments/exercises` is the reduce-scatter and the all-gather; 10 cuts the state.
