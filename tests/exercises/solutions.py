"""For each exercise a function body that is right.

They stand here, and neither beside the exercises nor in the wheel.
"""

SOLUTIONS = {
    "naive_allreduce": """
    total = data[0]
    for x in data[1:]:
        total += x.copyto(total.ctx)
    for x in data[1:]:
        total.copyto(x)
""",
    "ring_allreduce": """
    n = len(data)
    chunks = [np.array_split(x.reshape(-1), n) for x in data]
    for step in range(n - 1):
        sent = [(d, (d - step - 1) % n, chunks[d][(d - step - 1) % n]) for d in range(n)]
        for d, c, chunk in sent:
            right = (d + 1) % n
            if chunk.size:
                chunks[right][c] = chunks[right][c] + chunk.copyto(data[right].ctx)
    for step in range(n - 1):
        sent = [(d, (d - step) % n, chunks[d][(d - step) % n]) for d in range(n)]
        for d, c, chunk in sent:
            right = (d + 1) % n
            if chunk.size:
                chunks[right][c] = chunk.copyto(data[right].ctx)
    for x, own in zip(data, chunks):
        x[:] = np.concatenate([chunk for chunk in own if chunk.size]).reshape(x.shape)
""",
    "split_and_load": """
    short, more = divmod(len(x), len(devices))
    shards, start = [], 0
    for k, device in enumerate(devices):
        stop = start + short + (k < more)
        shards.append(x[start:stop].copyto(device))
        start = stop
    return shards
""",
    "train_batch": """
    used = devices[: len(X)]
    X_shards, y_shards = split_and_load(X, used), split_and_load(y, used)
    with autograd.record():
        losses = [loss(X, y, params) for X, y, params in zip(X_shards, y_shards, device_params)]
    autograd.backward(losses)
    for params in device_params[len(used):]:
        for param in params:
            param.grad[:] = 0
    for same in zip(*device_params):
        naive_allreduce([param.grad for param in same])
    for params in device_params:
        for param in params:
            param -= lr / len(X) * param.grad
""",
    "accumulate": """
    total, samples = [np.zeros_like(param) for param in params], 0
    for X, y in micro_batches:
        with autograd.record():
            l = loss(X, y, params)
        l.backward()
        for grad, param in zip(total, params):
            grad += param.grad
        samples += len(X)
    for grad, param in zip(total, params):
        param -= lr / samples * grad
""",
    "fill_buckets": """
    buckets = []
    for i in reversed(range(len(nbytes))):
        if not buckets or sum(nbytes[j] for j in buckets[-1]) + nbytes[i] > room:
            buckets.append([])
        buckets[-1].append(i)
    return buckets
""",
    "gpipe": """
    cycles = 2 * (micro_batches + stages - 1)
    rows = [[""] * cycles for _ in range(stages)]
    for s in range(stages):
        for m in range(micro_batches):
            rows[s][s + m] = f"F{m}"
            rows[s][cycles - 1 - s - m] = f"B{m}"
    return rows
""",
    "exchange_halos": """
    for above, below in zip(tiles, tiles[1:]):
        below[:halo] = above[-2 * halo:-halo].as_in_ctx(below.ctx)
        above[-halo:] = below[halo:2 * halo].as_in_ctx(above.ctx)
""",
    "fit_alpha_beta": """
    import numpy
    A = numpy.array([[1 / t, m / t] for m, t in zip(nbytes, seconds)])
    return tuple(numpy.linalg.lstsq(A, numpy.ones(len(nbytes)), rcond=None)[0])
""",
    "sharded_step": """
    start = 0
    for k, v in enumerate(velocities):
        stop = start + len(v)
        total = device_grads[k][start:stop]
        for j, grad in enumerate(device_grads):
            if j != k:
                total = total + grad[start:stop].as_in_ctx(v.ctx)
        v[:] = momentum * v + total / batch_size
        new = device_params[k][start:stop] - lr * v
        for params in device_params:
            params[start:stop] = new.as_in_ctx(params.ctx)
        start = stop
""",
    "reduce_scatter": """
    n, chunks = len(data), []
    for k, x in enumerate(data):
        total = np.array_split(x, n)[k]
        for other in data:
            if other is not x:
                total = total + np.array_split(other, n)[k].as_in_ctx(x.ctx)
        chunks.append(total)
    return chunks
""",
    "all_gather": """
    vectors = []
    for mine in chunks:
        here = [chunk.as_in_ctx(mine.ctx) for chunk in chunks]
        vectors.append(np.concatenate([chunk for chunk in here if chunk.size]))
    return vectors
""",
}
