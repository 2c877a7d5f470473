"""The run folder: its lock, its contents, resuming, trackers."""
