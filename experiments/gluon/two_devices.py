"""A gluon loop on two devices of one process."""

import mxdp  # before MXNet
import numpy
from mxnet import autograd, gluon, init, np, npx

npx.set_np()
npx.random.seed(0)
devices = mxdp.devices(2)
data = mxdp.load("digits")  # in place of your own
train = gluon.data.DataLoader(gluon.data.ArrayDataset(data.train.X, data.train.y), batch_size=64, shuffle=True)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(128, activation="relu", in_units=784), gluon.nn.Dense(10, in_units=128))
net.initialize(init.Xavier(), ctx=devices)
net.hybridize()
loss = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = mxdp.Trainer(net.collect_params(), "adam", {"learning_rate": 0.001})

for epoch in range(4):
    numpy.random.seed(epoch)  # by which the loader shuffles
    for X, y in train:
        shards = zip(*mxdp.split_batch(X, y, devices))
        with autograd.record():
            losses = [loss(net(a), b) for a, b in shards]
        autograd.backward(losses)
        trainer.step(len(X))

scores = net(np.array(data.test.X, ctx=devices[0]))
right = scores.argmax(axis=1).asnumpy() == data.test.y
print(f"test accuracy {right.mean():.3f}")
