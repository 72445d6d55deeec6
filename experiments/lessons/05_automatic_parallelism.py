# %% [markdown]
# # 5. What runs at the same time, and how would you know?
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
# ## Copies beside computation
#
# Results that are copied to the other device while the next are computed: one at a time, then all at once. How much of
# the copies' time can be hidden at most?

# %%
with mxdp.Benchmark("each copy waits for its product, and is waited for"):
    for _ in range(10):
        np.dot(factors[0], factors[0]).copyto(devices[1]).wait_to_read()
with mxdp.Benchmark("the engine decides"):
    copies = [np.dot(factors[0], factors[0]).copyto(devices[1]) for _ in range(10)]

# %% [markdown]
# Small products and small copies: Python's time for each call counts too. `python -m mxdp.experiments run copy-overlap`
# measures it with sizes for which it matters.
#
# `run operators small-ops`: does it help to run operators of one device side by side? `run mixed-devices memory-guard
# run-ahead`: without a schedule made by hand, in how much memory, and how far ahead?
#
# ## Questions
#
# 1. Record the jobs with `MXNET_CPU_TEMP_COPY=4` in the environment (MXNet's default). Which device waits for which?
# 2. Why does the answer above need no wait between its two products?
# 3. `python -m mxdp.experiments run graph`: when is the engine's order worse than one made by hand?
# 4. `python -m mxdp.experiments run profile --of graph` records any experiment. What overlaps?
