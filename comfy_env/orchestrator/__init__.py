"""A long-running local service that owns a worker pool, never loses a message, and replaces itself when nobody minds.

A long-running process is a cache of its own code: what is pure here (`state`, `gate`, `devwatch`) decides when the disk
has moved on and which moment costs the user nothing; the rest carries it out.
"""
