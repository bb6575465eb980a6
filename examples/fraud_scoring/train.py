"""Trains the model on generated payments, and writes the model file.

    python examples/fraud_scoring/train.py [--model fraud-model.json]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fraud_scoring.features import CardHistory, features_of, history_after
from fraud_scoring.generate import Labelled, generated_payments
from fraud_scoring.model import FraudModel, new_pipeline
from fraud_scoring.topology import MODEL

SEED = 1


class Examples(NamedTuple):
    """Features and labels, one of each for a payment."""

    features: list[tuple[float, ...]]
    is_fraud: list[bool]


def training_payments() -> Iterable[Labelled]:
    """About 18,000 payments of the past, with their labels."""
    return generated_payments(SEED, cards=400, days=15, fraud_share=0.3)


def examples_of(payments: Iterable[Labelled]) -> Examples:
    """The features of payments, as the application computes them; here the labels are known."""
    histories: dict[str, CardHistory] = {}
    examples = Examples([], [])
    for card, payment, timestamp, is_fraud in payments:
        history = histories.get(card)
        examples.features.append(features_of(history, payment, timestamp))
        examples.is_fraud.append(is_fraud)
        histories[card] = history_after(history, payment, timestamp, is_trusted=not is_fraud)
    return examples


def train(examples: Examples) -> FraudModel:
    """Fit a new model. The same examples give the same model."""
    pipeline = new_pipeline()
    pipeline.fit(examples.features, examples.is_fraud)
    return FraudModel(pipeline)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the model and write it."""
    parser = argparse.ArgumentParser(description="train the fraud model on generated payments")
    parser.add_argument("--model", metavar="FILE", type=Path, default=Path(MODEL))
    chosen = parser.parse_args(arguments)
    examples = examples_of(training_payments())
    train(examples).save(chosen.model)
    print(
        f"Model '{chosen.model}' trained on {len(examples.is_fraud):,} payments, "
        f"{sum(examples.is_fraud):,} of them fraud."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
