"""A gluon loop on one device."""

import mxdp  # before MXNet
import numpy
from mxnet import autograd, gluon, init, np, npx

npx.set_np()
npx.random.seed(0)
device = npx.cpu()
data = mxdp.load("digits")  # in place of your own
train = gluon.data.DataLoader(gluon.data.ArrayDataset(data.train.X, data.train.y), batch_size=64, shuffle=True)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(128, activation="relu", in_units=784), gluon.nn.Dense(10, in_units=128))
net.initialize(init.Xavier(), ctx=device)
net.hybridize()
loss = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.001})

for epoch in range(4):
    numpy.random.seed(epoch)  # by which the loader shuffles
    for X, y in train:
        X, y = X.as_in_ctx(device), y.as_in_ctx(device)
        with autograd.record():
            losses = loss(net(X), y)
        losses.backward()
        trainer.step(len(X))

scores = net(np.array(data.test.X, ctx=device))
right = scores.argmax(axis=1).asnumpy() == data.test.y
print(f"test accuracy {right.mean():.3f}")
