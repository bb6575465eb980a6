import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Runs all topologies that are compared with penstock, each as its own application.
 *
 *   RunCompared BOOTSTRAP PREFIX [NAME=VALUE ...]
 *
 * Application ids and output topics are PREFIX, a dash, and the name of the topology. For every
 * line of standard input it waits until all of them have processed everything, and prints a line.
 * At the end of the input it closes them and exits.
 */
final class RunCompared {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private RunCompared() {
    }

    public static void main(final String[] arguments) throws Exception {
        final Map<String, String> settings =
            Application.settings(Arrays.asList(arguments).subList(2, arguments.length));
        final List<Application> applications = new ArrayList<>();
        try (Progress progress = new Progress(arguments[0])) {
            for (final String topology : Topologies.compared()) {
                final String name = arguments[1] + "-" + topology;
                applications.add(new Application(arguments[0], name, topology, name, settings));
            }
            applications.forEach(Application::start);
            final BufferedReader orders = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
            while (orders.readLine() != null) {
                progress.awaitAll(applications, PATIENCE);
                System.out.println("caught up");
            }
        } finally {
            closeAll(applications);
        }
    }

    /** In parallel: each of them mostly waits for brokers and threads. */
    private static void closeAll(final List<Application> applications)
        throws InterruptedException {
        final List<Thread> threads =
            applications.stream().map(each -> new Thread(each::close)).toList();
        threads.forEach(Thread::start);
        for (final Thread thread : threads) {
            thread.join();
        }
    }
}
