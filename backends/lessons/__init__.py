"""Lessons: a text, a prediction to make, and an experiment on a real engine that measures it."""
