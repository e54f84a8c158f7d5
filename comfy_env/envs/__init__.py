"""Environments on disk: where they lie, who builds them, what state they are in."""
