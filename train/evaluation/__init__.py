"""All benchmarks on one checkpoint."""
