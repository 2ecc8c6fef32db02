"""Common parts of substrates: broker, catalogue, client, subscriber, tombstones, quotas."""
