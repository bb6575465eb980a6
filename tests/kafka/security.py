"""Brokers that require credentials: their settings, and those of clients."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.broker import jars

#: Must not appear in any message.
PASSWORD = "not-to-be-shown"

_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="penstock" password="{PASSWORD}" user_penstock="{PASSWORD}";'
)


@dataclass(frozen=True, slots=True)
class Security:
    """The security settings of a broker and its clients."""

    broker: Mapping[str, str]
    client: Mapping[str, str]
    #: Client settings that the broker rejects.
    wrong: Mapping[str, str]
    #: Parts of the error message: the cause, and the advice.
    error: tuple[str, ...]


def sasl() -> Security:
    """Authentication by password."""
    client = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "penstock", "sasl.password": PASSWORD,
    }
    broker = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": _LOGIN,
    }
    error = ("SASL authentication error", "Check sasl.mechanism, sasl.username and")
    return Security(broker, client, {"sasl.password": f"guessed, {PASSWORD}"}, error)


def tls(directory: Path) -> Security:
    """Authentication by certificates of both sides."""
    stores = {name: directory / f"{name}.p12" for name in ("broker", "client", "trusted")}
    for name, address in (("broker", "127.0.0.1"), ("client", "client")):
        _keytool(
            stores[name], "-genkeypair", "-alias", name, "-keyalg", "EC", "-dname",
            f"CN={address}", "-ext", "san=ip:127.0.0.1", "-validity", "2",
        )
        pem = str(directory / f"{name}.pem")
        _keytool(stores[name], "-exportcert", "-alias", name, "-rfc", "-file", pem)
        _keytool(stores["trusted"], "-importcert", "-alias", name, "-noprompt", "-file", pem)
    client = {
        "security.protocol": "SSL", "ssl.ca.location": str(directory / "broker.pem"),
        "ssl.keystore.location": str(stores["client"]), "ssl.keystore.password": PASSWORD,
    }
    broker = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(stores["broker"]), "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(stores["trusted"]), "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
    }
    error = ("certificate verify failed", "Check security.protocol, and ssl.ca.location")
    return Security(broker, client, {"ssl.ca.location": str(directory / "client.pem")}, error)


def _keytool(store: Path, *arguments: str) -> None:
    program = Path(jars.java()).with_name("keytool")
    ran = subprocess.run(
        [program, *arguments, "-keystore", str(store), "-storetype", "PKCS12", "-storepass",
         PASSWORD],
        capture_output=True, text=True, timeout=180, check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
