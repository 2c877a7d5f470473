"""Text to embedding: one forward path for training and scoring."""
