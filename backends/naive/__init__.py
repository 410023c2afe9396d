"""The naive server: batches of strings, a worker process, and no KV cache.

Read in this order: ``workload_manager.py`` (who is in the batch), ``engine.py`` (the loops),
``model_executor.py`` (asking the worker), ``model_worker.py`` (the forward pass).
"""
