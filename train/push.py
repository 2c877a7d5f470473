"""`python -m train.push`, as `idiomtune push`."""

import sys

from idiomtune.__main__ import main

main(["push", *sys.argv[1:]])
