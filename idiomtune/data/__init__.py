"""One module per data set (records, checks), and the origin of data sets (`sources`)."""
