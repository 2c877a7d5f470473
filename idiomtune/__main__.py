"""`python -m idiomtune <program> …`, and the console command."""

import idiomtune  # noqa: F401  first: `train` is then ours, whatever file has that name
from idiomtune.programs.console import main

if __name__ == "__main__":
    main()
