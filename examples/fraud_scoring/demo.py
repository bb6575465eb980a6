"""Runs the fraud scoring example: trains the model, scores payments, and counts right alerts."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import Input, Showcase, Types, main, records

from fraud_scoring.generate import Labelled, generated_payments
from fraud_scoring.topology import ALERTS, MODEL, PAYMENTS, SCORES, Score, build
from fraud_scoring.train import examples_of, train, training_payments
from penstock import Streams, Topology
from penstock.log import open_log

SEED = 3
TYPES = Types(str, Score)


def payments() -> Iterator[Labelled]:
    """Payments that the model has not been trained with."""
    return generated_payments(SEED, cards=50, days=7, fraud_share=0.1)


def inputs() -> Iterator[Input]:
    """The payments, without their labels."""
    for card, payment, timestamp, _ in payments():
        yield Input(PAYMENTS, card, payment, timestamp)


def build_trained(model: Path) -> Topology:
    """Train the model, and build the application with its file."""
    examples = examples_of(training_payments())
    train(examples).save(model)
    print(f"{model.name}: trained on {len(examples.is_fraud):,} payments of the past.", flush=True)
    return build(model)


def show(streams: Streams, folder: Path) -> None:
    """Print the alerts, and compare all scores with the labels."""
    with open_log(streams.config.log) as log:
        alerts, scores = (records(log, topic, TYPES) for topic in (ALERTS, SCORES))
    print(f"\n== topic {ALERTS}")
    for record in alerts:
        score = record.value
        print(
            f"  {record.key}  {score.amount_cents / 100:8.2f}  {score.place:6}  "
            f"{score.probability:.2f}  {score.reason}"
        )
    frauds = {each.payment.id for each in payments() if each.is_fraud}
    found = {record.value.payment for record in alerts}
    print(f"\n== {len(scores):,} payments in topic {SCORES}, compared with their labels")
    print(f"  fraud found: {len(frauds & found)} of {len(frauds)}")
    print(f"  false alarms: {len(found - frauds)}")


def fraud_scoring_demo(folder: Path) -> Showcase:
    """The example with a model in the given folder."""
    return Showcase(
        "fraud-scoring", "fraud scoring: card payments and a scikit-learn model",
        partial(build_trained, folder / MODEL), inputs, other_topics=(SCORES, ALERTS), show=show,
        packages=("sklearn",),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="penstock-model-") as model_folder:
        sys.exit(main(fraud_scoring_demo(Path(model_folder))))
