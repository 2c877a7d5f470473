"""`python -m train.evaluate`, as `idiomtune evaluate`."""

import sys

from idiomtune.__main__ import main

main(["evaluate", *sys.argv[1:]])
