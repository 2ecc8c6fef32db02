"""Subscription index: finds the active subscriptions that a new object matches (M15)."""
