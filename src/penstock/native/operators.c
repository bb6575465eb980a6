/* The per-record work of some operators (processors/). Their Python twins document the rules. */
#include "core.h"

/* new_value(forward): the new value of a change, as a stream (ToStream). */
static PyObject *
new_value(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    if (PyTuple_Check(args[1]) && PyTuple_GET_SIZE(args[1]))
        return call_four(step->held[0], args[0], PyTuple_GET_ITEM(args[1], 0), args[2], args[3]);
    PyObject *value = PySequence_GetItem(args[1], 0);
    if (value == NULL)
        return NULL;
    PyObject *result = call_four(step->held[0], args[0], value, args[2], args[3]);
    Py_DECREF(value);
    return result;
}

PyObject *
make_new_value(PyObject *module, PyObject *args)
{
    PyObject *forward;
    if (!PyArg_ParseTuple(args, "O", &forward))
        return NULL;
    return (PyObject *)step_new("new_value", new_value, &forward, 1);
}

/* Count, as an initializer and an aggregator. */
PyObject *
zero(PyObject *module, PyObject *ignored)
{
    return PyLong_FromLong(0);
}

PyObject *
count_up(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "function takes exactly 3 arguments (%zd given)", count);
    PyObject *one = PyLong_FromLong(1);
    PyObject *next = one == NULL ? NULL : PyNumber_Add(args[2], one);
    Py_XDECREF(one);
    return next;
}

static PyObject *
drop_because(PyObject *drop, const char *reason)
{
    PyObject *words = PyUnicode_FromString(reason);
    PyObject *result = words == NULL ? NULL : PyObject_CallOneArg(drop, words);
    Py_XDECREF(words);
    return result;
}

/* keyed_fold(drop, write_key, row_of, fold_row): StreamAggregate over a cache. */
static PyObject *
keyed_fold(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    if (args[0] == Py_None || args[1] == Py_None)
        return drop_because(step->held[0], "null key or value");
    PyObject *row = write_row(step->held[1], step->held[2], args[0]);
    if (row == NULL)
        return NULL;
    PyObject *result = call_four(step->held[3], row, args[0], args[1], args[2]);
    Py_DECREF(row);
    return result;
}

PyObject *
make_keyed_fold(PyObject *module, PyObject *args)
{
    PyObject *objects[4];
    if (!PyArg_ParseTuple(args, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3]))
        return NULL;
    return (PyObject *)step_new("keyed_fold", keyed_fold, objects, 4);
}

/* ---- windows --------------------------------------------------------------------------------- */

enum { DROP, OBSERVED, WRITE_KEY, ROW_OF, FOLD_ROW, WINDOW_OBJECTS };
enum { SIZE, ADVANCE, GRACE, INTERVAL, CLOCK_TIME };

/* The row key of a window in the layout of `KeyFirstSchema`; careful if the key needs it. */
static PyObject *
window_row(Step *step, PyObject *raw, PyObject *key, int64_t start)
{
    if (raw == NULL) {
        PyObject *from = PyLong_FromLongLong(start);
        PyObject *row = from == NULL ? NULL : call_two(step->held[ROW_OF], key, from);
        Py_XDECREF(from);
        return row;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(raw);
    PyObject *row = PyBytes_FromStringAndSize(NULL, size + 20);
    if (row != NULL) {
        char *to = PyBytes_AS_STRING(row);
        put_long(to, start / step->numbers[INTERVAL]);
        memcpy(to + 8, PyBytes_AS_STRING(raw), size);
        put_long(to + 8 + size, start);
        memset(to + 16 + size, 0, 4);
    }
    return row;
}

static PyObject *
fold_window(Step *step, PyObject *raw, int64_t start, PyObject *const *args)
{
    PyObject *row = window_row(step, raw, args[0], start);
    if (row == NULL)
        return NULL;
    PyObject *result = call_four(step->held[FOLD_ROW], row, args[0], args[1], args[2]);
    Py_DECREF(row);
    return result;
}

/* The bytes of the key; NULL without an exception if only `row_of` can serialize it. */
static int
fast_key(Step *step, PyObject *key, PyObject **raw)
{
    *raw = write_fast(step->held[WRITE_KEY], key);
    if (*raw != NULL && !PyBytes_Check(*raw))
        Py_CLEAR(*raw);
    return *raw == NULL && PyErr_Occurred() ? forget_error() : 0;
}

/* Advances the stream time of the node. */
static int
observe(Step *step, PyObject *timestamp, int64_t time, int64_t *stream_time)
{
    PyObject *clock = step->held[OBSERVED];
    Py_ssize_t place = step->numbers[CLOCK_TIME];
    *stream_time = slot_number(clock, place);
    if (*stream_time == -1 && PyErr_Occurred())
        return -1;
    if (time > *stream_time) {
        slot_set(clock, place, timestamp);
        *stream_time = time;
    }
    return 0;
}

/* window_fold(drop, clock, (write_key, row_of, fold_row), (size, advance, grace, interval)):
 * WindowAggregate of `TimeWindows` over a cache, with the layout of `KeyFirstSchema`. */
static PyObject *
window_fold(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    if (args[0] == Py_None)
        return drop_because(step->held[DROP], "null key");
    int64_t time = as_number(args[2]), stream_time;
    if ((time == -1 && PyErr_Occurred())
        || observe(step, args[2], time, &stream_time) < 0)
        return NULL;
    PyObject *raw = NULL;
    int64_t size = step->numbers[SIZE], advance = step->numbers[ADVANCE];
    if (time - time % advance > INT64_MAX - size)
        return PyErr_Format(PyExc_ValueError,
                            "The window that starts at %lld ends after the largest timestamp, %lld. "
                            "Check the timestamp of the record: %lld.",
                            (long long)(time - time % advance), (long long)INT64_MAX,
                            (long long)time);
    int64_t start = time - (size - advance);
    start = start > 0 ? start - start % advance : 0;
    int done = 0, tried = 0;
    for (; done == 0 && start <= time; start += advance) {
        PyObject *result = NULL;
        if (start + size <= stream_time - step->numbers[GRACE])
            result = drop_because(step->held[DROP], "expired window");
        else if (tried++ || fast_key(step, args[0], &raw) == 0)
            result = fold_window(step, raw, start, args);
        done = result == NULL ? -1 : 0;
        Py_XDECREF(result);
    }
    Py_XDECREF(raw);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
make_window_fold(PyObject *module, PyObject *args)
{
    PyObject *objects[WINDOW_OBJECTS];
    long long numbers[4];
    if (!PyArg_ParseTuple(args, "OO(OOO)(LLLL)", &objects[DROP], &objects[OBSERVED],
                          &objects[WRITE_KEY], &objects[ROW_OF], &objects[FOLD_ROW],
                          &numbers[SIZE], &numbers[ADVANCE], &numbers[GRACE], &numbers[INTERVAL]))
        return NULL;
    if (numbers[ADVANCE] < 1 || numbers[INTERVAL] < 1) {
        PyErr_SetString(PyExc_ValueError, "Windows advance by, and segments last, 1 ms at least.");
        return NULL;
    }
    Py_ssize_t place = slot_place(Py_TYPE(objects[OBSERVED]), "time");
    if (place < 0)
        return NULL;
    Step *step = step_new("window_fold", window_fold, objects, WINDOW_OBJECTS);
    if (step != NULL) {
        for (int at = 0; at < 4; at++)
            step->numbers[at] = numbers[at];
        step->numbers[CLOCK_TIME] = place;
    }
    return (PyObject *)step;
}

/* ---- stream-table joins ---------------------------------------------------------------------- */

enum { GET, JOINER, FORWARD, JOIN_DROP, MATCHED, UNMATCHED, NULL_REASON, JOIN_OBJECTS };
enum { LEFT, AMOUNT };

static int
count_one(PyObject *tally, Py_ssize_t place)
{
    int64_t amount = slot_number(tally, place);
    return amount == -1 && PyErr_Occurred() ? -1 : slot_set_number(tally, place, amount + 1);
}

/* table_join(get, joiner, forward, (drop, reason), (matched, unmatched), left). */
static PyObject *
table_join(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    if (args[1] == Py_None || (args[0] == Py_None && !step->numbers[LEFT]))
        return PyObject_CallOneArg(step->held[JOIN_DROP], step->held[NULL_REASON]);
    PyObject *row = args[0] == Py_None ? Py_NewRef(Py_None)
                                       : PyObject_CallOneArg(step->held[GET], args[0]);
    if (row == NULL)
        return NULL;
    PyObject *other = Py_NewRef(Py_None);
    if (row != Py_None)
        Py_SETREF(other, PySequence_GetItem(row, 0));
    Py_DECREF(row);
    if (other == NULL)
        return NULL;
    PyObject *result = NULL;
    PyObject *tally = step->held[other == Py_None ? UNMATCHED : MATCHED];
    if (count_one(tally, step->numbers[AMOUNT]) == 0) {
        if (other == Py_None && !step->numbers[LEFT]) {
            result = Py_NewRef(Py_None);
        } else {
            PyObject *joined = call_two(step->held[JOINER], args[1], other);
            if (joined != NULL)
                result = call_four(step->held[FORWARD], args[0], joined, args[2], args[3]);
            Py_XDECREF(joined);
        }
    }
    Py_DECREF(other);
    return result;
}

PyObject *
make_table_join(PyObject *module, PyObject *args)
{
    PyObject *objects[JOIN_OBJECTS];
    int left;
    if (!PyArg_ParseTuple(args, "OOO(OO)(OO)p", &objects[GET], &objects[JOINER], &objects[FORWARD],
                          &objects[JOIN_DROP], &objects[NULL_REASON], &objects[MATCHED],
                          &objects[UNMATCHED], &left))
        return NULL;
    Py_ssize_t place = slot_place(Py_TYPE(objects[MATCHED]), "amount");
    if (place < 0)
        return NULL;
    if (Py_TYPE(objects[UNMATCHED]) != Py_TYPE(objects[MATCHED])) {
        PyErr_SetString(PyExc_TypeError, "Both tallies are of one kind.");
        return NULL;
    }
    Step *step = step_new("table_join", table_join, objects, JOIN_OBJECTS);
    if (step != NULL) {
        step->numbers[LEFT] = left;
        step->numbers[AMOUNT] = place;
    }
    return (PyObject *)step;
}
