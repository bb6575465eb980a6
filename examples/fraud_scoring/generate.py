"""Generates card payments, some of them fraudulent. Only the generator knows which."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from fraud_scoring.features import HOUR_MS, Payment

#: name -> latitude, longitude
CITIES = {
    "Berlin": (52.52, 13.40), "Lisbon": (38.72, -9.14), "London": (51.51, -0.13),
    "Madrid": (40.42, -3.70), "Oslo": (59.91, 10.75), "Paris": (48.86, 2.35),
    "Rome": (41.90, 12.50), "Vienna": (48.21, 16.37), "Warsaw": (52.23, 21.01),
}
FAR_CITIES = {
    "Lagos": (6.52, 3.38), "Lima": (-12.05, -77.04), "Miami": (25.76, -80.19),
    "Osaka": (34.69, 135.50), "Perth": (-31.95, 115.86),
}
DAY_MS = 24 * HOUR_MS
#: 2026-01-05T00:00:00Z, a Monday. A log rejects times of the future.
FIRST_DAY_MS = 1_767_571_200_000


class Labelled(NamedTuple):
    """A payment, and whether it is fraud."""

    card: str
    payment: Payment
    timestamp: int
    is_fraud: bool


class _Draft(NamedTuple):
    """A payment without a number. Drafts are sorted by their time."""

    timestamp: int
    card: str
    cents: int
    place: str
    is_fraud: bool


def generated_payments(
    seed: int, *, cards: int, days: int, fraud_share: float
) -> Iterator[Labelled]:
    """Generate payments by time; the same payments for the same arguments.

    `fraud_share` is the share of the cards that are misused once.
    """
    chance = random.Random(seed)
    drafts: list[_Draft] = []
    for number in range(1, cards + 1):
        card = f"card-{number:04}"
        home, usual_cents = chance.choice(list(CITIES)), chance.lognormvariate(8.0, 0.5)
        drafts += _payments_of_owner(chance, card, home, usual_cents, days)
        if chance.random() < fraud_share:
            start = FIRST_DAY_MS + int(chance.uniform(0.5, days) * DAY_MS)
            if chance.random() < 0.5:
                drafts += _copied_card(chance, card, usual_cents, start)
            else:
                drafts += _tested_card(chance, card, home, usual_cents, start)
    places = CITIES | FAR_CITIES
    for number, draft in enumerate(sorted(drafts), 1):
        latitude, longitude = places[draft.place]
        payment = Payment(
            number, draft.cents, draft.place,
            round(latitude + chance.gauss(0, 0.02), 4), round(longitude + chance.gauss(0, 0.02), 4),
        )
        yield Labelled(draft.card, payment, draft.timestamp, draft.is_fraud)


def _payments_of_owner(
    chance: random.Random, card: str, home: str, usual_cents: float, days: int
) -> Iterator[_Draft]:
    """A few payments a day, between 7 and 22 h. Some days are spent in another city."""
    for day in range(days):
        place = chance.choice(list(CITIES)) if chance.random() < 0.05 else home
        for _ in range(chance.randrange(1, 6)):
            timestamp = FIRST_DAY_MS + day * DAY_MS + int(chance.uniform(7, 22) * HOUR_MS)
            cents = int(usual_cents * chance.lognormvariate(0, 0.6)) + 50
            yield _Draft(timestamp, card, cents, place, False)


def _copied_card(
    chance: random.Random, card: str, usual_cents: float, start: int
) -> Iterator[_Draft]:
    """A copy of the card pays large amounts on another continent."""
    place = chance.choice(list(FAR_CITIES))
    for number in range(chance.randrange(1, 4)):
        cents = int(usual_cents * chance.uniform(4, 12))
        yield _Draft(start + number * 20 * 60_000, card, cents, place, True)


def _tested_card(
    chance: random.Random, card: str, place: str, usual_cents: float, start: int
) -> Iterator[_Draft]:
    """Small payments within minutes test a stolen number. Then a large payment follows."""
    tests = chance.randrange(3, 6)
    for number in range(tests):
        cents = chance.randrange(50, 300)
        yield _Draft(start + number * 60_000, card, cents, place, True)
    yield _Draft(
        start + tests * 60_000, card, int(usual_cents * chance.uniform(6, 15)), place, True
    )
