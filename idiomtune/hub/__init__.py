"""Publishing a model: its card, its licence, its files."""
