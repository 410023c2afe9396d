"""The pictures of the documents, taken of the real page: ``make screenshots``."""
