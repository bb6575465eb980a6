"""The public side of stores: the store interface, builders, suppliers and iterators."""
