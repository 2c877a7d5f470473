"""The benchmarks in other people's frameworks."""
