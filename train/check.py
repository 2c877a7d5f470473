"""`python -m train.check`, as `idiomtune check`."""

import sys

from idiomtune.__main__ import main

main(["check", *sys.argv[1:]])
