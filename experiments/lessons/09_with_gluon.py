# %% [markdown]
# # 9. With gluon
#
# The chapter "Concise Implementation for Multiple GPUs" trains with gluon: the network, the optimiser and the loop come
# from MXNet. `mxdp.Trainer` takes the place of gluon's Trainer, and sums the gradients in buckets.
#
# `mxdp` comes before MXNet.

# %%
import mxdp

# isort: split
from mxnet import autograd, gluon, np, npx

devices = mxdp.devices(2)

# %% [markdown]
# ## One parameter, by hand
#
# A network with one weight, which is 1, and the data 1, 2, 3 on two devices. The loss is the output, so the gradient of
# a shard is the sum of its data. What is the weight after a step with the learning rate 0.3 and three samples?

# %%
tiny = gluon.nn.Dense(1, use_bias=False, in_units=1)
tiny.initialize(init="ones", ctx=devices)
trainer = mxdp.Trainer(tiny.collect_params(), "sgd", {"learning_rate": 0.3})
with autograd.record():
    losses = [tiny(shard).sum() for shard in mxdp.split_and_load(np.array([[1.0], [2.0], [3.0]]), devices)]
autograd.backward(losses)
for device in devices:
    print("gradient", tiny.weight.grad(device).reshape(-1), "on", device)
trainer.step(batch_size=3)
for device in devices:
    print("weight  ", tiny.weight.data(device).reshape(-1), "on", device)

# %% [markdown]
# ## The same weights as MXNet's store, bit for bit
#
# A convolutional net, trained for five steps by gluon's own Trainer with its `device` store, by the same with mxdp's
# ring, and by `mxdp.Trainer`. Only the number of messages differs. Will the weights?

# %%
pictures = mxdp.load("synthetic").train
X, y = np.array(pictures.X[:32]), np.array(pictures.y[:32])
loss, found = gluon.loss.SoftmaxCrossEntropyLoss(), {}
for name, make in (
    ("device", lambda params: gluon.Trainer(params, "sgd", {"learning_rate": 0.1}, kvstore="device")),
    ("mxdpring", lambda params: gluon.Trainer(params, "sgd", {"learning_rate": 0.1}, kvstore="mxdpring")),
    ("mxdp.Trainer", lambda params: mxdp.Trainer(params, "sgd", {"learning_rate": 0.1})),
):
    npx.random.seed(1)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 5, in_channels=1, activation="relu"), gluon.nn.Dense(10, in_units=8 * 24 * 24))
    net.initialize(init="xavier", ctx=devices)
    net.hybridize()
    trainer = make(net.collect_params())
    for _ in range(5):
        with autograd.record():
            pairs = zip(mxdp.split_and_load(X, devices), mxdp.split_and_load(y, devices))
            losses = [loss(net(a), b) for a, b in pairs]
        autograd.backward(losses)
        trainer.step(len(X))
    found[name] = [param.data(device).asnumpy() for param in net.collect_params().values() for device in devices]
    print(f"{name:13}", "loss", float(sum(each.sum() for each in [one.as_in_ctx(devices[0]) for one in losses])) / 32)
for name in ("mxdpring", "mxdp.Trainer"):
    same = all((a == b).all() for a, b in zip(found["device"], found[name]))
    print(f"{name}: the same bits as MXNet's store: {same}")
    assert same

# %% [markdown]
# ## The optimiser's state
#
# SGD with momentum keeps one number for each parameter, and `mxdp.train` keeps all of them on every device. With
# `shard_optimizer=True` each device keeps its share, updates its share, and sends the new parameters to the others. How
# much is left on one of two devices? (`mxdp.Trainer` keeps one state for each parameter anyhow, on the device that
# updates it; there `shard_optimizer=True` cuts parameters into equal shares.)

# %%
params = mxdp.init_lenet(scale=0.1)
mxdp.train(2, 16, 0.02, 3, data="digits", kind="cpu", momentum=0.9, shard_optimizer=True, params=params)
numbers = sum(param.size for param in params)
print(f"momentum: {numbers:,} numbers; on each device in shards {-(-numbers // 2):,}, else all {numbers:,}")

# %% [markdown]
# `python -m mxdp.experiments run sharded-optimizer resnet` measures memory and time, and trains the book's network.
#
# ## Questions
#
# 1. What is wrong with `trainer.step(batch_size=len(shard))`?
# 2. A last batch has one sample, and there are two devices. What do gluon's `split_and_load` and Trainer do, and what
#    mxdp's?
# 3. Why are the weights equal bit for bit on two devices, and only nearly on three?
