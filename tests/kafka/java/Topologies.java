import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * All topologies by name: those that are compared with penstock, those that receive bad records,
 * the one that both run in turn, the one that is queried, and those of the benchmarks.
 *
 * A topology takes a builder and the name of its output topic. The compared ones have the same name
 * in tests/kafka/comparison_topologies.py, those of the benchmarks in bench/runtime.py.
 */
final class Topologies {
    private static final Map<String, BiConsumer<StreamsBuilder, String>> COMPARED =
        new LinkedHashMap<>();
    private static final Map<String, BiConsumer<StreamsBuilder, String>> OTHERS =
        new LinkedHashMap<>();

    static {
        Aggregations.addTo(COMPARED);
        WindowedAggregations.addTo(COMPARED);
        Joins.addTo(COMPARED);
        COMPARED.put("orders", OrdersTopology::build);
        Handlers.addTo(OTHERS);
        Handover.addTo(OTHERS);
        KindsOfStores.addTo(OTHERS);
        Workloads.addTo(OTHERS);
    }

    private Topologies() {
    }

    /** The names of the compared topologies, in the order of their definition. */
    static List<String> compared() {
        return List.copyOf(COMPARED.keySet());
    }

    static void build(final StreamsBuilder builder, final String name, final String output) {
        final BiConsumer<StreamsBuilder, String> made =
            COMPARED.getOrDefault(name, OTHERS.get(name));
        if (made == null) {
            throw new IllegalArgumentException(
                "No topology '" + name + "'. Topologies: " + COMPARED.keySet() + ", "
                    + OTHERS.keySet() + ".");
        }
        made.accept(builder, output);
    }
}
