"""Many requests as data, and running them on an engine: what races and lessons are made of."""
