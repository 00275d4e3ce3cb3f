"""What to say when the memory of a device does not suffice."""


def out_of_memory(n: int, k: int | None, c: int) -> str:
    """N positions, K samples (None: every word counts), C words: what was asked for, and what to lower."""
    samples, lower = ("every word", "the batch") if k is None else (f"K = {k} samples", "k, the batch")
    return (
        f"the sums over N = {n} positions and {samples} of C = {c} words do not fit into the device's memory; "
        f"lower {lower}, or most (the logits in memory at a time)"
    )
