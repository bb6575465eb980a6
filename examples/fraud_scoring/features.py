"""The features of a payment: numbers computed from the payment and the history of its card.

The application and `train.py` call the same functions, so the model sees in operation the features
that it was trained with.
"""

from __future__ import annotations

import math

import msgspec

HOUR_MS = 3_600_000
#: Older payments of a card are forgotten.
KEPT_MS = 24 * HOUR_MS
#: Limits the size of a history, whatever happens within a day.
KEPT_PAYMENTS = 100
#: The weight of a new amount in the usual amount of a card.
ALPHA = 0.1
EARTH_RADIUS_KM = 6371.0
AIRLINER_KM_H = 900.0

#: The order of the features. They are also the reasons of alerts.
FEATURES = (
    "amount above usual", "amount below usual", "payments in an hour", "spent in a day",
    "far from the last place", "travels too fast",
)


class Payment(msgspec.Struct, frozen=True):
    """A card payment. The key of its record is the card."""

    id: int
    amount_cents: int
    place: str
    latitude: float
    longitude: float


class Past(msgspec.Struct, frozen=True, array_like=True):
    """A recent payment."""

    timestamp: int
    amount_cents: int


class CardHistory(msgspec.Struct, frozen=True):
    """The known past of a card: a row of the store."""

    recent: tuple[Past, ...]
    #: An exponentially weighted mean of the amounts.
    usual_cents: float
    #: Of the last trusted payment.
    latitude: float
    longitude: float
    timestamp: int


def features_of(
    history: CardHistory | None, payment: Payment, timestamp: int
) -> tuple[float, ...]:
    """The features of a payment, in the order of `FEATURES`."""
    if history is None:
        return (0.0,) * len(FEATURES)
    recent = _recent(history, timestamp)
    last_hour = sum(past.timestamp > timestamp - HOUR_MS for past in recent)
    spent_cents = payment.amount_cents + sum(past.amount_cents for past in recent)
    above_usual = _log_ratio(payment.amount_cents, history.usual_cents)
    km = _distance_km(history, payment)
    # At least a minute: two payments may have the same time.
    hours = max(abs(timestamp - history.timestamp) / HOUR_MS, 1 / 60)
    return (
        max(0.0, above_usual),
        max(0.0, -above_usual),
        float(last_hour),
        _log_ratio(spent_cents, history.usual_cents),
        math.log1p(km),
        math.log1p(max(0.0, km / hours - AIRLINER_KM_H)),
    )


def history_after(
    history: CardHistory | None, payment: Payment, timestamp: int, *, is_trusted: bool
) -> CardHistory:
    """The history with one more payment.

    A payment that is not trusted leaves the last place as it is. Otherwise the next payment of the
    owner would be travel that is too fast.
    """
    cents, past = payment.amount_cents, Past(timestamp, payment.amount_cents)
    if history is None:
        return CardHistory((past,), cents, payment.latitude, payment.longitude, timestamp)
    usual = history.usual_cents
    # Single large and small payments change the usual amount little, but lasting habits do.
    usual += ALPHA * (min(max(cents, usual / 2), usual * 2) - usual)
    after = msgspec.structs.replace(
        history, recent=(*_recent(history, timestamp), past)[-KEPT_PAYMENTS:], usual_cents=usual
    )
    if not is_trusted or timestamp < history.timestamp:
        return after
    return msgspec.structs.replace(
        after, latitude=payment.latitude, longitude=payment.longitude, timestamp=timestamp
    )


def _recent(history: CardHistory, timestamp: int) -> list[Past]:
    return [past for past in history.recent if past.timestamp > timestamp - KEPT_MS]


def _log_ratio(cents: float, usual_cents: float) -> float:
    return math.log((cents + 1) / (usual_cents + 1))


def _distance_km(history: CardHistory, payment: Payment) -> float:
    """The distance from the last trusted place, on the surface of the earth (haversine)."""
    a, b = math.radians(history.latitude), math.radians(payment.latitude)
    longitudes = math.radians(payment.longitude - history.longitude)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(longitudes / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))
