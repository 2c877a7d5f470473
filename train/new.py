"""`python -m train.new`, as `idiomtune new`."""

import sys

from idiomtune.__main__ import main

main(["new", *sys.argv[1:]])
