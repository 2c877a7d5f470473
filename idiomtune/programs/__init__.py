"""From the command line to a checked configuration, and from an error to a message."""

import os

# How often a thread of GNU's OpenMP looks whether the others are done before it sleeps. By default 300,000
# times: beside another program it waits for threads that do not run, and keeps these from running. Read once,
# when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")
