"""The advice for stores that do not continue by themselves: the step, the argument and the value.

`--keep` and `--drop` are options of `penstock upgrade`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.topology.application_info import ApplicationInfo, StoreInfo

#: Role of a store -> (what the step is, the argument that takes the exact name of the store).
_ARGUMENTS = {
    "rows": ("step", "store={}"),
    "subscriptions": ("foreign-key join", "subscription_store={}"),
    "suppress": ("suppress step", "Suppressed(..., store={})"),
    "grace": ("stream-table join", "buffer_store={}"),
    "this": ("stream-stream join", "this_store={}"),
    "other": ("stream-stream join", "other_store={}"),
    "shared": ("stream-stream join", "shared_store={}"),
    "processor": ("processor", "the store builder's name {}"),
}
_NUMBERS_CHANGE = "Generated numbers change when steps are added or removed."


def exact_name_argument(role: str, name: str) -> str:
    """Return the code that gives a store of this role an exact name."""
    return _ARGUMENTS[role][1].format(f"'{name}'")


def explain_renamed(
    name: str, other: str, new: ApplicationInfo, renamed: Collection[str]
) -> str:
    """Explain that a store has another name now, and how to keep the old one.

    `renamed` are all stores that should get their old names.
    """
    after = new.stores[other]
    cause = _NUMBERS_CHANGE if after.generated else "Rows stay with the old name."
    return (
        f"Store '{name}' is now named '{other}', so its rows would be lost. {cause} Give the "
        f"{_step(after)} its old store name: {exact_name_argument(after.role, name)}."
        f"{'' if name in renamed else _first_free(name, new)} If '{other}' is another store, drop "
        f"the rows: --drop {name}."
    )


def explain_unclear(name: str, others: tuple[str, ...], new: ApplicationInfo) -> str:
    """Explain that several stores may continue an earlier one, and how to choose."""
    after = new.stores[others[0]]
    argument = exact_name_argument(after.role, name)
    steps = _listed(new.stores[other].step for other in others)
    drop = f"If none does, drop the rows: --drop {name}."
    if name in others:
        return (
            f"Store '{name}' belonged to one of several steps that differ only in their functions, "
            f"and their number has changed: now {steps}. Numbers do not tell which step is new. "
            f"Give the step that continues the store its name: {argument}, and give the stores of "
            f"new steps other names. {drop}"
        )
    return (
        f"Store '{name}' was removed, and {_listed(others)} may continue it. Rows stay with the "
        f"old name, so they would be lost. Give the step that continues the store ({steps}) its "
        f"old store name: {argument}; or move the rows: --keep {name}={others[0]}. {drop}"
    )


def explain_other_role(name: str, before: StoreInfo, after: StoreInfo) -> str:
    """Explain that a name belongs to a store with another purpose now."""
    return (
        f"Store '{name}' belonged to a {_ARGUMENTS[before.role][0]}, as "
        f"{exact_name_argument(before.role, name)}, and is now another store of the "
        f"{_step(after)}. It cannot use the existing rows. Give the name with the first argument, "
        f"or rename the store and drop the rows: --drop {name}."
    )


def explain_removed(name: str, old: ApplicationInfo, new: ApplicationInfo) -> str:
    """Explain that another step has taken over the name of a store."""
    after = new.stores[name]
    before, now = old.origins(name), new.origins(name)
    change = ""
    if before and now and before.isdisjoint(now):
        change = f": it was computed from {_listed(before)}, and now it is from {_listed(now)}"
    return (
        f"Store '{name}' now belongs to another step{change}. {_NUMBERS_CHANGE} Name the store of "
        f"the {_step(after)}: {exact_name_argument(after.role, 'another-name')}. If the earlier "
        f"rows are not needed, drop them: --drop {name}."
    )


def _first_free(name: str, new: ApplicationInfo) -> str:
    """Return what to do if another step has the name already."""
    taken = new.stores.get(name)
    if taken is None:
        return ""
    argument = exact_name_argument(taken.role, "another-name")
    return f" The {_step(taken)} has that name now; give its store another one: {argument}."


def _step(store: StoreInfo) -> str:
    return f"{_ARGUMENTS[store.role][0]} '{store.step}'"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(set(names)))
