"""The forward pass of ``plain_model.py`` again, by as few and as fast operations as the machine allows."""
