# %% [markdown]
# # 6. Four ways to split a network
#
# The book's figure shows the original on one device, network partitioning, layerwise partitioning and data parallelism.
# Pictures can also be cut into tiles. All give the same result as one device. They differ in what the devices send and
# in what each device keeps. A network is described once, as a list of layers with parameters of their own.

# %%
import mxdp
from mxdp.backend import autograd, np
from mxdp.layers import LENET, Conv, Relu, forward, init, outputs
from mxdp.parallel.data import Data
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.tile import Tile
from mxdp.parallel.traffic import flat
from mxdp.plans.layers.column_row import cut_layers
from mxdp.plans.layers.halo import exchange
from mxdp.plans.layers.halo_axis import Window
from mxdp.scratch import cross_entropy, get_params

devices = mxdp.devices(2)
shape = (1, 28, 28)
params = init(LENET, shape, seed=0)
for layer, made in zip(LENET, outputs(LENET, shape)):
    print(f"{made!s:14} {layer}")

# %% [markdown]
# ## The serial run, which all splits must equal

# %%
data = mxdp.load("synthetic")
X, y = data.train.X[:50], data.train.y[:50]
own = [get_params(layer, devices[0]) for layer in params]
with autograd.record():
    losses = cross_entropy(forward(LENET, np.array(X), own), np.array(y))
losses.backward()
gradients = [param.grad.asnumpy() for param in flat(own)]
print(f"mean loss {float(losses.mean()):.4f}, {len(gradients)} gradients")

# %% [markdown]
# ## The same step, split in four ways
#
# Each strategy takes the network, its parameters, the shape of a sample, and the devices. `step` computes the gradients
# where the parameters lie; `gradients()` collects them. Every gradient is compared elementwise, since errors can cancel
# in a sum. (The splits add in another order than the serial run, so the last bits differ.)

# %%
strategies = {
    "data": Data(LENET, params, shape, devices),
    "pipeline": Pipeline(LENET, params, shape, devices, micro_batches=4, schedule="1f1b", cuts=(3,)),
    "layerwise": Layerwise(LENET, params, shape, devices),
    "tile": Tile(LENET, params, shape, devices),
}
for name, strategy in strategies.items():
    strategy.step(X, y)
    for gradient, expected in zip(flat(strategy.gradients()), gradients):
        assert abs(gradient.asnumpy() - expected).max() < 2e-5 * abs(expected).max()
    moved, held = strategy.bytes_moved(len(X)), [nbytes // 1000 for nbytes in strategy.param_bytes()]
    print(f"{name:10} every gradient is right; {moved / 1e6:5.2f} MB moved; kB of parameters on each device: {held}")

# %% [markdown]
# Data parallelism sends gradients, whose number does not depend on the batch. The others send activations. Which order
# will they have for four samples, and for a thousand?

# %%
for name, strategy in strategies.items():
    print(f"{name:10}", *(f"{n} samples: {strategy.bytes_moved(n) / 1e6:5.2f} MB " for n in (4, 64, 1024)))

# %% [markdown]
# ## Layer by layer: columns, then rows
#
# If the first of two layers is cut by its outputs and the second by the same channels, its inputs, both layers together
# need only one all-reduce, of the second layer's outputs. LeNet has two pairs. How many all-reduces has it forward, and
# how many backward, since pictures need no gradient?

# %%
for layer, cut in zip(LENET, cut_layers([hasattr(layer, "units") or hasattr(layer, "channels") for layer in LENET])):
    print(f"{cut:8} {layer}")
print(strategies["layerwise"].allreduces)

# %% [markdown]
# ## Tiles and their halos
#
# A window of 3 x 3 reaches one pixel over the border of a tile. These pixels, the halo, are sent first: rows (1), then
# columns (2), so a corner arrives in two hops. Dots are padding.

# %%
before_a_layer = exchange(5, 6, (2, 2), Window(3, padding=1))
print(before_a_layer)
print(before_a_layer.drawn(0))

# %% [markdown]
# Two convolutions without halos, on a picture of 11 x 8 in two tiles, one above the other. Which rows will be wrong?

# %%
net = (Conv(1, kernel=3, padding=1), Relu(), Conv(1, kernel=3, padding=1))
ones = [[np.ones(param.shape) for param in layer] for layer in init(net, (1, 11, 8))]
picture = np.arange(88).reshape(1, 1, 11, 8)
whole = forward(net, picture, ones).asnumpy()
with_halos = Tile(net, ones, (1, 11, 8), devices).scores(picture).asnumpy()
without = Tile(net, ones, (1, 11, 8), devices, halo=False).scores(picture).asnumpy()
assert (with_halos == whole).all()
for number, row in enumerate(without[0, 0] != whole[0, 0]):
    print(f"{number:2}", "".join("#" if wrong else "." for wrong in row))

# %% [markdown]
# ## Which one?
#
# `python -m mxdp.experiments run strategies` measures all four here, with the bytes that each sends and keeps. Two
# splits can be combined: `python -m mxdp.experiments run combined layerwise tiles`.
#
# ## Questions
#
# 1. From which batch size on does data parallelism send less than layerwise partitioning? See `layerwise`.
# 2. Which of the four can split a batch of one sample? Which of them split the parameters?
# 3. Put a `BatchNorm` between the convolutions of the last cell. Where is the picture wrong now, and why?
#
# Exercise 8 of `experiments/exercises` is the exchange of halos. Lesson 12 cuts the parameters.
