"""The configuration on the page: no secrets, and what applies by default."""

from __future__ import annotations

import pytest

from penstock import StreamsConfig
from penstock.web.settings import HIDDEN, is_secret, settings_of


@pytest.mark.parametrize("name", [
    "sasl.password", "basic.auth.user.info", "ssl.key.pem", "ssl.keystore.key", "my.api.key",
    "apiKey", "aws_access_key_id", "api-keys", "ssl.key.passphrase", "http.authorization",
    "oauth.bearer", "github.token", "client.secret", "my.credentials", "sasl.jaas.config",
])
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", [
    "default.key.serde", "default.list.key.serde.inner", "key.serializer",
    "consumer.key.deserializer", "application.id", "ssl.keystore.location",
    "ssl.truststore.type", "state.dir", "keyed.output", "security.protocol", "sasl.mechanism",
    "schema.registry.url",
])
def test_other_names_are_shown(name: str) -> None:
    assert not is_secret(name)


def settings(**extra: str) -> dict[str, str]:
    extra = {name.replace("_", "."): value for name, value in extra.items()}
    return settings_of(StreamsConfig(application_id="app", log="log.db", extra=extra))


@pytest.mark.parametrize(("value", "shown"), [
    ("https://bob:hunter2@host:8081/path", f"https://{HIDDEN}@host:8081/path"),
    ("https://bob:a@b/c@host", f"https://{HIDDEN}@host"),
    ("https://hunter2@host", f"https://{HIDDEN}@host"),
    ("https://host/?user=bob&api_key=hunter2", f"https://host/?user=bob&api_key={HIDDEN}"),
    ("Server=db;Password=hunter2", f"Server=db;Password={HIDDEN}"),
    ('Module required password="hunter 2" retry=3;', f"Module required password={HIDDEN} retry=3;"),
    ('{"user": "bob", "password": "hunter 2"}', f'{{"user": "bob", "password": {HIDDEN}}}'),
    ("http://host:8081,http://other:8081", "http://host:8081,http://other:8081"),
    ("ann@example.org", "ann@example.org"),
])
def test_secrets_inside_of_values_are_hidden(value: str, shown: str) -> None:
    assert settings(my_url=value)["my.url"] == shown


def test_effective_values_of_unset_settings_are_shown() -> None:
    found = settings()
    assert found["execution"] == "continuous (default)"
    assert found["commit.interval.ms"] == "as soon as possible (default)"
    assert found["session.timeout.ms"] == "6000 (default)"
    assert found["topology.optimization"] == "none"
    chosen = settings_of(StreamsConfig(
        application_id="app", log="log.db", execution="batch", commit_interval_ms=100,
        topology_optimization="all", extra={"consumer.session.timeout.ms": 9_000},
    ))
    assert (chosen["execution"], chosen["commit.interval.ms"]) == ("batch", "100")
    assert chosen["topology.optimization"].startswith("merge")
    assert "session.timeout.ms" not in chosen
