"""Protocol: the parts shared by all substrates: inputs, actions, messages, requests and retries.

Entry point: `node.Node`, which takes one input at an instant and returns the actions for its
driver. The substrates (`thyme.substrates`) implement it.
"""
