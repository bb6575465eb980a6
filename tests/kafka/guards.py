"""Brokers that do not let everybody in: how they are set up, and how one gets in."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.broker import jars

#: In no message, whatever goes wrong.
PASSWORD = "not-to-be-shown"

_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="penstock" password="{PASSWORD}" user_penstock="{PASSWORD}";'
)


@dataclass(frozen=True, slots=True)
class Guard:
    """A broker's settings, and those of clients."""

    broker: Mapping[str, str]
    way_in: Mapping[str, str]
    #: What has to be changed of the way in so that it leads nowhere.
    mistake: Mapping[str, str]
    #: What one is told then: what happened, and what to do.
    told: tuple[str, ...]


def by_password() -> Guard:
    """SASL: whoever knows the password gets in."""
    way_in = {
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
    told = ("SASL authentication error", "Check sasl.mechanism, sasl.username and")
    return Guard(broker, way_in, {"sasl.password": f"guessed, {PASSWORD}"}, told)


def by_certificate(folder: Path) -> Guard:
    """TLS: both sides show a certificate, and each knows the other's."""
    stores = {name: folder / f"{name}.p12" for name in ("broker", "client", "trusted")}
    for name, address in (("broker", "127.0.0.1"), ("client", "client")):
        _keytool(
            stores[name], "-genkeypair", "-alias", name, "-keyalg", "EC", "-dname",
            f"CN={address}", "-ext", "san=ip:127.0.0.1", "-validity", "2",
        )
        pem = str(folder / f"{name}.pem")
        _keytool(stores[name], "-exportcert", "-alias", name, "-rfc", "-file", pem)
        _keytool(stores["trusted"], "-importcert", "-alias", name, "-noprompt", "-file", pem)
    way_in = {
        "security.protocol": "SSL", "ssl.ca.location": str(folder / "broker.pem"),
        "ssl.keystore.location": str(stores["client"]), "ssl.keystore.password": PASSWORD,
    }
    broker = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(stores["broker"]), "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(stores["trusted"]), "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
    }
    told = ("certificate verify failed", "Check security.protocol, and ssl.ca.location")
    return Guard(broker, way_in, {"ssl.ca.location": str(folder / "client.pem")}, told)


def _keytool(store: Path, *words: str) -> None:
    """Java's own tool, on one store of keys."""
    program = Path(jars.java()).with_name("keytool")
    ran = subprocess.run(
        [program, *words, "-keystore", str(store), "-storetype", "PKCS12", "-storepass",
         PASSWORD],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
