"""Typed stores: the objects that processors see, with serdes over byte rows."""
