import static java.time.Duration.ofMillis;

import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;

/** Joins of streams, of tables, and of both. */
final class Joins {
    private Joins() {
    }

    static void addTo(final Map<String, BiConsumer<StreamsBuilder, String>> topologies) {
        topologies.put("inner_join", Joins::innerJoin);
        topologies.put("outer_join", Joins::outerJoin);
        topologies.put("left_join_by_region", Joins::leftJoinByRegion);
        topologies.put("table_lookup_by_region", Joins::tableLookupByRegion);
        topologies.put("outer_join_of_tables", Joins::outerJoinOfTables);
        topologies.put("foreign_key_join", Joins::foreignKeyJoin);
        topologies.put("global_table_join", Joins::globalTableJoin);
    }

    private static void innerJoin(final StreamsBuilder builder, final String output) {
        final KStream<String, String> left = builder.stream("left");
        final KStream<String, String> right = builder.stream("right");
        left.join(
                right, Text::both,
                JoinWindows.ofTimeDifferenceAndGrace(ofMillis(300), ofMillis(400)))
            .to(output);
    }

    private static void outerJoin(final StreamsBuilder builder, final String output) {
        final KStream<String, String> left = builder.stream("left");
        final KStream<String, String> right = builder.stream("right");
        left.outerJoin(
                right, Text::both,
                JoinWindows.ofTimeDifferenceAndGrace(ofMillis(100), ofMillis(200))
                    .before(ofMillis(250)))
            .to(output);
    }

    private static void leftJoinByRegion(final StreamsBuilder builder, final String output) {
        final KStream<String, String> events = builder.stream("events");
        final KStream<String, String> others = builder.stream("others");
        events.selectKey((key, value) -> Text.region(value))
            .leftJoin(
                others.selectKey((key, value) -> Text.region(value)), Text::both,
                JoinWindows.ofTimeDifferenceAndGrace(ofMillis(200), ofMillis(3_000)))
            .to(output);
    }

    private static void tableLookupByRegion(final StreamsBuilder builder, final String output) {
        final KTable<String, String> places =
            builder.table("places", Aggregations.stored("places"));
        final KStream<String, String> events = builder.stream("events");
        events.selectKey((key, value) -> Text.region(value))
            .leftJoin(places, Text::both)
            .to(output);
    }

    private static void outerJoinOfTables(final StreamsBuilder builder, final String output) {
        final KTable<String, String> people =
            builder.table("people", Aggregations.stored("people"));
        final KTable<String, String> accounts =
            builder.table("accounts", Aggregations.stored("accounts"));
        people.outerJoin(accounts, Text::both, Aggregations.stored("joined")).toStream().to(output);
    }

    private static void foreignKeyJoin(final StreamsBuilder builder, final String output) {
        final KTable<String, String> links = builder.table("links", Aggregations.stored("links"));
        final KTable<String, String> places =
            builder.table("places", Aggregations.stored("places"));
        links.leftJoin(places, Text::region, Text::both, Aggregations.stored("joined"))
            .toStream().to(output);
    }

    private static void globalTableJoin(final StreamsBuilder builder, final String output) {
        final GlobalKTable<String, String> rates = builder.globalTable("rates");
        final KStream<String, String> events = builder.stream("events");
        events.leftJoin(rates, (key, value) -> Text.region(value), Text::both).to(output);
    }
}
