import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs applications that receive bad records, and reports what happens to them.
 *
 *   RunHandlers BOOTSTRAP [NAME=VALUE ...]
 *
 * Each line of standard input is a command. The response is one line of JSON:
 *
 *   start ID TOPOLOGY [NAME=VALUE ...]   starts an application; its output topic is ID
 *   await ID [KEY]                       waits until it has failed, or until it has processed
 *                                        everything and the global store has a row with the key
 *   close ID                             closes it
 *
 * The response has the failure of the application, the number of its dropped records, and the
 * restores that its listener was told of.
 */
final class RunHandlers {
    private static final Duration PATIENCE = Duration.ofMinutes(2);
    private static final long PAUSE_MS = 20;

    private final String bootstrap;
    private final Map<String, String> settings;
    private final Map<String, Application> applications = new HashMap<>();
    private final Map<String, RestoreLog> restores = new HashMap<>();

    private RunHandlers(final String bootstrap, final Map<String, String> settings) {
        this.bootstrap = bootstrap;
        this.settings = settings;
    }

    public static void main(final String[] arguments) throws Exception {
        final RunHandlers program = new RunHandlers(
            arguments[0],
            Application.settings(Arrays.asList(arguments).subList(1, arguments.length)));
        try (Progress progress = new Progress(arguments[0])) {
            final BufferedReader orders = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
            String line;
            while ((line = orders.readLine()) != null) {
                program.run(line.split(" "), progress);
            }
        } finally {
            program.applications.values().forEach(Application::close);
        }
    }

    private void run(final String[] order, final Progress progress) throws InterruptedException {
        final String id = order[1];
        switch (order[0]) {
            case "start" -> start(id, order[2], Arrays.asList(order).subList(3, order.length));
            case "await" -> await(id, order.length > 2 ? order[2] : null, progress);
            case "close" -> applications.get(id).close();
            default -> throw new IllegalArgumentException("No command '" + order[0] + "'.");
        }
        System.out.println(outcome(id));
    }

    private void start(final String id, final String topology, final List<String> own) {
        final Map<String, String> all = new HashMap<>(settings);
        all.putAll(Application.settings(own));
        final Application application = new Application(bootstrap, id, topology, id, all);
        final RestoreLog listener = new RestoreLog();
        application.listenToRestores(listener);
        applications.put(id, application);
        restores.put(id, listener);
        application.startOrFail();
    }

    private void await(final String id, final String key, final Progress progress)
        throws InterruptedException {
        final Application application = applications.get(id);
        final long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (application.failure() == null && !(
            application.isRunning() && (key == null || application.hasRow(Handlers.STORE, key))
                && progress.isDone(application))) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("Application '" + id + "' has not caught up.");
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    private ObjectNode outcome(final String id) {
        final Application application = applications.get(id);
        final ObjectNode found = Json.object();
        final StringBuilder chain = new StringBuilder();
        for (Throwable each = application.failure(); each != null; each = each.getCause()) {
            chain.append(each).append('\n');
        }
        found.put("failure", chain.toString());
        found.put("dropped", application.dropped());
        final ArrayNode restored = found.putArray("restored");
        restores.get(id).ended().forEach(each -> restored.addArray()
            .add(each.partition().topic()).add(each.partition().partition()).add(each.store())
            .add(each.start()).add(each.end()).add(each.total()));
        return found;
    }
}
