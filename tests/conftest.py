"""For all tests."""

from hypothesis import settings

# How long an example takes says nothing about the code on a machine that does other things as well.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
