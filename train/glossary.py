"""`python -m train.glossary`, as `idiomtune glossary`."""

import sys

from idiomtune.__main__ import main

main(["glossary", *sys.argv[1:]])
