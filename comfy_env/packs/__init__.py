"""What a node pack declares: its identity, its environments, and the rules its lines must keep."""
