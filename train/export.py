"""`python -m train.export`: a model for serving (ONNX, 8-bit, static), scored beside the model itself."""

from typing import Any

from train.cli.launch import launch
from train.config import ExportSettings
from train.io.text import printable
from train.recipes.ready import ready


def run(config: dict[str, Any]) -> None:
    """Export, and print the new folder."""
    settings: ExportSettings = ready(ExportSettings, config)
    from train.recipes.export import export

    print(printable(str(export(settings))))


def main() -> None:
    launch("export", run)


if __name__ == "__main__":
    main()
