"""The parts of the demo; `demo.py` beside this folder puts them together."""
