"""Translates Kafka's errors into those of the contract. confluent-kafka's errors stay inside."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import ConfigException
from penstock.log.errors import (
    Fenced,
    GroupNotEmpty,
    InvalidRecord,
    InvalidTopic,
    LogBusy,
    LogError,
    LogUnavailable,
    TopicExists,
    UnknownTopic,
)

#: The topic or the partition does not exist.
UNKNOWN_TOPIC = frozenset((
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID, KafkaError._NOENT,
))
#: A later producer uses the same transactional id.
PRODUCER_FENCED = frozenset((
    KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
))
#: The member is not in the group, or not in its current generation.
MEMBER_FENCED = frozenset((
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
))
#: The errors of records that were queued when their transaction was aborted.
PURGED = frozenset((KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT))
_INVALID_TOPIC = frozenset((
    KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
))
_INVALID_RECORD = frozenset((
    KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP, KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
))
#: The client has removed a dead broker together with its pending requests. Versions of librdkafka
#: that never remove brokers do not define the name.
_DESTROY_BROKER: int = getattr(KafkaError, "_DESTROY_BROKER", -137)
#: A leader or a coordinator moves or is starting: the same request will succeed later.
_BUSY = frozenset((
    KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_CONTROLLER, KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._WAIT_COORD, _DESTROY_BROKER,
))
#: The request may succeed if it is sent again.
RETRIABLE = _BUSY | {
    KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
}
_LOGIN_ADVICE = "Check sasl.mechanism, sasl.username and sasl.password."
_TLS_ADVICE = (
    "Check security.protocol, and ssl.ca.location: a PEM file with the certificate that has signed "
    "the broker's. If the broker requires a client certificate, set ssl.keystore.location."
)
_PROTOCOL_ADVICE = (
    "The broker accepts connections and closes them. It may require another security.protocol, "
    "such as SSL or SASL_SSL."
)
_ADDRESS_ADVICE = "Check that the broker is running and that its address is correct."


class UnknownGroup(LogError):
    """The group does not exist. The contract treats it as an empty group."""


def error_of(raised: KafkaException) -> KafkaError:
    """Return the error that an exception carries."""
    first = raised.args[0] if raised.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


def translate(error: KafkaError, what: str, name: str = "") -> LogError:
    """Return the contract's error. `what` is a sentence about the failure, without a full stop.

    `name` is the topic or the group.
    """
    code = error.code()
    message = f"{what}: {error.str()} ({error.name()})."
    if code in UNKNOWN_TOPIC:
        return UnknownTopic(name)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return TopicExists(name)
    if code in _INVALID_TOPIC:
        return InvalidTopic(message)
    if code in _INVALID_RECORD:
        return InvalidRecord(message)
    if code in PRODUCER_FENCED or code in MEMBER_FENCED:
        return Fenced(message)
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return UnknownGroup(message)
    if code == KafkaError.NON_EMPTY_GROUP:
        return GroupNotEmpty(name, [])
    if code in _BUSY:
        return LogBusy(message)
    return LogUnavailable(message)


def access_advice(error: KafkaError | None) -> str:
    """Return advice if the brokers reject this client's credentials or certificate, else ""."""
    if error is None:
        return ""
    if error.code() == KafkaError._AUTHENTICATION:
        return _LOGIN_ADVICE
    # A TLS handshake that the broker aborts is reported as a transport failure.
    is_tls = error.code() == KafkaError._TRANSPORT and "SSL" in error.str()
    return _TLS_ADVICE if is_tls or error.code() == KafkaError._SSL else ""


def unavailable_message(
    servers: str, timeout: float, what: str, error: KafkaError | None
) -> str:
    """Return the message about a cluster that does not respond. `error` is the last one."""
    advice = access_advice(error)
    if error is not None and advice:
        return f"Kafka at {servers} rejects this client.\n{error.str()}.\n{advice}"
    reason, advice = "", _ADDRESS_ADVICE
    if error is not None and error.code() == KafkaError._ALL_BROKERS_DOWN:
        # Brokers that cannot be reached are reported with another error.
        advice = _PROTOCOL_ADVICE
    elif error is not None:
        reason = f" {error.str()}."
    return (
        f"Kafka at {servers} did not respond within {timeout:g} s.\n{what}.{reason}\n{advice}"
    )


def config_error(raised: KafkaException) -> ConfigException:
    """Return the error about a setting that librdkafka rejects, without its value."""
    return ConfigException(
        f"The Kafka client rejects its settings: {error_of(raised).str().rstrip('.')}. "
        "Options of a Kafka log are settings of librdkafka."
    )
