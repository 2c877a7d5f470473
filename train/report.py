"""`python -m train.report`, as `idiomtune report`."""

import sys

from idiomtune.__main__ import main

main(["report", *sys.argv[1:]])
