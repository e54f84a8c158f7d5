"""Benchmarks: figures, not tests. ``python -m benchmarks`` runs all of them and writes benchmarks/out/results.json."""
