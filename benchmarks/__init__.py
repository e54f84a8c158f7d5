"""Benchmarks: figures, not tests. ``python -m benchmarks`` measures this package and its peers side by side; see ``--help``."""
