"""The topology in the test driver, without Spark and Java: `python -m pytest clients`."""

from __future__ import annotations

from clients import topology as clients
from penstock.testing import TopologyTestDriver


def test_client_appears_when_all_tables_know_it_and_follows_them() -> None:
    with TopologyTestDriver(clients.build()) as driver:
        prospects = driver.create_input_topic(clients.PROSPECTS, str, clients.Prospect)
        accounts = driver.create_input_topic(clients.ACCOUNTS, str, clients.Account)
        enriched = driver.create_input_topic(clients.ENRICHED, str, clients.EnrichedAccount)
        out = driver.create_output_topic(clients.CLIENTS, str, clients.Client)
        prospects.pipe_input("1", clients.Prospect(1, "augusto"))
        accounts.pipe_input("1", clients.Account(1, "000.000.000-0"))
        assert out.is_empty
        enriched.pipe_input("1", clients.EnrichedAccount(1, "REGULAR"))
        assert out.read_key_value() == (
            "1", clients.Client(1, "augusto", "000.000.000-0", "REGULAR")
        )
        enriched.pipe_input("1", None)
        assert out.read_key_value() == ("1", None)
