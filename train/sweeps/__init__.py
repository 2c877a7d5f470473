"""Searches over hyperparameters: trials of an Optuna study, run by Hydra's launchers."""
