"""Searches over hyperparameters: trials of an Optuna study, one after the other."""
