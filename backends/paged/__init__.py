"""The paged batcher: PagedAttention and continuous batching, written to be read.

``README.md`` beside this file follows one request through the files.
"""
