"""Caches of a base station: policies, adaptive multipart caching, and the three caches.

`interface` declares the cache interface; `w_tinylfu` and `s3_fifo` implement it; `policies`
chooses. `adaptive_multipart` divides one capacity among worlds. `local_popularity`, `prefetch` and
`global_cache` are the three caches of a station, and `station_caches` is all of them together.
Clauses: I12, I13, I14, I15, I16.
"""
