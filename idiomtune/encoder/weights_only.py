"""`python weights_only.py <pytorch_model.bin>… <model.safetensors>`: the weights of pickles as safetensors.

A program of its own, started by :mod:`idiomtune.encoder.loading`: a file that breaks the reader breaks
nothing else. PyTorch reads tensors alone (`weights_only`), so no code in a file is run.
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
            print(f"{source}: not read as weights: {' '.join(str(error).split())}", file=sys.stderr)
            return 1
        items = content.items() if isinstance(content, dict) else []
        if not items or not all(isinstance(name, str) and isinstance(t, Tensor) for name, t in items):
            print(f"{source}: holds something other than names with their weights", file=sys.stderr)
            return 1
        # Tied weights share memory, which safetensors do not keep.
        tensors |= {name: tensor.detach().clone().contiguous() for name, tensor in items}
    save_file(tensors, target, metadata={"format": "pt"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
