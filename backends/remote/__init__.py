"""Any OpenAI-compatible server, or several: ``vllm serve``, SGLang, llama.cpp, Ollama, TensorRT-LLM, llm-d.

::

    engine.py ──a request──► fleet.py ──the least loaded──► client.py ──HTTP──► server
        ▲                      │  who is up                    │ bytes, stamped as they are read
        │                      ▼                               ▼
     records ◄── answer.py ◄── dialect.py (what is said) ◄── sse.py (events)
                               prometheus.py (/metrics)
"""
