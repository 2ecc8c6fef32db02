"""Wire: bytes of messages between nodes (`codec`) and of requests of applications (`app_rpc`)."""
