"""Glossaries: reading them, meanings in texts, the gate of usage, and an encoder with all of these."""
