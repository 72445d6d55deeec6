# %% [markdown]
# # 10. What goes wrong
#
# The worst bugs of data-parallel training raise no error: the loss falls, the accuracy rises, and the result is wrong.
# A comparison with one device finds them.

# %%
import mxdp
from mxdp.backend import np
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import naive_allreduce

devices = mxdp.devices(2)

# %% [markdown]
# ## An all-reduce that is almost right
#
# `total = total + x` in place of `total += x`. Which of the two arrays is wrong afterwards?

# %%
data = [np.array([1.0, 2.0], ctx=devices[0]), np.array([10.0, 20.0], ctx=devices[1])]
total = data[0]
total = total + data[1].copyto(devices[0])
total.copyto(data[1])
print(*data)

# %% [markdown]
# ## Would you see it?
#
# A step that averages twice: over the batch, and over the devices. It is half a step. Trained for an epoch beside the
# right one: do the losses give it away, if you don't know the right ones? Are the replicas equal?

# %%
digits = mxdp.load("digits")
X, y, params = digits.train.X, digits.train.y, mxdp.init_lenet(seed=0, scale=0.1)
kinds = {
    "right": naive_allreduce,
    "averaged twice": lambda data: (naive_allreduce(data), [each.__imul__(0.5) for each in data]),
}
trained = {}
for name, allreduce in kinds.items():
    replicas = trained[name] = [mxdp.get_params(params, device) for device in devices]
    for start in range(0, 960, 32):
        mxdp.train_batch(X[start : start + 32], y[start : start + 32], replicas, devices, 0.1, allreduce)
    equal = mxdp.in_sync(replicas)
    print(f"{name:15} accuracy {mxdp.evaluate(digits.test, replicas):.2f}, replicas equal: {equal}")

# %% [markdown]
# ## What finds it
#
# Two steps, from the same parameters and with the same batches, on one device and on two. How many of LeNet's 8
# parameters will be wrong?

# %%
for name, allreduce in kinds.items():
    ends = []
    for some in (devices[:1], devices):
        replicas = [mxdp.get_params(params, device) for device in some]
        for start in (0, 32):
            mxdp.train_batch(X[start : start + 32], y[start : start + 32], replicas, some, 0.1, allreduce)
        ends.append([param.asnumpy() for param in replicas[0]])
    wrong = sum(abs(a - b).max() > 1e-4 * abs(a).max() for a, b in zip(*ends))
    print(f"{name:15} {wrong} of {len(params)} parameters differ from one device's")

# %% [markdown]
# ## A dozen more
#
# `python -m mxdp.experiments run silent-bugs` trains with a dozen such bugs, by SGD and by Adam; `docs/silent-bugs.md`
# shows each as a few lines of difference. Adam hides most of what is only a wrong scale. Why?
#
# ## Batch normalisation
#
# Some differences are no bug of the step. In a batch normalisation a sample's result depends on the others of its
# batch, so two devices with their own statistics don't train what one does. What is the mean of each shard afterwards?

# %%
x = np.arange(6.0).reshape(6, 1)
shards, ones, zeros = mxdp.split_and_load(x, devices), np.ones(1), np.zeros(1)
arrays = [[mxdp.get_params([each], device)[0] for device in devices] for each in (ones, zeros, zeros, ones)]
for shard in shards:
    print("own statistics:  ", ((shard - shard.mean()) / shard.std()).reshape(-1), "on", shard.ctx)
for normalised in SyncBatchNorm(*arrays)(shards):
    print("the whole batch's:", normalised.reshape(-1), "on", normalised.ctx)

# %% [markdown]
# `SyncBatchNorm` takes the statistics of the whole batch, by one exchange forward and one backward.
# `python -m mxdp.experiments run batch-norm` measures what either way changes and costs.
#
# ## Questions
#
# 1. `in_sync` finds the first bug, and not the second. Which bugs can a comparison of the replicas find at all?
# 2. Divide by `len(shard)` in place of `len(X)`. With which batch sizes would two steps not show it?
# 3. Replicas that begin from different seeds still learn. What is the final network then?
#
# The exercises' checker compares each answer with a serial run, and names these bugs: `python -m mxdp.exercises list`.
