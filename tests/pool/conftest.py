"""Pools and plans over real workers of this interpreter."""

from tests.pools import make_plan, plan, pool, pythons, settings

__all__ = ["make_plan", "plan", "pool", "pythons", "settings"]
