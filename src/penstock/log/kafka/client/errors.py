"""Kafka's errors in the contract's words; nothing of confluent-kafka's leaves this package."""

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

#: The topic, or the partition, is not there.
UNKNOWN = frozenset((
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID, KafkaError._NOENT,
))
#: A later producer has the same transactional id.
PRODUCER_FENCED = frozenset((
    KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
))
#: The member is not in the group, or not in this generation of it.
GENERATION_OVER = frozenset((
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
))
_BAD_TOPIC = frozenset((
    KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
))
_BAD_RECORD = frozenset((
    KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP, KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
))
#: The client has forgotten the broker that it was about to ask, because that has died. Versions of
#: librdkafka that forget none do not have the name.
_DESTROY_BROKER: int = getattr(KafkaError, "_DESTROY_BROKER", -137)
#: A leader or a coordinator is being moved, or has just come: the same request will do later.
BUSY = frozenset((
    KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_CONTROLLER, KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._WAIT_COORD, _DESTROY_BROKER,
))
_LOGIN_HINT = "Check sasl.mechanism, sasl.username and sasl.password."
_TLS_HINT = (
    "Check security.protocol, and ssl.ca.location, a PEM file with the certificate that the "
    "broker's is signed with. If the broker wants one of yours: ssl.keystore.location."
)
_OPEN_HINT = (
    "It takes connections and closes them again. It may want another security.protocol, such as "
    "SSL or SASL_SSL."
)


class GroupMissing(LogError):
    """Kafka has never heard of the group; the contract takes it for an empty one."""


def error_of(raised: KafkaException) -> KafkaError:
    """What a `KafkaException` carries."""
    first = raised.args[0] if raised.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


def translated(error: KafkaError, what: str, name: str = "") -> LogError:
    """The contract's error. `what` was tried; `name` is the topic or the group."""
    code = error.code()
    said = f"{what}: {error.str()} ({error.name()})."
    if code in UNKNOWN:
        return UnknownTopic(name)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return TopicExists(name)
    if code in _BAD_TOPIC:
        return InvalidTopic(said)
    if code in _BAD_RECORD:
        return InvalidRecord(said)
    if code in PRODUCER_FENCED or code in GENERATION_OVER:
        return Fenced(said)
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return GroupMissing(said)
    if code == KafkaError.NON_EMPTY_GROUP:
        return GroupNotEmpty(name, [])
    if code in BUSY:
        return LogBusy(said)
    return LogUnavailable(said)


def kept_out(trouble: KafkaError | None) -> str:
    """If the brokers are there and do not let this client in: what to look at. Else empty."""
    if trouble is None:
        return ""
    if trouble.code() == KafkaError._AUTHENTICATION:
        return _LOGIN_HINT
    # A handshake that the other side breaks off is a failure of the transport.
    is_tls = trouble.code() == KafkaError._TRANSPORT and "SSL" in trouble.str()
    return _TLS_HINT if is_tls or trouble.code() == KafkaError._SSL else ""


def no_answer(servers: str, timeout: float, what: str, trouble: KafkaError | None) -> str:
    """The message about a cluster that does not answer. `trouble` is what was heard of it."""
    hint = kept_out(trouble)
    if trouble is not None and hint:
        return f"Kafka at {servers} does not let this client in.\n{trouble.str()}.\n{hint}"
    reason, hint = "", "Is the broker running, and is that its address?"
    if trouble is not None and trouble.code() == KafkaError._ALL_BROKERS_DOWN:
        # Whoever cannot be reached is told of in another way.
        hint = _OPEN_HINT
    elif trouble is not None:
        reason = f" {trouble.str()}."
    return f"No answer from Kafka at {servers} within {timeout:g} s.\n{what}.{reason}\n{hint}"


def config_error(raised: KafkaException) -> ConfigException:
    """A setting that librdkafka does not take. Values are left out: they may be secrets."""
    return ConfigException(
        f"Kafka's client does not take its settings: {error_of(raised).str().rstrip('.')}. "
        "Options of a Kafka log are librdkafka's settings."
    )
