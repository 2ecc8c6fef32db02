"""What all substrates share: inputs, actions, messages, requests, operations with retries.

A node has one door. An input at an instant goes in; the actions it asks its driver to carry out
come back. See `node.Node`.
"""
