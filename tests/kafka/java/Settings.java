import java.util.TreeSet;
import org.apache.kafka.streams.StreamsConfig;

/** Prints the names of all settings of Kafka Streams. */
public final class Settings {
    private Settings() { }

    public static void main(final String[] args) {
        new TreeSet<>(StreamsConfig.configDef().names()).forEach(System.out::println);
    }
}
