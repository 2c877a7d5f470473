"""Fine-tuning in three ways, ours, sentence-transformers' and the predecessor's: speed, memory, scores."""
