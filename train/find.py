"""`python -m train.find`, as `idiomtune find`."""

import sys

from idiomtune.__main__ import main

main(["find", *sys.argv[1:]])
