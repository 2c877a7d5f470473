"""Files, text, messages and the network, for all other packages."""
