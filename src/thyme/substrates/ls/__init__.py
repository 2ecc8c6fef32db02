"""Thyme-LS: objects are stored at their owners, subscriptions are flooded to all nodes.

`node` is the entry point; `flooded_queries` floods requests and collects the replies;
`subscription_fetch` fetches the subscriptions known to neighbours.
"""
