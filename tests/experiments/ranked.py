"""What do the processes of one case do, and what becomes of the others if one of them fails?

The setting ``fault`` says what the last of them does in a round. Without an engine it needs no MXNet.
"""

import os
import time

from mxdp.experiments.lab import Case, Work, ranks

PRESETS = {"quick": dict(engine="", size=2, fault="")}


def cases(s):
    yield Case("all", 1, s.size, s.engine)


def expect(s, cores):
    return "They begin together."


def oracle(case, s):
    yield case.share(case.process + 1), list(range(1, s.size + 1)), 0.0
    if s.engine == ranks.ASYNC:
        from mxdp.experiments.many_processes.lenet_ranks import store

        yield store(s.engine).num_workers, s.size, 0.0
    elif s.engine == ranks.DDP:
        from torch import distributed, ones

        distributed.init_process_group("gloo")
        total = ones(1)
        distributed.all_reduce(total)
        yield total.numpy(), [s.size], 0.0
    elif s.engine:
        yield from summed(case, s)


def summed(case, s):
    """A gradient, twice by processes that join twice."""
    from mxdp.backend import np
    from mxdp.experiments.many_processes.lenet_ranks import join

    for _ in range(2):
        here, prepare = join(case)
        yield [here.rank, here.size], [case.process, s.size], 0.0
        param = np.zeros(3)
        param.attach_grad()
        sync = prepare([[param]])
        param.grad[:] = case.process + 1
        sync()
        yield param.grad.asnumpy(), [s.size * (s.size + 1) / 2] * 3, 0.0


def set_up(case, s):
    time.sleep(0.2 * case.process)
    ready = time.monotonic()

    def measure():
        began = time.monotonic()
        if s.fault and case.process < case.processes - 1:
            time.sleep(3600)
        if s.fault == "exit":
            os._exit(3)
        if s.fault == "raise":
            raise ValueError("broken")
        together = case.share((ready, began))
        waited = min(began for _, began in together) >= max(ready for ready, _ in together)
        return 1.0 + case.process, dict(process=case.process, waited=waited)

    return Work(measure, [f"device {case.process}"], process_of_facts=case.process)


def tell(t, s):
    t.answer("They do.")
