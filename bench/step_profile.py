"""Where the time of training steps goes: `python -m bench.step_profile`.

By PyTorch's profiler, which gives the processor time of each operation without what it calls. What an
operation belongs to is told by its name and, in attention, by its four dimensions.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bench.__main__ import work_of
from bench.measure import Steps, matmul_rate
from bench.ours import run
from bench.workload import Workload, real_data, set_threads

KINDS: dict[str, tuple[str, ...]] = {
    "matrix products": ("mm", "addmm", "mkldnn_linear", "_linear"),
    "attention": ("bmm", "baddbmm", "_softmax", "_softmax_backward_data"),
    "dropout": ("random_", "ge", "addcmul", "bernoulli_", "native_dropout", "native_dropout_backward"),
    "layer norm": ("native_layer_norm", "native_layer_norm_backward"),
    "GELU": ("gelu", "gelu_backward"),
    "casts and copies": ("copy_", "_to_copy", "to", "contiguous", "clone"),
    "sums of gradients": ("sum", "add_", "add"),
    "optimizer": ("_fused_adamw_",),
    "clipping": ("_foreach_norm", "linalg_vector_norm", "_foreach_mul_", "mul_"),
    "zeros": ("fill_", "zero_"),  # most of all for the gradient of word embeddings, a matrix a forward batch
    "word embeddings": ("embedding", "embedding_dense_backward", "index_select", "index", "index_put_"),
}
REST = "all else"


class ProfiledSteps(Steps):
    """Profiles all steps but the first."""

    def __init__(self, profiler: profile) -> None:
        super().__init__()
        self._profiler = profiler

    def ended(self) -> None:
        """A step is over."""
        super().ended()
        if not self.seconds:
            self._profiler.start()


def kind_of(name: str, shapes: Sequence[Sequence[int]]) -> str:
    """What an operation belongs to.

    Args:
        name: as the profiler has it, `aten::mm`.
        shapes: of its inputs.
    """
    bare = name.rpartition("::")[2]
    if bare in KINDS["dropout"]:
        return "dropout"
    if any(len(shape) == 4 for shape in shapes):  # (B, H, T, D) or (B, H, T, T)
        return "attention"
    return next((kind for kind, names in KINDS.items() if bare in names), REST)


def shares(operations: Iterable[Any]) -> dict[str, float]:
    """Share of the processor time by kind, the largest first.

    Args:
        operations: as `profile.key_averages(group_by_input_shape=True)` gives them.
    """
    seconds: dict[str, float] = defaultdict(float)
    for operation in operations:
        seconds[kind_of(operation.key, operation.input_shapes)] += operation.self_cpu_time_total
    total = sum(seconds.values())
    return {kind: seconds[kind] / total for kind in sorted(seconds, key=lambda kind: -seconds[kind])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each batch and precision."""
    parser = argparse.ArgumentParser(prog="python -m bench.step_profile", description=__doc__)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 128], help="tuples a step")
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=2, help="the first is not in it")
    parser.add_argument("--data", default=real_data() or "sample", help="sample, or a folder")
    parser.add_argument("--model", help="a model folder; default: the packaged MiniLM")
    parser.add_argument("--operations", type=int, default=0, help="show so many single operations too")
    options = parser.parse_args(arguments)
    for size in options.batch_sizes:
        for precision in options.precision:
            workload = Workload(
                options.data, options.model, options.steps, size, precision, dropout=True, score=False
            )
            set_threads(workload)
            _print(workload, options.operations)
    return 0


def _print(workload: Workload, num_operations: int) -> None:
    dtype = torch.bfloat16 if workload.precision == "bf16" else torch.float32
    rate = matmul_rate(dtype)
    plain = run(workload)
    rate = max(rate, matmul_rate(dtype))
    assert plain.train is not None
    reached = work_of(workload).train_operations / plain.train.cpu / rate
    with_shapes = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    steps = ProfiledSteps(with_shapes)
    run(workload, steps)
    with_shapes.stop()
    found = with_shapes.key_averages(group_by_input_shape=True)
    seconds = plain.train.cpu / (workload.steps - 1)
    print(
        f"batch {workload.batch_size}, {workload.precision}: {seconds:.2f} s of processor time a step, "
        f"{reached:.0%} of the matrix product's rate"
    )
    for kind, share in shares(found).items():
        print(f"  {kind:<20}{share:>6.1%}")
    if num_operations:
        print(found.table(sort_by="self_cpu_time_total", row_limit=num_operations, max_name_column_width=60))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
