"""`python -m train.explore`, as `idiomtune explore`."""

import sys

from idiomtune.__main__ import main

main(["explore", *sys.argv[1:]])
