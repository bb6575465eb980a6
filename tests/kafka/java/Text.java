/** Values of the compared topologies: strings of four parts: number, amount, region, words. */
final class Text {
    private Text() {
    }

    static String number(final String value) {
        return value.split(",")[0];
    }

    static long amount(final String value) {
        return Long.parseLong(value.split(",")[1]);
    }

    static String region(final String value) {
        return value.split(",")[2];
    }

    static String[] words(final String value) {
        return value.split(",")[3].split(" ");
    }

    /** Joins two values. A missing side is a dash. */
    static String both(final String left, final String right) {
        return (left == null ? "-" : left) + " & " + (right == null ? "-" : right);
    }

    /** The last few values in order, so that a wrong order is visible. */
    static String appended(final String soFar, final String value) {
        final String all = soFar + "/" + number(value);
        return all.length() > 40 ? all.substring(all.length() - 40) : all;
    }
}
