"""What does a model find, and why? `idiomtune explore <run or model>…`: a page on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

from idiomtune.config.settings import ExploreSettings
from idiomtune.io.files import printable, write_text
from idiomtune.io.outputs import check_output, reserved_output


def explore(options: ExploreSettings) -> Path | None:
    """Serve the page until Ctrl-C, or write it; returns its file.

    Raises:
        UserError: for everything that the user can fix.
    """
    if options.output is not None:
        check_output("output", options.output, overwrite=options.overwrite)
    # Heavy: after the output is known to be free.
    from idiomtune.explorer.models import explorer_of, find_models
    from idiomtune.explorer.server import bound_socket, check_can_serve, page, serve

    print(printable(f"exploring {', '.join(options.models)}"), file=sys.stderr, flush=True)
    if options.output is not None:
        with reserved_output("output", options.output, overwrite=options.overwrite) as file:
            explorer, title = explorer_of(options)
            write_text(file, page(explorer, title, live=False))
        return options.output
    for name in options.models:  # a typo is reported before a package that is missing
        find_models(name, trust_remote_code=options.trust_remote_code)
    check_can_serve()
    with bound_socket(options.port) as listening:
        explorer, title = explorer_of(options)
        serve(explorer, page(explorer, title, live=True), listening)
    return None
