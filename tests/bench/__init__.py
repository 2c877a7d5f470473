"""A whole fine-tuning in two ways, ours and the predecessor's: how long, how much memory, which scores."""
