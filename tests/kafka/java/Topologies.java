import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * Every topology by its name: those that are compared with penstock, and the benchmarks'.
 *
 * A topology gets a builder and the name of its output topic. Those that are compared have a twin
 * of the same name in tests/kafka/comparison_topologies.py, those of the benchmarks in bench/runtime.py.
 */
final class Topologies {
    private static final Map<String, BiConsumer<StreamsBuilder, String>> COMPARED =
        new LinkedHashMap<>();
    private static final Map<String, BiConsumer<StreamsBuilder, String>> MEASURED =
        new LinkedHashMap<>();

    static {
        Aggregations.addTo(COMPARED);
        WindowedAggregations.addTo(COMPARED);
        Joins.addTo(COMPARED);
        COMPARED.put("orders", OrdersTopology::build);
        Workloads.addTo(MEASURED);
    }

    private Topologies() {
    }

    /** The names of those that are compared, in the order in which they are written down. */
    static List<String> compared() {
        return List.copyOf(COMPARED.keySet());
    }

    static void build(final StreamsBuilder builder, final String name, final String output) {
        final BiConsumer<StreamsBuilder, String> made =
            COMPARED.getOrDefault(name, MEASURED.get(name));
        if (made == null) {
            throw new IllegalArgumentException(
                "No topology '" + name + "'. Topologies: " + COMPARED.keySet() + ", "
                    + MEASURED.keySet() + ".");
        }
        made.accept(builder, output);
    }
}
