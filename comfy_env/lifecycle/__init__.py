"""The lifecycle contract as a pure machine: no clock, lock, thread, logger, future or hook in here."""
