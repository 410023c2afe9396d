"""The page. With app.py the only place that imports gradio; draws nothing that an engine did not tell."""
