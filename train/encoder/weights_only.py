"""`python weights_only.py <pytorch_model.bin>… <model.safetensors>`: the weights of pickles as safetensors.

A program of its own, started by :mod:`train.encoder.conversion`: a file that breaks the reader breaks nothing
else. PyTorch reads tensors alone (`weights_only`), so no code in a file is run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from safetensors.torch import save_file
from torch import Tensor


def main(arguments: Sequence[str]) -> int:
    """Convert; the reason of a failure goes to stderr. Returns the exit status."""
    *sources, target = arguments
    tensors: dict[str, Tensor] = {}
    for source in sources:
        try:
            content = torch.load(source, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file makes the reader fail in any way
            print(f"{source}: not read as weights: {_reason(error)}", file=sys.stderr)
            return 1
        named = content if isinstance(content, dict) else {}
        if not named or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in named.items()):
            print(f"{source}: holds something other than names with their weights", file=sys.stderr)
            return 1
        # Tied weights share memory, which safetensors do not keep.
        tensors |= {name: tensor.detach().clone().contiguous() for name, tensor in named.items()}
    save_file(tensors, target, metadata={"format": "pt"})
    return 0


def _reason(error: BaseException) -> str:
    """The line that says what was refused, if there is one, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "unsupported" in line.lower()]
    return (named or lines or [type(error).__name__])[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
