"""One outside thing each: torch, checkpoint folders, the blob store's batches, TensorBoard and CSV."""
