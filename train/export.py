"""`idiomtune export`: a model for serving (ONNX, 8-bit, static), scored next to the model itself."""

from typing import Any

from train.config import ExportSettings
from train.io.files import printable
from train.programs.launch import launch, ready


def run(config: dict[str, Any]) -> None:
    """Export, and print the new folder."""
    settings: ExportSettings = ready(ExportSettings, config)
    from train.programs.export import export

    print(printable(str(export(settings))))


def main() -> None:
    launch("export", run)


if __name__ == "__main__":
    main()
