"""One module a dataset (records, checks), and where datasets come from (`sources`)."""
