"""From the command line to a checked configuration, and from an error to a message."""
