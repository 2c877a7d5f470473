"""`python -m train`, as `idiomtune train`."""

import sys

from idiomtune.__main__ import main

main(["train", *sys.argv[1:]])
