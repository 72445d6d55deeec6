# %% [markdown]
# # 4. Where did the time go?
#
# Two devices could halve a step. Some machines come close; in the book's own run the second one made it slower. The
# book leaves it at that. MXNet's profiler records what each device does and when. With that, every millisecond of a
# step can be named.

# %%
import tempfile
from pathlib import Path

import mxdp
from mxdp import tracing
from mxdp.backend import np, npx

devices = mxdp.devices(2)

# %% [markdown]
# ## A timeline of two products
#
# One product on each device, pushed one after the other without a wait. Do they overlap?

# %%
factors = [np.ones((500, 500), ctx=device) * 1e-3 for device in devices]
warm_up = [np.dot(x, x) for x in factors]
npx.waitall()
with tracing.record(devices) as recording:
    products = [np.dot(x, x) for x in factors]
timeline = recording.timeline
for event in timeline.events:
    print(f"{event.device:8}{event.name:24} from {event.start * 1e3:6.2f} to {event.end * 1e3:6.2f} ms")
print(f"two devices at once for {timeline.together(2) * 1e3:.2f} of {timeline.length * 1e3:.2f} ms")

# %% [markdown]
# ## A training step, part by part
#
# Compute, the all-reduce, waiting for the other device, and the time in which nothing is queued, because Python has not
# pushed it yet. Which is the largest after compute? The parts add up to the wall clock of the device that works
# longest.

# %%
pictures = mxdp.load("synthetic").train
X, y = pictures.X[:64], pictures.y[:64]
device_params = [mxdp.get_params(mxdp.init_lenet(seed=0), device) for device in devices]
split = tracing.where_the_time_went(lambda: mxdp.train_batch(X, y, device_params, devices, lr=0.1), steps=5)
for part, share in split.shares().items():
    print(f"{part:24}{share:6.1%}")
print(f"of {split.wall_clock * 1e3:.1f} ms a step, on {split.device}")
assert abs(sum(split.as_dict().values()) - split.wall_clock) < 1e-9
print("replicas in sync:", mxdp.in_sync(device_params))

# %% [markdown]
# ## The same with a wait in the middle
#
# `npx.waitall()` after each step is what a loop does that prints its loss each time. Which part will grow?

# %%
for name, wait in (("as it is", lambda: None), ("with waitall", npx.waitall)):
    split = tracing.where_the_time_went(
        lambda wait=wait: (mxdp.train_batch(X, y, device_params, devices, lr=0.1), wait()), steps=5
    )
    largest = sorted(split.shares().items(), key=lambda item: -item[1])[:3]
    print(f"{name:13}", ", ".join(f"{part} {share:.0%}" for part, share in largest))

# %% [markdown]
# ## Look at it
#
# A recording opens in ui.perfetto.dev, without an account. The picture in the README is one.

# %%
trace = Path(tempfile.mkdtemp()) / "two-products.trace.json"
recording.save(trace)
print(f"open {trace} in ui.perfetto.dev")

# %% [markdown]
# ## Questions
#
# 1. Record a step with batches of 8 and of 256. What does the share of compute do, and why?
# 2. Use `allreduce=mxdp.scratch.naive_allreduce` in `train_batch`. Which part changes?
# 3. `python -m mxdp.experiments run where-the-time-went epochs`: both account for the lost time. What is the largest
#    part on your machine, and is it Python's, the network's or the machine's fault?
#
# Exercise 9 of `experiments/exercises` fits the cost of a message, which the prediction of an all-reduce starts from.
