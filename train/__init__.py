"""`python -m train`, as `idiomtune train`.

Nothing of `idiomtune` imports this package, so a file `train.py` of the user's own hides only this command.
"""
