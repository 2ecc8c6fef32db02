"""Caches of a base station: adaptive multipart caching, and the three caches.

`policies` has the cache interface and the eviction policies. `adaptive_multipart` divides one
capacity among worlds. `local_popularity`, `prefetch` and `global_cache` are the three caches of a
station, and `station_caches` is all of them together.
Clauses: I12, I13, I14, I15, I16.
"""
