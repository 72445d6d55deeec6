# %% [markdown]
# # 2. Who sends what to whom?
#
# Every device has gradients of its own, and every device needs the sum of all. The book uses two loops: one sends
# everything to device 0, the other sends the sum back. There are faster ways. Each is a plan that you can print before
# anything runs.
#
# `python -m mxdp.plans ring 4` prints a plan as a table for a slide, with the contents of each device after each step;
# with `--html` it makes a page that steps through it.

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
# The vector has 1200 numbers. In the naive plan, device 0 sends the whole vector to each of the others: 3600 numbers.
# In the ring each device sends one chunk in each step. How many numbers are that? (With `shared-memory` a device reads
# what it adds in the others' memory, and nothing is sent for it; only the sums travel.)

# %%
for name in sorted(ALGORITHMS):
    schedule = plan(name, 4, [1200])
    print(f"{name:20}{len(schedule.steps)} steps, {max(schedule.sent(1200)):5} numbers")

# %% [markdown]
# ## The same sums, bit for bit on every device
#
# The inputs are whole numbers that depend on the device, so the sum is exact and swapped chunks would be found.

# %%
devices = mxdp.devices(4)
for name in sorted(ALGORITHMS):
    data = [np.arange(10, ctx=device) * 10 + rank for rank, device in enumerate(devices)]
    mxdp.allreduce(data, name)
    assert all((x.asnumpy() == np.arange(10).asnumpy() * 40 + 6).all() for x in data)
print("all algorithms:", data[0])

# %% [markdown]
# ## What each device does
#
# MXNet works on arrays, so a plan becomes a list of operations. A chunk that arrives is copied into a staging buffer,
# and all chunks for one sum are added at once. MXNet orders the operations by the arrays that they use. Below, `1.0` is
# chunk 0 on device 1, and `buffer 0.0.1` is where device 0 receives its chunk 0 from device 1.

# %%
for operation in operations(plan("direct", 2)):
    print(operation)

# %% [markdown]
# ## How long will it take?
#
# Which plan will be the fastest for 4 MiB here, where all devices share one memory? And for 4 bytes? `calibrate`
# measures what a copy and a sum cost on this machine. With these costs a plan is simulated, and `"auto"` takes the plan
# with the least time. `python -m mxdp.experiments run allreduce` compares prediction and result.

# %%
machine = mxdp.calibrate(devices)
for name in sorted(ALGORITHMS):
    print(f"{name:20}{predict(plan(name, 4, [1 << 20]), 4 << 20, machine) * 1e3:6.2f} ms expected for 4 MiB")

# %% [markdown]
# ## All gradients of a network
#
# LeNet has eight gradients, most of them tiny. `GradientSync` stores them side by side, so a step has one all-reduce.

# %%
device_params = [mxdp.get_params(mxdp.init_lenet(seed=0), device) for device in devices]
sync = mxdp.GradientSync(device_params, "auto", bucket_mb=25)
for bucket in sync.buckets:
    print(f"{len(bucket.params)} gradients, {bucket.nbytes:,} bytes, summed by {bucket.algorithm}")

# %% [markdown]
# `python -m mxdp.experiments run links buckets parameter-server` measures what devices send each other, what buckets
# bring, and where the sums should be made.
#
# ## Questions
#
# 1. On k devices, how often does one number travel in the naive plan, and how often in the ring? Which of the two is
#    faster for a vector of four bytes?
# 2. With `shared-memory` devices read in each other's memory. Where could it not run?
# 3. Give `GradientSync` the option `bucket_mb=0.1`. How many buckets are there, and why could that be better?
#
# Then write them yourself: exercises 1, 2 and 6 of `experiments/exercises`.
