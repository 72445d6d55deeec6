"""For each exercise a function body that is right, and changes of it that make the usual mistakes.

They stand here, and neither beside the exercises nor in the wheel.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

SOLUTIONS: Dict[str, str] = {
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
}

Change = Tuple[str, str]
"""Old and new text of the solution."""

MISTAKES: Dict[str, List[Tuple[str, List[Change]]]] = {
    "naive_allreduce": [
        ("Device 0 has the sum, and the others", [("total.copyto(x)", "pass")]),
        ("It must overwrite it", [("total.copyto(x)", "x += total.copyto(x.ctx)")]),
        (
            "That is the mean",
            [
                (
                    "    for x in data[1:]:\n        total.copyto",
                    "    total /= len(data)\n    for x in data[1:]:\n        total.copyto",
                )
            ],
        ),
        ("but for cpu(0)", [("total += x.copyto(total.ctx)", "total = total + x.copyto(total.ctx)")]),
        (
            "The arrays are as they were",
            [("total = data[0]", "total = data[0].copy()"), ("total.copyto(x)", "x = total")],
        ),
        (
            "hold sums already",
            [
                ("total += x.copyto(total.ctx)", "pass"),
                ("total.copyto(x)", "pass"),
                (
                    "    total = data[0]\n",
                    "    for x in data:\n        for y in data:\n            if x is not y:\n                x += y.copyto(x.ctx)\n",
                ),
            ],
        ),
    ],
    "ring_allreduce": [
        ("The all-gather is missing", [("chunks[right][c] = chunk.copyto", "_ = chunk.copyto")]),
        ("the all-gather begins with chunk c - 1", [("(d - step) % n", "(d - step - 1) % n")]),
        ("The reduce-scatter is one chunk ahead", [("(d - step - 1) % n", "(d - step) % n")]),
        ("it must be added", [("chunks[right][c] + chunk", "chunk")]),
        (
            "It must overwrite it",
            [("chunks[right][c] = chunk.copyto", "chunks[right][c] = chunks[right][c] + chunk.copyto")],
        ),
        ("The arrays are as they were", [("x[:] = ", "x = ")]),
        (
            "left out",
            [
                ("np.array_split(x.reshape(-1), n)", "np.array_split(x.reshape(-1)[: x.size // n * n], n)"),
                (
                    "x[:] = np.concatenate([chunk for chunk in own if chunk.size]).reshape(x.shape)",
                    "whole = np.concatenate([chunk for chunk in own if chunk.size] or [x[:0]])\n        if x.ndim == 1 and len(whole):\n            x[: len(whole)] = whole\n        elif len(whole):\n            x[:] = whole.reshape(x.shape)",
                ),
            ],
        ),
        (
            "In a ring a device sends to its right neighbour alone",
            [
                (
                    "    n = len(data)\n",
                    "    total = data[0]\n    for x in data[1:]:\n        total += x.copyto(total.ctx)\n    for x in data[1:]:\n        total.copyto(x)\n    return\n",
                )
            ],
        ),
        (
            "in a ring one chunk travels in each step",
            [
                (
                    "            if chunk.size:\n                chunks[right][c] = chunk.copyto",
                    "            data[d].copyto(data[right].ctx)\n            if chunk.size:\n                chunks[right][c] = chunk.copyto",
                )
            ],
        ),
    ],
    "split_and_load": [
        ("which is lost", [("short + (k < more)", "short")]),
        (
            "The last device has all of the remainder",
            [("short + (k < more)", "(short if device is not devices[-1] else len(x) - start)")],
        ),
        ("The longer shards come last", [("(k < more)", "(k >= len(devices) - more)")]),
        ("Shards differ by at most", [("short + (k < more)", "-(-len(x) // len(devices))")]),
        ("dealt out like cards", [("x[start:stop]", "x[k :: len(devices)]")]),
        ("lie on cpu(0)", [(".copyto(device)", "")]),
        ("return a list", [("return shards", "")]),
    ],
    "train_batch": [
        (
            "The parameters are as they were",
            [("param -= lr / len(X) * param.grad", "param = param - lr / len(X) * param.grad")],
        ),
        (
            "Each replica took the gradient of its own shard",
            [("naive_allreduce([param.grad for param in same])", "pass")],
        ),
        ("is not divided: divide it", [("lr / len(X)", "lr")]),
        (
            "by the length of a shard",
            [
                ("X_shards, y_shards =", "own = split_and_load(X, used)\n    X_shards, y_shards ="),
                ("for params in device_params:", "for params, X in zip(device_params, own):"),
            ],
        ),
        ("averaged twice", [("lr / len(X)", "lr / len(X) / len(devices)")]),
        ("goes uphill", [("param -= ", "param += ")]),
        (
            "mean of the shards' means",
            [
                ("losses = [loss(X, y, params) for", "losses = [loss(X, y, params).mean() for"),
                ("lr / len(X)", "lr / len(devices)"),
            ],
        ),
    ],
    "accumulate": [
        ("The parameters are as they were", [("param -= ", "param = param - ")]),
        ("Only the last micro-batch counts", [("grad += param.grad", "grad[:] = param.grad")]),
        (
            "counts twice",
            [
                (
                    "total, samples = [np.zeros_like(param) for param in params], 0",
                    "total, samples = [param.grad for param in params], 0",
                ),
                ("grad += param.grad", "grad += param.grad"),
            ],
        ),
        ("is not divided", [("lr / samples", "lr")]),
        ("divided by the number of micro-batches", [("lr / samples", "lr / len(micro_batches)")]),
        (
            "micro-batches' means",
            [
                ("l.backward()", "l.mean().backward()"),
                ("lr / samples", "lr / len(micro_batches)"),
                ("            l = loss(X, y, params)", "            l = loss(X, y, params).mean()"),
                ("l.mean().backward", "l.backward"),
            ],
        ),
        (
            "ordinary SGD with small batches",
            [
                ("samples += len(X)", "for param in params:\n            param -= lr / len(X) * param.grad"),
                ("lr / samples", "0"),
            ],
        ),
        (
            "still has the first step's gradients",
            [
                (
                    "    total, samples = [np.zeros_like(param) for param in params], 0\n",
                    "    total, samples = KEPT.setdefault(id(params), (params, [np.zeros_like(param) for param in params]))[1], 0\n",
                )
            ],
        ),
    ],
    "fill_buckets": [
        ("filled from the first parameter on", [("reversed(range(len(nbytes)))", "range(len(nbytes))")]),
        ("Keep backward's order in a", [("return buckets", "return [sorted(bucket) for bucket in buckets]")]),
        ("The last bucket is missing", [("return buckets", "return buckets[:-1]")]),
        ("one gradient too many", [(" + nbytes[i] > room", " >= room")]),
        ("compare with <=", [("> room", ">= room")]),
        ("There is an empty bucket", [("buckets = []", "buckets = [[]]")]),
        ("These are sizes", [("append(i)", "append(nbytes[i])"), ("nbytes[j] for j in", "j for j in")]),
    ],
    "gpipe": [
        ("in the order of the forward passes", [("cycles - 1 - s - m", "cycles // 2 + stages - 1 - s + m")]),
        (
            "All stages work at the same time",
            [
                ("[s + m]", "[m]"),
                ("cycles - 1 - s - m", "2 * micro_batches - 1 - m"),
                ("cycles = 2 * (micro_batches + stages - 1)", "cycles = 2 * micro_batches"),
            ],
        ),
        ("there are no backward passes", [('            rows[s][cycles - 1 - s - m] = f"B{m}"\n', "")]),
        ("in an earlier", [("[s + m]", "[(stages - 1 - s) + m]")]),
    ],
    "exchange_halos": [
        ("No halo was filled", [("below[:halo] =", "_ ="), ("above[-halo:] =", "_ =")]),
        (
            "The old halos travelled",
            [
                ("above[-2 * halo:-halo]", "above[-halo:]"),
                ("below[halo:2 * halo]", "old"),
                ("        below[:halo]", "        old = below[:halo].copy()\n        below[:halo]"),
            ],
        ),
        ("those below are not", [("above[-halo:] =", "_ =")]),
        ("those above are not", [("below[:halo] =", "_ =")]),
        (
            "far end of the neighbour",
            [("above[-2 * halo:-halo]", "above[halo:2 * halo]"), ("below[halo:2 * halo]", "below[-2 * halo:-halo]")],
        ),
        ("A picture is no ring", [("zip(tiles, tiles[1:])", "zip(tiles, tiles[1:] + tiles[:1])")]),
        (
            "send the rows of the halo alone",
            [("above[-2 * halo:-halo].as_in_ctx(below.ctx)", "above.as_in_ctx(below.ctx)[-2 * halo:-halo]")],
        ),
    ],
    "fit_alpha_beta": [
        ("return alpha first", [("rcond=None)[0])", "rcond=None)[0][::-1])")]),
        (
            "not the bytes in a second",
            [("return tuple(", "alpha, beta = ("), ("rcond=None)[0])", "rcond=None)[0])\n    return alpha, 1 / beta")],
        ),
        ("decides alone", [("[1 / t, m / t]", "[1, m]"), ("numpy.ones(len(nbytes))", "numpy.array(seconds)")]),
        (
            "alpha is the time of the smallest message",
            [("return tuple(", "alpha, beta = ("), ("rcond=None)[0])", "rcond=None)[0])\n    return seconds[0], beta")],
        ),
        ("goes through zero", [("[1 / t, m / t]", "[0, m / t]")]),
    ],
    "sharded_step": [
        ("Nothing has changed", [("v[:] = ", "v = "), ("params[start:stop] = ", "_ = ")]),
        (
            "the all-gather is missing",
            [
                ("params[start:stop] = new", "device_params[k][start:stop] = new"),
                ("as_in_ctx(params.ctx)", "as_in_ctx(v.ctx)"),
            ],
        ),
        ("the reduce-scatter is", [("if j != k", "if False")]),
        ("once more than they should be", [("total / batch_size", "total / batch_size / len(velocities)")]),
        ("is not divided by batch_size", [("total / batch_size", "total")]),
        ("the velocity is as it was", [("v[:] = ", "v = ")]),
        ("are enough", [("grad[start:stop].as_in_ctx(v.ctx)", "grad.as_in_ctx(v.ctx)[start:stop]")]),
    ],
}
"""By exercise: words that the answer must have, and what is changed in the solution."""


def changed(name: str, changes: List[Change]) -> str:
    """The solution with the changes."""
    body = SOLUTIONS[name]
    for old, new in changes:
        assert old in body, f"{name}: {old!r} is not in the solution"
        body = body.replace(old, new)
    return body
