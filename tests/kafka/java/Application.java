import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyDescription;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.FailOnInvalidTimestamp;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.StateQueryResult;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/** One Kafka Streams application that runs in this process. */
final class Application implements AutoCloseable {
    private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(30);

    private final String id;
    private final KafkaStreams streams;
    private final Set<String> sources;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    /** `settings` of Kafka Streams override those set here. */
    Application(
        final String bootstrap, final String id, final String topology, final String output,
        final Map<String, String> settings) {
        this.id = id;
        final Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(
            StreamsConfig.DEFAULT_TIMESTAMP_EXTRACTOR_CLASS_CONFIG, FirstRecord.class);
        properties.put("auto.offset.reset", "earliest");
        // The lag is visible only after a commit.
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        properties.putAll(settings);
        final StreamsBuilder builder = new StreamsBuilder();
        Topologies.build(builder, topology, output);
        final Topology built = builder.build(properties);
        this.sources = sourcesOf(built, id);
        this.streams = new KafkaStreams(built, properties);
        streams.setUncaughtExceptionHandler(error -> {
            failure.compareAndSet(null, error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    }

    String id() {
        return id;
    }

    /** The topics that it reads and commits: sources and repartition topics, with full names. */
    Set<String> sources() {
        return sources;
    }

    void start() {
        streams.start();
    }

    /** Starts it. A failure of the global thread is the failure of the application. */
    void startOrFail() {
        try {
            streams.start();
        } catch (final RuntimeException error) {
            failure.compareAndSet(null, error);
        }
    }

    void listenToRestores(final StateRestoreListener listener) {
        streams.setGlobalStateRestoreListener(listener);
    }

    /** The first error that has stopped it; null if there is none. */
    Throwable failure() {
        return failure.get();
    }

    /** The number of dropped records of all its tasks, the global one included. */
    long dropped() {
        return streams.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals("dropped-records-total"))
            .mapToLong(metric -> ((Double) metric.metricValue()).longValue()).sum();
    }

    /** Whether a store of this instance has a row. */
    boolean hasRow(final String store, final String key) {
        try {
            return streams.store(StoreQueryParameters.fromNameAndType(
                store, QueryableStoreTypes.<String, Object>keyValueStore())).get(key) != null;
        } catch (final InvalidStateStoreException notYet) {
            return false;
        }
    }

    <R> StateQueryResult<R> query(final StateQueryRequest<R> request) {
        return streams.query(request);
    }

    /** Whether it has its tasks. Before that, an idle application has not caught up. */
    boolean isRunning() {
        return streams.state() == KafkaStreams.State.RUNNING;
    }

    /** Throws the failure of the application, if any. */
    void check() {
        if (failure.get() != null) {
            throw new IllegalStateException("Application '" + id + "' has failed.", failure.get());
        }
    }

    @Override
    public void close() {
        // Otherwise the broker keeps the member until its session times out.
        streams.close(CloseOptions
            .groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(CLOSE_TIMEOUT));
    }

    private static Set<String> sourcesOf(final Topology topology, final String id) {
        final TopologyDescription description = topology.describe();
        final Set<String> sinks = description.subtopologies().stream()
            .flatMap(part -> part.nodes().stream())
            .filter(node -> node instanceof TopologyDescription.Sink)
            .map(node -> ((TopologyDescription.Sink) node).topic())
            .collect(Collectors.toSet());
        final Set<String> found = new TreeSet<>();
        for (final TopologyDescription.Subtopology part : description.subtopologies()) {
            for (final TopologyDescription.Node node : part.nodes()) {
                if (node instanceof TopologyDescription.Source) {
                    for (final String topic : ((TopologyDescription.Source) node).topicSet()) {
                        // The full name of a repartition topic has the application id.
                        found.add(sinks.contains(topic) ? id + "-" + topic : topic);
                    }
                }
            }
        }
        return found;
    }

    /** Returns the record's timestamp, and notes the time of the first record. */
    public static final class FirstRecord extends FailOnInvalidTimestamp {
        private static final AtomicLong TAKEN_AT = new AtomicLong();

        @Override
        public long extract(final ConsumerRecord<Object, Object> record, final long partitionTime) {
            if (TAKEN_AT.get() == 0) {
                TAKEN_AT.compareAndSet(0, System.currentTimeMillis());
            }
            return super.extract(record, partitionTime);
        }

        /** Epoch milliseconds; 0 before the first record. */
        static long takenAt() {
            return TAKEN_AT.get();
        }
    }

    /** Settings of the form name=value. */
    static Map<String, String> settings(final List<String> arguments) {
        return arguments.stream().map(each -> each.split("=", 2)).collect(
            Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    }
}
