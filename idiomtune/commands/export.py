"""`idiomtune export`: a model for serving (ONNX, 8-bit, static), scored next to the model itself."""

from typing import Any

from idiomtune.config import ExportSettings
from idiomtune.io.files import printable
from idiomtune.programs.launch import launch, ready


def run(config: dict[str, Any]) -> None:
    """Export, and print the new folder."""
    settings: ExportSettings = ready(ExportSettings, config)
    from idiomtune.programs.export import export

    print(printable(str(export(settings))))


def main() -> None:
    launch("export", run)


if __name__ == "__main__":
    main()
