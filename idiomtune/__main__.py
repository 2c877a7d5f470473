"""`python -m idiomtune <program> …`, and the console command."""

from idiomtune.programs.console import main

if __name__ == "__main__":
    main()
