"""Real vLLM: ``AsyncLLM`` as people deploy it, with a window into its scheduler.

::

    web process              vLLM worker (worker.py)              EngineCore
    VllmEngine ── pipe ────► AsyncLLM: detokenizer, stops ── ZMQ ─► scheduler + TappedScheduler
       ◄── tokens, records ─ answers.py ◄─────── ZMQ ───────────── what each step did
"""
