"""`python -m train.learn`, as `idiomtune learn`."""

import sys

from idiomtune.__main__ import main

main(["learn", *sys.argv[1:]])
