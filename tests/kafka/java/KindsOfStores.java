import static java.time.Duration.ofMillis;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.WindowStore;

/** A topology with a store of each kind. The same one is in tests/kafka/test_java_queries.py. */
final class KindsOfStores {
    private static final Duration SIZE = ofMillis(10_000);
    private static final Duration RETENTION = ofMillis(120_000);

    private KindsOfStores() {
    }

    static void addTo(final Map<String, BiConsumer<StreamsBuilder, String>> topologies) {
        topologies.put("kinds_of_stores", (builder, output) -> build(builder));
    }

    private static void build(final StreamsBuilder builder) {
        written().forEach(builder::addStateStore);
        final KStream<String, String> words = builder.stream("words");
        words.process(
            Writer::new, written().stream().map(StoreBuilder::name).toArray(String[]::new));
        final KGroupedStream<String, String> byKey = words.groupByKey();
        byKey.count(Materialized.as("counts"));
        byKey.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, SIZE)).count(
            Materialized.as(Stores.persistentTimestampedWindowStore(
                "counts-by-window", RETENTION, SIZE, false)));
        byKey.windowedBy(SessionWindows.ofInactivityGapAndGrace(ofMillis(5_000), SIZE)).count(
            Materialized.as(Stores.persistentSessionStore("counts-by-session", RETENTION)));
        builder.table("prices", Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore("prices", ofMillis(60_000))));
        builder.globalTable(
            "names", Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("names"));
    }

    /** The stores that the processor writes. */
    private static List<StoreBuilder<?>> written() {
        final Serde<String> text = Serdes.String();
        return List.of(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("plain"), text, text),
            Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("memory"), text, text),
            Stores.timestampedKeyValueStoreWithHeadersBuilder(
                Stores.inMemoryKeyValueStore("headers"), text, text),
            Stores.timestampedKeyValueStoreWithHeadersBuilder(
                Stores.persistentTimestampedKeyValueStoreWithHeaders("persistent-headers"),
                text, text),
            Stores.windowStoreBuilder(
                Stores.persistentWindowStore("windows", RETENTION, SIZE, false), text, text),
            Stores.timestampedWindowStoreWithHeadersBuilder(
                Stores.inMemoryWindowStore("windows-with-headers", RETENTION, SIZE, false),
                text, text),
            Stores.sessionStoreWithHeadersBuilder(
                Stores.inMemorySessionStore("sessions-with-headers", RETENTION), text, text));
    }

    /** Writes each record to each of the stores. */
    private static final class Writer extends ContextualProcessor<String, String, Void, Void> {
        @Override
        public void process(final Record<String, String> record) {
            final String key = record.key();
            final String value = record.value();
            final long time = record.timestamp();
            final long start = time - time % SIZE.toMillis();
            final Headers headers = new RecordHeaders()
                .add("word", value.getBytes(StandardCharsets.UTF_8));
            final ValueTimestampHeaders<String> withHeaders =
                ValueTimestampHeaders.make(value, time, headers);
            context().<KeyValueStore<String, String>>getStateStore("plain").put(key, value);
            context().<KeyValueStore<String, String>>getStateStore("memory").put(key, value);
            for (final String store : List.of("headers", "persistent-headers")) {
                context().<KeyValueStore<String, ValueTimestampHeaders<String>>>getStateStore(store)
                    .put(key, withHeaders);
            }
            context().<WindowStore<String, String>>getStateStore("windows")
                .put(key, value, start);
            context().<WindowStore<String, ValueTimestampHeaders<String>>>getStateStore(
                "windows-with-headers").put(key, withHeaders, start);
            context().<SessionStore<String, AggregationWithHeaders<String>>>getStateStore(
                "sessions-with-headers").put(
                    new Windowed<>(key, new SessionWindow(start, time)),
                    AggregationWithHeaders.make(value, headers));
        }
    }
}
