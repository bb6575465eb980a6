"""Scores card payments with a model, and raises alerts.

    payments ── score (store card-histories, resource model) ─┬─────────────────────── scores
                                                              └─ probability >= 0.5 ── alerts

The key of a payment is its card, so all payments of a card are in one partition, in their order.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from fraud_scoring.features import CardHistory, Payment, features_of, history_after
from fraud_scoring.model import FraudModel
from penstock import (
    FixedKeyProcessor,
    FixedKeyRecord,
    KeyValueStore,
    ProcessorContext,
    Stores,
    StreamsBuilder,
    Topology,
)

PAYMENTS, SCORES, ALERTS = "payments", "scores", "alerts"
HISTORIES = "card-histories"
#: The model file, unless `build` gets another one. `train.py` writes it.
MODEL = "fraud-model.json"
#: Payments with this probability of fraud are alerts.
ALERT_FROM = 0.5


class Score(msgspec.Struct, frozen=True):
    """A payment and its probability of fraud."""

    payment: int
    amount_cents: int
    place: str
    probability: float
    #: The feature that speaks most for fraud, if the payment is an alert.
    reason: str | None

    @property
    def is_alert(self) -> bool:
        return self.reason is not None


class ScorePayments(FixedKeyProcessor[str, Payment, Score]):
    """Scores each payment by the history of its card."""

    def __init__(self, model: Path) -> None:
        self._model_file = model

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._histories = context.get_state_store(HISTORIES, KeyValueStore[str, CardHistory])
        # A processor exists for a batch of a task. A resource exists as long as the worker process,
        # and all tasks of the worker share it: the file is read once per worker.
        self._model = context.resource(
            f"fraud model {self._model_file}", partial(FraudModel.load, self._model_file)
        )

    def process(self, record: FixedKeyRecord[str, Payment]) -> None:
        payment, history = record.value, self._histories.get(record.key)
        probability, reason = self._model.score(features_of(history, payment, record.timestamp))
        score = Score(
            payment.id, payment.amount_cents, payment.place, round(probability, 3),
            reason if probability >= ALERT_FROM else None,
        )
        self._histories.put(
            record.key,
            history_after(history, payment, record.timestamp, is_trusted=not score.is_alert),
        )
        self.context.forward(record.with_value(score))


def build(model: str | Path = MODEL) -> Topology:
    """The application. Workers read the model file, so it must exist on every host."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_store_builder(
            Stores.persistent_key_value_store(HISTORIES), str, CardHistory
        )
    )
    payments = builder.stream(PAYMENTS, key=str, value=Payment)
    # The working directories of workers may differ.
    supplier = partial(ScorePayments, Path(model).resolve())
    scores = payments.process_values(supplier, HISTORIES, name="score")
    scores.to(SCORES, key=str, value=Score)
    scores.filter(lambda score: score.is_alert).to(ALERTS, key=str, value=Score)
    return builder.build()
