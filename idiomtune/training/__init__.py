"""The training loop, its checkpoints and run folder, and its parts."""
