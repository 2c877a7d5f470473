"""A whole fine-tuning in several ways, ours, sentence-transformers' and the predecessor's: speed, memory, scores."""
