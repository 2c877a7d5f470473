"""`idiomtune export`: a model for serving (ONNX, 8-bit, static), scored next to the model itself."""

from pathlib import Path
from typing import Any

from idiomtune.config import ExportSettings
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> Path:
    """Export; returns the new folder."""
    settings = ready(ExportSettings, config)
    from idiomtune.programs.export import export

    return export(settings)


if __name__ == "__main__":
    launch("export", run)
