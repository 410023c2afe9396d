"""``model.generate()`` behind a lock: one request at a time, or one static batch at a time."""
