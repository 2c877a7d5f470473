"""`python -m train`, as `idiomtune train`."""

from idiomtune.commands.train import main

if __name__ == "__main__":
    main()
