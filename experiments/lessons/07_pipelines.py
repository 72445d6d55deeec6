# %% [markdown]
# # 7. Pipelines
#
# A network too large for one device is cut into stages, one on each device. Then each device waits for the one before:
# with one batch, one device works at a time. A batch in micro-batches lets them overlap.

# %%
import mxdp
from mxdp.backend import autograd, np
from mxdp.layers import LENET, forward, init
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.traffic import flat
from mxdp.plans.pipeline import bubble, gpipe, kept, one_f_one_b
from mxdp.plans.show.text import staircase
from mxdp.scratch import cross_entropy, get_params

# %% [markdown]
# ## The staircase
#
# Two stages. `F0` is micro-batch 0 forward through a stage, `B0` its gradients back. With one micro-batch half of all
# cycles are idle. Which share is idle with four?

# %%
for plan in (gpipe(2, 1), gpipe(2, 4)):
    print("\n".join(staircase(plan)))
    print(f"idle {bubble(2, plan.micro_batches):.0%}\n")

# %% [markdown]
# `python -m mxdp.plans gpipe 4 --html` makes a page that steps through it.
#
# ## What is kept
#
# A stage keeps the activations of a micro-batch from F to B. GPipe goes back only after the last F, so it keeps all of
# them. 1F1B goes back as soon as it can. How many does the first of three stages keep then? Does it take longer?

# %%
for plan in (gpipe(3, 6), one_f_one_b(3, 6)):
    print("\n".join(staircase(plan)))
    print(f"{plan.name} keeps {kept(plan)} micro-batches, and is idle for {bubble(3, 6):.0%}\n")
assert kept(one_f_one_b(3, 6)) == [3, 2, 1]

# %% [markdown]
# ## The same gradients
#
# LeNet cut before its fourth layer, on two devices, with four micro-batches. Each gradient must equal that of one
# device with the whole batch. (They are added in another order, so the last bits may differ.)

# %%
devices = mxdp.devices(2)
shape = (1, 28, 28)
params = init(LENET, shape, seed=0)
pictures = mxdp.load("synthetic").train
X, y = pictures.X[:48], pictures.y[:48]
own = [get_params(layer, devices[0]) for layer in params]
with autograd.record():
    loss = cross_entropy(forward(LENET, np.array(X), own), np.array(y))
loss.backward()
pipeline = Pipeline(LENET, params, shape, devices, micro_batches=4, schedule="1f1b", cuts=(3,))
pipeline.step(X, y)
for found, param in zip(flat(pipeline.gradients()), flat(own)):
    expected = param.grad.asnumpy()
    difference = abs(found.asnumpy() - expected).max() / abs(expected).max()
    print(f"{param.shape!s:18} on {found.ctx}: largest difference {difference:.0e} of the largest gradient")
    assert difference < 2e-5

# %% [markdown]
# ## What travels
#
# Activations forward, and their gradients back, at the cut. Data parallelism sends the gradients of all parameters
# instead, whatever the batch. From how many samples on does this pipeline send more than 2 x 0.46 MB?

# %%
for samples in (16, 64, 256):
    print(f"{samples:4} samples: {pipeline.bytes_moved(samples) / 1e6:.2f} MB")

# %% [markdown]
# `python -m mxdp.experiments run latency-throughput`: a trained network in stages answers more requests in a second,
# and none of them sooner.
#
# ## Questions
#
# 1. p stages and m micro-batches: which share of all cycles is idle? How many micro-batches bring it under 5 % with
#    four stages?
# 2. More micro-batches are smaller ones. Why can a step become slower nevertheless?
#    `python -m mxdp.experiments run pipeline` has the numbers.
# 3. Move the cut, `cuts=(6,)`. What travels now, and which device has more to do?
#
# Exercise 7 of `experiments/exercises` is GPipe's schedule.
