import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Runs one topology until it has processed all records, and prints how long it took.
 *
 *   RunStreams BOOTSTRAP APPLICATION-ID TOPOLOGY [output=TOPIC] [follow=true] [NAME=VALUE ...]
 *
 * NAME=VALUE are settings of Kafka Streams, such as processing.guarantee and num.stream.threads.
 * With follow=true it continues until standard input ends. Once the lag is zero, it prints one line
 * of JSON: epoch milliseconds of the start, of the first record and of the end, and records per
 * second between the last two. The lag is known from committed offsets, so the end is up to
 * commit.interval.ms (default 100) late.
 */
final class RunStreams {
    private static final Duration PATIENCE = Duration.ofMinutes(30);

    private RunStreams() {
    }

    public static void main(final String[] arguments) throws Exception {
        final List<String> rest =
            new ArrayList<>(Arrays.asList(arguments).subList(3, arguments.length));
        final Map<String, String> settings = Application.settings(rest);
        final String output = settings.getOrDefault("output", arguments[2]);
        final boolean follow = Boolean.parseBoolean(settings.getOrDefault("follow", "false"));
        settings.keySet().removeAll(List.of("output", "follow"));
        try (Progress progress = new Progress(arguments[0]);
             Application application =
                 new Application(arguments[0], arguments[1], arguments[2], output, settings)) {
            final List<String> inputs = application.sources().stream()
                .filter(topic -> !topic.startsWith(arguments[1] + "-")).toList();
            final long records = progress.records(inputs);
            final long started = System.currentTimeMillis();
            application.start();
            progress.awaitAll(List.of(application), PATIENCE);
            final long ended = System.currentTimeMillis();
            final long taken = Application.FirstRecord.takenAt();
            // Without records there is nothing to measure.
            final long first = taken == 0 ? ended : taken;
            System.out.printf(
                "{\"topology\": \"%s\", \"records\": %d, \"started_at\": %d, "
                    + "\"first_record_at\": %d, \"caught_up_at\": %d, "
                    + "\"records_per_second\": %d}%n",
                arguments[2], records, started, first, ended,
                records * 1000 / Math.max(1, ended - first));
            System.out.flush();
            if (follow) {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            }
        }
    }
}
