"""`python -m idiomtune <program> …`, as `idiomtune <program> …`."""

from idiomtune.cli import main

if __name__ == "__main__":
    main()
