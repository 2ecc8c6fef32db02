"""Live stations: a base station on asyncio, with UDP to mobile nodes and TCP to other stations."""
