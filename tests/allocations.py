"""What torch allocates on a CPU, counted exactly."""

from __future__ import annotations

import gc
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def allocated(run: Callable[[], None]) -> int:
    """The most bytes of what is allocated in a call that are there at a time."""
    gc.collect()  # what came before must not be freed in between
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    assert profiled.profiler is not None
    found = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in found if e.name() == "[memory]")
    live = most = 0
    for _, size in changes:
        live += size
        most = max(most, live)
    return most
