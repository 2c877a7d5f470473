"""`python -m train.gate`, as `idiomtune gate`."""

import sys

from idiomtune.__main__ import main

main(["gate", *sys.argv[1:]])
