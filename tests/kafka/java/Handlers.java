import static java.time.Duration.ofMillis;

import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Topologies that receive records which they cannot read, process or use.
 *
 * They read the topics OUTPUT-rates and OUTPUT-calls. The same topologies are in
 * tests/kafka/handler_scenarios.py.
 */
final class Handlers {
    static final String STORE = "rates";

    private Handlers() {
    }

    static void addTo(final Map<String, BiConsumer<StreamsBuilder, String>> topologies) {
        topologies.put("global_table", Handlers::globalTable);
        topologies.put("global_store", Handlers::globalStore);
        topologies.put("dropped_records", Handlers::droppedRecords);
        topologies.put("dropped_everywhere", Handlers::droppedEverywhere);
    }

    private static void globalTable(final StreamsBuilder builder, final String output) {
        final GlobalKTable<String, Long> rates = builder.globalTable(
            output + "-rates", Consumed.with(Serdes.String(), Serdes.Long()),
            Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(STORE));
        final KStream<String, String> calls = builder.stream(output + "-calls");
        calls.leftJoin(rates, (key, value) -> value, (value, rate) -> value + "=" + rate)
            .to(output);
    }

    private static void globalStore(final StreamsBuilder builder, final String output) {
        builder.addGlobalStore(
            Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.Long()),
            output + "-rates", Consumed.with(Serdes.String(), Serdes.Long()), Inverse::new);
        final KStream<String, String> calls = builder.stream(output + "-calls");
        calls.process(LookUp::new).to(output);
    }

    /** Drops null keys in four nodes, and late records in one. */
    private static void droppedRecords(final StreamsBuilder builder, final String output) {
        final KTable<String, String> rates = builder.table(output + "-rates");
        final KStream<String, String> calls = builder.stream(output + "-calls");
        calls.groupByKey().count();
        calls.groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(ofMillis(10))).count();
        calls.join(rates, (value, rate) -> value + "=" + rate).to(output);
    }

    /** Drops null keys and late records in every kind of node that logs them. */
    private static void droppedEverywhere(final StreamsBuilder builder, final String output) {
        droppedRecords(builder, output);
        final KStream<String, String> calls = builder.stream(output + "-calls");
        calls.groupByKey().reduce((first, second) -> second);
        calls.groupByKey()
            .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(ofMillis(10))).count();
        calls.groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(ofMillis(10))).count();
        calls.join(
            calls, (first, second) -> first,
            JoinWindows.ofTimeDifferenceWithNoGrace(ofMillis(10)));
        calls.toTable();
        // The filter before an implicit repartition neither logs nor counts.
        calls.groupBy((key, value) -> (String) null).count();
    }

    /** Stores 100 divided by the value. */
    private static final class Inverse implements Processor<String, Long, Void, Void> {
        private KeyValueStore<String, Long> store;

        @Override
        public void init(
            final org.apache.kafka.streams.processor.api.ProcessorContext<Void, Void> context) {
            store = context.getStateStore(STORE);
        }

        @Override
        public void process(final Record<String, Long> record) {
            store.put(record.key(), 100 / record.value());
        }
    }

    /** Forwards the row whose key is the value. */
    private static final class LookUp
        extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final KeyValueStore<String, Long> store = context().getStateStore(STORE);
            context().forward(
                record.withValue(record.value() + "=" + store.get(record.value())));
        }
    }
}
