"""`python -m train.export`: a model for serving (ONNX, 8-bit, static), scored beside the model itself."""

from typing import Any

from train.cli.launch import launch
from train.config import ExportSettings, check
from train.io.text import printable


def run(config: dict[str, Any]) -> None:
    """Export, and print the new folder."""
    settings: ExportSettings = check(ExportSettings, config)
    from train.recipes.export import export  # heavy: after the configuration is known to be right

    print(printable(str(export(settings))))


def main() -> None:
    launch("export", run)


if __name__ == "__main__":
    main()
