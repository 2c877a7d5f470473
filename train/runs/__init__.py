"""The run folder: whose it is, what is in it, going on with it, trackers."""
