"""Engines and everything without a UI. Nothing below this package imports gradio."""
