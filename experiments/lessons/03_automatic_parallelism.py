# %% [markdown]
# # What runs at the same time, and how would you know?
#
# Python only *pushes* work; MXNet's engine starts each operator when its inputs are ready. The book times two jobs on
# two devices and concludes from the clock that they overlapped. Here MXNet's own profiler shows it.

# %%
import tempfile
from pathlib import Path

import mxdp
from mxdp import tracing
from mxdp.backend import np, npx

devices = mxdp.devices(2)
factors = [np.ones((500, 500), ctx=device) * 1e-3 for device in devices]
warm_up = [np.dot(x, x) for x in factors]
npx.waitall()

# %% [markdown]
# ## Two jobs, with a wait between and without
#
# `together(2)` is the time in which two devices were busy at once. With a wait between the jobs it is zero. Without a
# wait it can be almost the whole time, if there are two cores.

# %%
with tracing.record(devices) as one_by_one:
    for x in factors:
        products = [np.dot(x, x) for _ in range(10)]
        npx.waitall()

with tracing.record(devices) as at_once:
    products = [np.dot(x, x) for x in factors for _ in range(10)]

for name, recording in (("one by one", one_by_one), ("at once", at_once)):
    timeline = recording.timeline
    print(f"{name}: {timeline.length * 1e3:.1f} ms, two devices busy {timeline.together(2) / timeline.length:.0%}")
assert one_by_one.timeline.together(2) == 0
trace = Path(tempfile.mkdtemp()) / "two-jobs.trace.json"
at_once.save(trace)
print(f"open {trace} in ui.perfetto.dev")

# %% [markdown]
# ## The engine knows what needs what
#
# The result of one device is copied to the other and used there. Python does not wait, and the answer is still right.

# %%
there = np.dot(factors[0], factors[0]).copyto(devices[1])
answer = np.dot(there, factors[1])
assert abs(answer[0, 0].item() - 0.25e-3) < 1e-8
print("0.001 ** 3 * 500 * 500 =", answer[0, 0].item())

# %% [markdown]
# ## Where did the time of a training step go?
#
# The parts add up to the wall clock of the device that works longest.

# %%
data = mxdp.load("synthetic")
X, y = data.train.X[:64], data.train.y[:64]
device_params = [mxdp.get_params(mxdp.init_lenet(seed=0), device) for device in devices]
split = tracing.where_the_time_went(lambda: mxdp.train_batch(X, y, device_params, devices, lr=0.1), steps=5)
for part, share in split.shares().items():
    print(f"{part:24}{share:6.1%}")
print(f"of {split.wall_clock * 1e3:.1f} ms a step, on {split.device}")
assert abs(sum(split.as_dict().values()) - split.wall_clock) < 1e-9

# %% [markdown]
# ## Exercises
#
# 1. Put `npx.waitall()` between the forward and the backward pass of a step. Which part grows?
# 2. Record the jobs with `MXNET_CPU_TEMP_COPY=4` in the environment (MXNet's default). Which device waits for which?
# 3. `python -m mxdp.experiments run copy-overlap`: when does it help not to wait for copies, and when does it not?
# 4. `python -m mxdp.experiments run profile --of graph` records any experiment.
