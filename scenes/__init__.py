"""The recordings in ``assets/traces/``: what is done on which engine, and how that becomes a file.

``make record`` makes all of them, ``make record ARGS="vllm-preemption paged-room"`` those named.
"""
