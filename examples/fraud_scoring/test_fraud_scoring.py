"""Fraud scoring: scores depend on the history of the card, and a worker loads the model once."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from showcase import Input, Types, records, send

from fraud_scoring.features import (
    FEATURES,
    HOUR_MS,
    KEPT_PAYMENTS,
    CardHistory,
    Payment,
    features_of,
    history_after,
)
from fraud_scoring.generate import Labelled, generated_payments
from fraud_scoring.model import FraudModel, Parameters
from fraud_scoring.topology import ALERTS, HISTORIES, PAYMENTS, SCORES, Score, build
from fraud_scoring.train import examples_of, main, train, training_payments
from penstock import Streams, StreamsConfig, StreamsException
from penstock.log import open_log
from penstock.testing import TopologyTestDriver

NOON = 1_767_614_400_000
MASTERS = ["inline", pytest.param("local[2]", marks=[pytest.mark.slow, pytest.mark.spark])]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "fraud-model.json"
    train(examples_of(training_payments())).save(path)
    return path


def berlin(number: int, cents: int) -> Payment:
    return Payment(number, cents, "Berlin", 52.52, 13.40)


def osaka(number: int, cents: int) -> Payment:
    return Payment(number, cents, "Osaka", 34.69, 135.50)


def history_of(*payments: tuple[Payment, int]) -> CardHistory | None:
    history = None
    for payment, timestamp in payments:
        history = history_after(history, payment, timestamp, is_trusted=True)
    return history


def named(features: tuple[float, ...]) -> dict[str, float]:
    return dict(zip(FEATURES, features, strict=True))


def test_first_payment_of_a_card_is_neutral() -> None:
    assert features_of(None, osaka(1, 999_999), NOON) == (0.0,) * len(FEATURES)


def test_features_compare_a_payment_with_the_history() -> None:
    history = history_of(
        (berlin(1, 1_999), NOON - 30 * HOUR_MS), (berlin(2, 1_999), NOON - 2 * HOUR_MS),
        (berlin(3, 1_999), NOON - HOUR_MS // 2),
    )
    features = named(features_of(history, berlin(4, 3_999), NOON))
    # The payment of 30 hours ago is forgotten.
    assert features == pytest.approx({
        "amount above usual": math.log(2), "amount below usual": 0.0, "payments in an hour": 1.0,
        "spent in a day": math.log(7_998 / 2_000), "far from the last place": 0.0,
        "travels too fast": 0.0,
    })
    small = named(features_of(history, berlin(4, 999), NOON))
    assert small["amount below usual"] == pytest.approx(math.log(2))


def test_travel_is_too_fast_only_if_no_airliner_could_do_it() -> None:
    history = history_of((berlin(1, 2_000), NOON))
    soon = named(features_of(history, osaka(2, 2_000), NOON + HOUR_MS))
    later = named(features_of(history, osaka(2, 2_000), NOON + 12 * HOUR_MS))
    assert soon["far from the last place"] == later["far from the last place"]
    assert math.expm1(soon["far from the last place"]) == pytest.approx(8_900, rel=0.02)
    assert soon["travels too fast"] > 8
    assert later["travels too fast"] == 0


def test_untrusted_payment_leaves_the_last_place() -> None:
    history = history_of((berlin(1, 2_000), NOON))
    after = history_after(history, osaka(2, 90_000), NOON + 1, is_trusted=False)
    assert (after.latitude, after.timestamp) == (52.52, NOON)
    assert len(after.recent) == 2
    # It counts as twice the usual amount at most.
    assert after.usual_cents == pytest.approx(2_200)


def test_history_stays_small() -> None:
    payments = [(berlin(number, 100), NOON + number) for number in range(3 * KEPT_PAYMENTS)]
    history = history_of(*payments)
    assert history is not None
    assert len(history.recent) == KEPT_PAYMENTS
    assert history.recent[-1].timestamp == NOON + 3 * KEPT_PAYMENTS - 1


def test_late_payment_does_not_move_the_card_back() -> None:
    history = history_of((berlin(1, 2_000), NOON), (osaka(2, 2_000), NOON - HOUR_MS))
    assert history is not None
    assert (history.latitude, history.timestamp) == (52.52, NOON)


def test_loaded_model_scores_like_the_trained_one(model_file: Path) -> None:
    examples = examples_of(training_payments())
    trained, loaded = train(examples), FraudModel.load(model_file)
    assert loaded.parameters() == trained.parameters()
    for features in examples.features[::500]:
        assert loaded.score(features) == trained.score(features)


def test_train_writes_the_model_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.json"
    assert main(["--model", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"Model '{path}' trained on 18,")
    assert msgspec.json.decode(path.read_bytes())["features"] == list(FEATURES)


@pytest.mark.parametrize(("change", "message"), [
    ({"features": ("amount",)}, "has the features amount. This application computes amount above"),
    ({"scale": (1.0,)}, "'scale' needs 6 numbers"),
])
def test_model_that_does_not_fit_the_application_is_refused(
    model_file: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    parameters = msgspec.json.decode(model_file.read_bytes(), type=Parameters)
    other = tmp_path / "other.json"
    other.write_bytes(msgspec.json.encode(msgspec.structs.replace(parameters, **change)))
    with pytest.raises(ValueError, match=message):
        FraudModel.load(other)


def test_missing_model_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StreamsException, match=r"processor score\..*none\.json") as raised:
        TopologyTestDriver(build(tmp_path / "none.json"))
    assert isinstance(raised.value.__cause__, FileNotFoundError)


def test_payment_on_another_continent_raises_an_alert(model_file: Path) -> None:
    with TopologyTestDriver(build(model_file)) as driver:
        payments = driver.create_input_topic(PAYMENTS, str, Payment)
        scores = driver.create_output_topic(SCORES, str, Score)
        alerts = driver.create_output_topic(ALERTS, str, Score)
        for number in range(5):
            payments.pipe_input("a", berlin(number, 2_500), timestamp=NOON + number * HOUR_MS)
        usual = scores.read_values_to_list()
        assert all(score.probability < 0.1 and score.reason is None for score in usual)
        assert alerts.is_empty
        payments.pipe_input("a", osaka(5, 25_000), timestamp=NOON + 5 * HOUR_MS)
        (alert,) = alerts.read_values_to_list()
        assert (alert.payment, alert.place) == (5, "Osaka")
        assert alert.probability > 0.9
        assert alert.reason in {"amount above usual", "travels too fast"}
        assert scores.read_value() == alert
        # The owner is still in Berlin, and pays as before.
        payments.pipe_input("a", berlin(6, 2_500), timestamp=NOON + 6 * HOUR_MS)
        assert alerts.is_empty
        # The same payment with another card is its first one.
        payments.pipe_input("b", osaka(7, 25_000), timestamp=NOON + 5 * HOUR_MS)
        assert alerts.is_empty
        history = driver.get_key_value_store(HISTORIES)["a"]
        assert [past.amount_cents for past in history.recent] == [2_500] * 5 + [25_000, 2_500]


def test_model_is_loaded_once_for_all_tasks_and_batches(
    model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Path] = []
    load = FraudModel.load

    def counted_load(path: Path) -> FraudModel:
        loads.append(path)
        return load(path)

    monkeypatch.setattr(FraudModel, "load", counted_load)
    with TopologyTestDriver(build(model_file), partitions=2, batch_size=2) as driver:
        payments = driver.create_input_topic(PAYMENTS, str, Payment)
        for number in range(8):
            payments.pipe_input(f"card-{number}", berlin(number, 2_500), timestamp=NOON + number)
        assert len(driver.tasks) == 2
        scores = driver.create_output_topic(SCORES, str, Score)
        assert len(scores.read_values_to_list()) == 8
    assert loads == [model_file]


def expected_scores(model: FraudModel, payments: Iterable[Labelled]) -> dict[int, float]:
    """The scores as a plain loop over the payments computes them."""
    histories: dict[str, CardHistory] = {}
    scores = {}
    for card, payment, timestamp, _ in payments:
        history = histories.get(card)
        probability, _ = model.score(features_of(history, payment, timestamp))
        scores[payment.id] = round(probability, 3)
        histories[card] = history_after(
            history, payment, timestamp, is_trusted=probability < 0.5
        )
    return scores


def test_unseen_fraud_is_found(model_file: Path) -> None:
    payments = list(generated_payments(2, cards=200, days=10, fraud_share=0.3))
    scores = expected_scores(FraudModel.load(model_file), payments)
    counts = Counter((each.is_fraud, scores[each.payment.id] >= 0.5) for each in payments)
    assert counts[True, True] / (counts[True, True] + counts[True, False]) > 0.75
    assert counts[False, True] / (counts[False, True] + counts[False, False]) < 0.02


@pytest.mark.parametrize("master", MASTERS)
def test_every_payment_is_scored_once_with_a_model_per_worker(
    master: str, model_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    payments = list(generated_payments(4, cards=20, days=4, fraud_share=0.5))
    halves = payments[: len(payments) // 2], payments[len(payments) // 2:]
    address = str(tmp_path / "log.db")
    config = StreamsConfig(
        application_id="fraud-scoring", log=address, state_dir=str(tmp_path / "state"),
        num_stream_threads=2,
    )
    with open_log(address) as log:
        for topic in (PAYMENTS, SCORES, ALERTS):
            log.create_topic(topic, 4, {"retention.ms": -1})
        with Streams(build(model_file), config, master=master) as streams:
            for half in halves:
                send(log, (
                    Input(PAYMENTS, each.card, each.payment, each.timestamp) for each in half
                ))
                streams.run_until_caught_up(120)
        scores, alerts = (records(log, topic, Types(str, Score)) for topic in (SCORES, ALERTS))
    expected = expected_scores(FraudModel.load(model_file), payments)
    assert len(scores) == len(payments)
    assert {each.value.payment: each.value.probability for each in scores} == expected
    assert {each.value.payment for each in alerts} == {
        number for number, probability in expected.items() if probability >= 0.5
    }
    # Four tasks and several batches, but one model in each process.
    loads = [line for line in caplog.messages if line.startswith("Model 'fraud-model.json' loaded")]
    workers = loads[:-1]  # the last one is that of this test
    assert 1 <= len(workers) <= 2
    assert len(set(workers)) == len(workers)
