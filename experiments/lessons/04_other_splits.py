# %% [markdown]
# # Four ways to split a network
#
# The book's figure: the original on one device, network partitioning, layerwise partitioning, data parallelism; and
# from the slides, pictures in tiles. All of them give what one device gives. They differ in what has to be sent, and in
# what each device has to keep.
#
# A network is described once, as a list of layers with parameters of their own.

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
from mxdp.plans.pipeline import bubble, gpipe, kept, one_f_one_b
from mxdp.plans.show.staircases import staircase
from mxdp.scratch import cross_entropy, get_params

devices = mxdp.devices(2)
shape = (1, 28, 28)
params = init(LENET, shape, seed=0)
for layer, made in zip(LENET, outputs(LENET, shape)):
    print(f"{made!s:14} {layer}")

# %% [markdown]
# ## What all must equal: the serial run
#
# One device, one batch, forward and backward.

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
# Each is made from the network, its parameters, the shape of a sample, and the devices. `step` leaves gradients behind,
# wherever the parameters lie; `gradients()` puts them together again. Each one is compared, since in a sum errors can
# cancel. (They add in another order, so the last bits differ.)

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
# Data parallelism sends gradients: as many, whatever the batch. The others send activations: with one sample the order
# is another.

# %%
for name, strategy in strategies.items():
    print(f"{name:10}", *(f"{n} samples: {strategy.bytes_moved(n) / 1e6:5.2f} MB " for n in (4, 64, 1024)))
assert strategies["data"].bytes_moved(4) > strategies["layerwise"].bytes_moved(4)
assert strategies["data"].bytes_moved(1024) < strategies["layerwise"].bytes_moved(1024)

# %% [markdown]
# ## A pipeline is a staircase
#
# With one micro-batch one device works and the others wait: plain model parallelism. With four they follow one another.
# 1F1B is as long as GPipe, and keeps fewer activations.

# %%
for plan in (gpipe(2, 1), gpipe(2, 4), one_f_one_b(2, 4)):
    print("\n".join(staircase(plan)))
    print(f"{plan.name}: idle {bubble(2, plan.micro_batches):.0%}; activations kept of {kept(plan)} micro-batches\n")
assert kept(one_f_one_b(2, 4)) == [2, 1]

# %% [markdown]
# ## Layer by layer: columns, then rows
#
# If the first of two layers is cut by its outputs and the second by just those inputs, the devices have to meet once
# for both, in an all-reduce of what the second gives. Two pairs in LeNet: two sums forward; one back, since pictures
# need no gradient.

# %%
for layer, cut in zip(LENET, cut_layers([hasattr(layer, "units") or hasattr(layer, "channels") for layer in LENET])):
    print(f"{cut:8} {layer}")
print(strategies["layerwise"].allreduces)
assert strategies["layerwise"].allreduces == {"forward": 2, "backward": 1}

# %% [markdown]
# ## Tiles and their halos
#
# A window of 3 x 3 looks one pixel over the seam. What it sees there has to be sent first: rows (1), then columns (2),
# so that a corner comes in two hops. Dots are padding.

# %%
before_a_layer = exchange(5, 6, (2, 2), Window(3, padding=1))
print(before_a_layer)
print(before_a_layer.drawn(0))

# %% [markdown]
# Without halos the result is wrong at the seam, and two convolutions carry that two pixels far; further in it is right.
# Numbers are whole, so that right means: exactly. Rows of a picture of 11 x 8 in two tiles, one above the other:

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
assert [number for number, row in enumerate(without[0, 0] != whole[0, 0]) if row.any()] == [4, 5, 6, 7]

# %% [markdown]
# ## Which one?
#
# `python -m mxdp.experiments run strategies` measures all of them on this machine, with what each moves and keeps.
#
# 1. From which batch on does data parallelism send less than layerwise partitioning? Compare with `layerwise`.
# 2. Which of the four can split a batch of one? Which divide the parameters?
# 3. Take 8 micro-batches for the pipeline. What falls, what rises? `pipeline` has the numbers.
# 4. Put a `BatchNorm` between the convolutions of the last cell. Where is the picture wrong now, and why?
