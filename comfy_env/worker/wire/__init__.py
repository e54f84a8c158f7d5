"""What both ends of a lane share: frames, kinds, and the values inside them. Knows not which end it is."""
