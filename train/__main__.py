"""`python -m train`, as `idiomtune train`."""

import sys

from idiomtune.cli import main

main(["train", *sys.argv[1:]])
