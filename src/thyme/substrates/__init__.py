"""Substrates: implementations of the Thyme operations on different network structures.

`es` has one server, `ls` stores objects at their owners and floods subscriptions, `dcs` stores
metadata and subscriptions in geographic cells, and `solo` is a local world without a network.
`common` contains the parts they share: broker, client and own subscriptions. `factory` combines a
substrate with its routing.
"""
