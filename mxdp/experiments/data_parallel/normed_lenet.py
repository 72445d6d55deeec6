"""The book's LeNet with batch normalisation on several devices, by three ways to normalise."""

import numpy as onp

from mxdp.backend import autograd, check_device_list, np, npx
from mxdp.collectives import GradientSync
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.networks import set_params
from mxdp.layers import EPSILON
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import cross_entropy, evaluate, get_params, split_batch
from mxdp.timing import Timer
from mxdp.training.update import prepare_update

OWN = "own"
APART = "own, mxdp's operators"
SYNCED = "synchronised"
WAYS = (OWN, APART, SYNCED)
WEIGHTS = ((6, 1, 5, 5), (16, 6, 5, 5), (120, 256), (84, 120), (10, 84))
"""Behind each but the last stands a normalisation. So biases would have no effect, and are left out."""
NORMS = len(WEIGHTS) - 1
MOMENTUM = 0.9


class NormedLeNet:
    """A replica on each device. ``running[i]``: of replica i means and variances, two arrays a normalisation."""

    def __init__(self, devices, way, seed, batch=1, lr=0.0):
        self._batch = batch
        self.devices = list(devices)
        self.replicas = [get_params(_params(seed), device) for device in devices]
        self.running = []
        for device in devices:
            statistics = _pairs(np.zeros, np.ones)
            self.running.append([array.copyto(device) for array in statistics])
        ranks = range(len(devices))
        self.groups = [[*ranks]] if way == SYNCED else [[rank] for rank in ranks]
        """Replicas whose shards are normalised together."""
        layers = range(0 if way == OWN else NORMS)
        self._norms = [self._norms_of(layer) for layer in layers]
        """Each layer's, one for each group; none where MXNet's operator normalises."""
        self._sync = GradientSync(self.replicas)
        self._updates = [prepare_update(params, lr / batch) for params in self.replicas]

    def restart(self, seed):
        """Set parameters and running statistics to the start of this seed, in place."""
        set_params(self.replicas, _params(seed))
        set_params(self.running, _pairs(np.zeros, np.ones))

    def backward(self, X, y):
        """The gradients, summed over the devices. Doesn't wait."""
        check_device_list(self.devices, samples=len(X))
        xs, ys = split_batch(X, y, self.devices)
        # Each exchange of statistics cuts the graph: what stands ahead of it has a backward pass of its own.
        cuts = []
        with autograd.record():
            for layer in range(NORMS):
                hs = [_layer(layer, x, params) for x, params in zip(xs, self.replicas)]
                xs = []
                if self._norms:
                    norms = self._norms[layer]
                    for norm, group in zip(norms, self.groups):
                        xs += norm([hs[rank] for rank in group])
                    cuts.append((norms, hs))
                else:
                    for rank, h in enumerate(hs):
                        xs.append(_normalise(h, *self._arrays(rank, layer)))
            losses = []
            for x, labels, params in zip(xs, ys, self.replicas):
                losses.append(cross_entropy(_layer(NORMS, x, params), labels))
        autograd.backward(losses)
        for norms, hs in reversed(cuts):
            autograd.backward(hs, [gradient for norm in norms for gradient in norm.backward()])
        self._sync()

    def train(self, data, seed, steps):
        """Train for that many steps from the first batch of ``seed``; returns the seconds of a step. Waits."""
        batches = Stream(data, self._batch, seed).take(self._batch * steps)
        with Timer() as timer:
            for X, y in batches:
                self.backward(X, y)
                for update in self._updates:
                    update()
        return timer.sum() / steps

    def flat(self):
        """All parameters of replica 0, in one vector. Waits."""
        return onp.concatenate([param.asnumpy().ravel() for param in self.replicas[0]])

    def accuracy(self, data, running):
        """The accuracy of replica 0's parameters with these running statistics. Waits."""
        running = [array.as_in_ctx(self.devices[0]) for array in running]

        def net(X, params):
            for layer in range(NORMS):
                X = _normalise(_layer(layer, X, params), *self._arrays(0, layer, running))
            return _layer(NORMS, X, params)

        return evaluate(data, self.replicas[:1], net=net)

    def _norms_of(self, layer):
        norms = []
        for group in self.groups:
            scales, shifts, means, variances = zip(*[self._arrays(rank, layer) for rank in group])
            norms.append(SyncBatchNorm(scales, shifts, means, variances, MOMENTUM))
        return norms

    def _arrays(self, replica, layer, running=None):
        """Scale, shift, mean and variance of a normalisation."""
        mean = 2 * layer
        scale = len(WEIGHTS) + mean
        running = running or self.running[replica]
        return [*self.replicas[replica][scale : scale + 2], *running[mean : mean + 2]]


def _params(seed):
    """Weights by Glorot and Bengio; each normalisation's scale of 1 and shift of 0."""
    random = onp.random.RandomState(seed)
    weights = []
    for shape in WEIGHTS:
        inputs = onp.prod(shape[1:])
        outputs = shape[0] * onp.prod(shape[2:])
        limit = (6 / (inputs + outputs)) ** 0.5
        weights.append(np.array(random.uniform(-limit, limit, shape), dtype="float32"))
    return weights + _pairs(np.ones, np.zeros)


def _pairs(*makers):
    """Two arrays for each normalisation, a number a channel."""
    return [make(shape[:1]) for shape in WEIGHTS[:-1] for make in makers]


def _normalise(x, *arrays):
    return npx.batch_norm(x, *arrays, eps=EPSILON, momentum=MOMENTUM, fix_gamma=False)


def _layer(number, x, params):
    """The product with weight ``number``, and what stands between it and the normalisation before it."""
    weight = params[number]
    if number:
        x = npx.activation(x, act_type="sigmoid")
    if number in (1, 2):
        x = npx.pooling(x, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    if number < 2:
        return npx.convolution(
            x, weight, kernel=weight.shape[2:], num_filter=len(weight), no_bias=True
        )
    return npx.fully_connected(x, weight, num_hidden=len(weight), no_bias=True)
