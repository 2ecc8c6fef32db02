"""How the operations are done: each substrate a room of its own, of parts they share.

`catalogue` and `broker` are the serving side (who stores and matches), `client` the asking side;
`es` puts them on one server, and `solo` is a world of one, which is its own server.
"""
