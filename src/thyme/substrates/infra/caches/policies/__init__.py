"""Cache policies: the interface of all caches, W-TinyLFU and S3-FIFO."""
