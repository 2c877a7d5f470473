"""`python -m train` and `python -m train.evaluate`: the programs of `idiomtune` by their modules.

Nothing of `idiomtune` imports this package, so a file `train.py` of the user's own hides only these names.
"""
