# %% [markdown]
# # Who sends what to whom?
#
# Every device has its own gradients, and every device needs the sum of all. The book does it in two loops: everything
# to device 0, and the sum back. There are better ways, and each is a plan that can be printed before anything runs.
#
# `python -m mxdp.plans ring 4` prints the same as tables for a slide, with what each device holds after each step.

# %%
import mxdp
from mxdp.backend import np
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.operations import operations
from mxdp.plans.cost.simulate import predict

print(plan("naive", 4))
print(plan("ring", 4))

# %% [markdown]
# ## How much does the busiest device send?
#
# Of a vector of 1200 numbers. In the naive plan device 0 sends it to each of the others; around the ring nobody sends
# it even twice.

# %%
for name in sorted(ALGORITHMS):
    schedule = plan(name, 4, [1200])
    print(f"{name:20}{len(schedule.steps)} steps, {max(schedule.sent(1200)):5} numbers")

# %% [markdown]
# ## The same sums, bit for bit on every device
#
# Whole numbers that depend on the device, so that the sum is exact and an exchanged chunk would show.

# %%
devices = mxdp.devices(4)
for name in sorted(ALGORITHMS):
    data = [np.arange(10, ctx=device) * 10 + rank for rank, device in enumerate(devices)]
    mxdp.allreduce(data, name)
    assert all((x.asnumpy() == np.arange(10).asnumpy() * 40 + 6).all() for x in data)
print("all algorithms:", data[0])

# %% [markdown]
# ## What a device really does
#
# MXNet works on arrays, so a plan becomes operations. What arrives lands in a staging buffer, and all that arrives for
# one chunk is added at once. MXNet orders the operations by the arrays they touch; none waits without a reason.

# %%
for operation in operations(plan("direct", 2)):
    print(operation)

# %% [markdown]
# ## How long will it take?
#
# `calibrate` measures what a copy and a sum cost here. With that a plan can be played through on paper, and `"auto"`
# takes the one that comes out best. How far off is it? `python -m mxdp.experiments run allreduce` says so.

# %%
machine = mxdp.calibrate(devices)
for name in sorted(ALGORITHMS):
    print(f"{name:20}{predict(plan(name, 4, [1 << 20]), 4 << 20, machine) * 1e3:6.2f} ms expected for 4 MiB")

# %% [markdown]
# ## All gradients of a network
#
# LeNet has eight, most of them tiny. `GradientSync` lays them side by side, so that a step has one all-reduce.

# %%
device_params = [mxdp.get_params(mxdp.init_lenet(seed=0), device) for device in devices]
sync = mxdp.GradientSync(device_params, "auto", bucket_mb=25)
for bucket in sync.buckets:
    print(f"{len(bucket.params)} gradients, {bucket.nbytes:,} bytes, summed by {bucket.algorithm}")
