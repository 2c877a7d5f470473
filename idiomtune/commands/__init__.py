"""The programs' entry points: each module is one command, `idiomtune report` and so on."""
