"""Public API: the classes and functions that applications use.

`join` has the functions that open a world; `World` is the API with async and await, `CallbackWorld`
the same with plain callbacks. Both reach a node through a `NodePort`, in this process or another
(`remote`).
Clauses: M13–M20, M26–M33.
"""
