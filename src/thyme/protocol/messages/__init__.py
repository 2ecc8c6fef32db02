"""Messages: the immutable records that nodes send to each other (docs/wire.md)."""
