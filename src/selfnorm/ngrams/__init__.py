"""N-gram models: estimate them from text, write, read and query ARPA files."""
