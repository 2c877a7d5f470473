"""The training loop, and what it starts from, keeps and ends with."""
