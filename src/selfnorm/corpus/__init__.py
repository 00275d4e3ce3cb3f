"""Text -> token store (memory-mapped ids) -> batches. Only `batches` and `ahead` import PyTorch."""
