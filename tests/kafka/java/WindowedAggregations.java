import static java.time.Duration.ofMillis;

import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Tumbling, hopping, sliding and session windows, and results that wait for a window to close. */
final class WindowedAggregations {
    private static final TimeWindows TUMBLING =
        TimeWindows.ofSizeAndGrace(ofMillis(2_000), ofMillis(1_000));

    private WindowedAggregations() {
    }

    static void addTo(final Map<String, BiConsumer<StreamsBuilder, String>> topologies) {
        topologies.put("tumbling_windows", WindowedAggregations::tumblingWindows);
        topologies.put("hopping_windows_by_region", WindowedAggregations::hoppingWindowsByRegion);
        topologies.put("sliding_windows", WindowedAggregations::slidingWindows);
        topologies.put("session_windows_by_region", WindowedAggregations::sessionWindowsByRegion);
        topologies.put("suppressed_by_region", WindowedAggregations::suppressedByRegion);
        topologies.put("emitted_on_close", WindowedAggregations::emittedOnClose);
    }

    private static KGroupedStream<String, String> byKey(final StreamsBuilder builder) {
        final KStream<String, String> events = builder.stream("events");
        return events.groupByKey();
    }

    private static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> stored(
        final String name, final Serde<V> value) {
        return Materialized.<String, V, WindowStore<Bytes, byte[]>>as(name).withValueSerde(value);
    }

    private static void longs(final KTable<Windowed<String>, Long> table, final String output) {
        table.toStream().to(
            output,
            Produced.with(
                WindowedSerdes.timeWindowedSerdeFrom(String.class, 2_000), Serdes.Long()));
    }

    private static void tumblingWindows(final StreamsBuilder builder, final String output) {
        longs(
            byKey(builder).windowedBy(TUMBLING).count(stored("tumbling", Serdes.Long())), output);
    }

    private static void hoppingWindowsByRegion(final StreamsBuilder builder, final String output) {
        final TimeWindows hopping =
            TimeWindows.ofSizeAndGrace(ofMillis(3_000), ofMillis(500)).advanceBy(ofMillis(1_000));
        longs(
            Aggregations.byRegion(builder, "events").windowedBy(hopping).aggregate(
                () -> 0L, (region, value, sum) -> sum + Text.amount(value),
                stored("hopping", Serdes.Long())),
            output);
    }

    private static void slidingWindows(final StreamsBuilder builder, final String output) {
        byKey(builder)
            .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ofMillis(1_000), ofMillis(1_500)))
            .aggregate(
                () -> "", (key, value, all) -> Text.appended(all, value),
                stored("sliding", Serdes.String()))
            .toStream()
            .to(output, Produced.with(
                WindowedSerdes.timeWindowedSerdeFrom(String.class, 1_000), Serdes.String()));
    }

    private static void sessionWindowsByRegion(final StreamsBuilder builder, final String output) {
        Aggregations.byRegion(builder, "events")
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(ofMillis(400), ofMillis(1_000)))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions"))
            .toStream()
            .to(output, Produced.with(
                WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long()));
    }

    private static void suppressedByRegion(final StreamsBuilder builder, final String output) {
        longs(
            Aggregations.byRegion(builder, "events").windowedBy(TUMBLING)
                .count(stored("closing", Serdes.Long()))
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())
                    .withName("closed")),
            output);
    }

    private static void emittedOnClose(final StreamsBuilder builder, final String output) {
        longs(
            byKey(builder).windowedBy(TUMBLING).emitStrategy(EmitStrategy.onWindowClose())
                .count(stored("final", Serdes.Long())),
            output);
    }
}
