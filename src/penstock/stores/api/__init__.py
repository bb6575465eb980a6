"""The public side of stores.

    store.py          `StateStore`, the interface of a store, and `StoreContext`
    stores.py         `Stores`, the factory of suppliers and builders
    suppliers.py      suppliers: what a store keeps, and for how long
    builder.py        `StoreBuilder`: a typed store over a supplier
    dsl_suppliers.py  the default stores of the DSL
    state_serdes.py   `StateSerdes`: the serdes of a custom store
    results.py        iterators and values that stores return
"""
