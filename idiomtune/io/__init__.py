"""Files, text, messages and the network: what every other package reads and writes by."""
