"""Find, verify and prepare model weights, so that every engine reads the same files.

Whatever is asked for (``smollm2``, a local path, a hub id) ends as one folder in the cache:
``config.json``, ``generation_config.json``, safetensors weights, ``tokenizer.json`` with its
settings, and a ``manifest.json`` that says what they must be. The work is done once, in a child
process: this package's light half (everything but ``convert.py``) imports neither torch nor
transformers.
"""

from backends.models.describe import PreparedModel, shape_of, unsupported_reason
from backends.models.prepare import prepare_model

__all__ = ["PreparedModel", "prepare_model", "shape_of", "unsupported_reason"]
