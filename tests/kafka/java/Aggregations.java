import java.util.Arrays;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Counts, sums and aggregations without windows, and a processor with its own store. */
final class Aggregations {
    private Aggregations() {
    }

    static void addTo(final Map<String, BiConsumer<StreamsBuilder, String>> topologies) {
        topologies.put("count_by_region", Aggregations::countByRegion);
        topologies.put("sum_by_region", Aggregations::sumByRegion);
        topologies.put("reduce_by_region", Aggregations::reduceByRegion);
        topologies.put("count_words", Aggregations::countWords);
        topologies.put("merge_and_repartition", Aggregations::mergeAndRepartition);
        topologies.put("count_in_two_partitions", Aggregations::countInTwoPartitions);
        topologies.put("table_by_region", Aggregations::tableByRegion);
        topologies.put("cogroup_by_region", Aggregations::cogroupByRegion);
        topologies.put("last_seen", Aggregations::lastSeen);
    }

    static KGroupedStream<String, String> byRegion(final StreamsBuilder builder, final String from) {
        final KStream<String, String> stream = builder.stream(from);
        return stream.groupBy(
            (key, value) -> Text.region(value), Grouped.with(Serdes.String(), Serdes.String()));
    }

    static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> stored(final String name) {
        return Materialized.as(name);
    }

    static void longs(final KTable<String, Long> table, final String output) {
        table.toStream().to(output, Produced.valueSerde(Serdes.Long()));
    }

    private static void countByRegion(final StreamsBuilder builder, final String output) {
        final KStream<String, String> events = builder.stream("events");
        longs(
            events.selectKey((key, value) -> Text.region(value)).groupByKey()
                .count(Aggregations.<Long>stored("counts")),
            output);
    }

    private static void sumByRegion(final StreamsBuilder builder, final String output) {
        longs(
            byRegion(builder, "events").aggregate(
                () -> 0L, (region, value, sum) -> sum + Text.amount(value),
                Aggregations.<Long>stored("sums").withValueSerde(Serdes.Long())),
            output);
    }

    private static void reduceByRegion(final StreamsBuilder builder, final String output) {
        byRegion(builder, "events")
            .reduce((old, next) -> Text.amount(next) < 10 ? null : next)
            .toStream().to(output);
    }

    private static void countWords(final StreamsBuilder builder, final String output) {
        final KStream<String, String> events = builder.stream("events");
        longs(
            events.flatMap((key, value) ->
                    Arrays.stream(Text.words(value)).map(word -> KeyValue.pair(word, key)).toList())
                .groupByKey().count(Aggregations.<Long>stored("words")),
            output);
    }

    private static void mergeAndRepartition(final StreamsBuilder builder, final String output) {
        final KStream<String, String> events = builder.stream("events");
        final KStream<String, String> others = builder.stream("others");
        events.merge(others)
            .selectKey((key, value) -> Text.region(value))
            .repartition(Repartitioned.as("merged"))
            .groupByKey()
            .aggregate(
                () -> "", (region, value, all) -> Text.appended(all, value), stored("merged"))
            .toStream().to(output);
    }

    private static void countInTwoPartitions(final StreamsBuilder builder, final String output) {
        final KStream<String, String> events = builder.stream("events");
        longs(
            events.repartition(Repartitioned.<String, String>as("two").withNumberOfPartitions(2))
                .groupByKey().count(Aggregations.<Long>stored("counts")),
            output);
    }

    private static void tableByRegion(final StreamsBuilder builder, final String output) {
        final KTable<String, String> people = builder.table("people", stored("people"));
        longs(
            people.groupBy((key, value) -> KeyValue.pair(Text.region(value), Text.amount(value)),
                    Grouped.with(Serdes.String(), Serdes.Long()))
                .aggregate(
                    () -> 0L, (region, amount, sum) -> sum + amount,
                    (region, amount, sum) -> sum - amount,
                    Aggregations.<Long>stored("amounts").withValueSerde(Serdes.Long())),
            output);
    }

    private static void cogroupByRegion(final StreamsBuilder builder, final String output) {
        final KStream<String, String> events = builder.stream("events");
        final KStream<String, String> others = builder.stream("others");
        events.groupBy((key, value) -> Text.region(value), Grouped.as("events-by-region"))
            .<String>cogroup((region, value, all) -> Text.appended(all, value))
            .cogroup(
                others.groupBy((key, value) -> Text.region(value), Grouped.as("others-by-region")),
                (region, value, all) -> Text.appended(all + "!", value))
            .aggregate(() -> "", Aggregations.<String>stored("together"))
            .toStream().to(output);
    }

    private static void lastSeen(final StreamsBuilder builder, final String output) {
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("last"), Serdes.String(), Serdes.String()));
        builder.stream("events", Consumed.with(Serdes.String(), Serdes.String()))
            .process(LastSeen::new, "last")
            .to(output);
    }

    /** Forwards each value with the previous one of its key. Deletes every tenth amount. */
    private static final class LastSeen
        extends ContextualProcessor<String, String, String, String> {
        private KeyValueStore<String, String> last;

        @Override
        public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            last = context.getStateStore("last");
        }

        @Override
        public void process(final Record<String, String> record) {
            final String before = last.get(record.key());
            context().forward(record.withValue(Text.both(before, record.value())));
            if (Text.amount(record.value()) % 10 == 0) {
                last.delete(record.key());
            } else {
                last.put(record.key(), record.value());
            }
        }
    }
}
