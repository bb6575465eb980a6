/* Flushing the cache: bulk writes to the store below, changelog records and listeners
 * (cache_layer.py, overlay.py, changelog_layer.py, key_value.py, window.py). */
#include "core.h"

/* stored_rows(cache, entries): names and stored values; None if one is a deletion. */
PyObject *
stored_rows(PyObject *module, PyObject *args)
{
    PyObject *cache, *changes;
    if (!PyArg_ParseTuple(args, "O!O!", &CacheEntriesType, &cache, &PyList_Type, &changes))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(changes);
    PyObject *rows = PyList_New(count), *values = PyList_New(count), *both = NULL;
    if (rows == NULL || values == NULL)
        goto done;
    for (Py_ssize_t at = 0; at < count; at++) {
        Entry *entry = (Entry *)PyList_GET_ITEM(changes, at);
        if (!Py_IS_TYPE(entry, &EntryType)) {
            PyErr_SetString(PyExc_TypeError, "not an entry");
            goto done;
        }
        PyObject *stored = entry_stored((CacheEntries *)cache, entry);
        if (stored == NULL)
            goto done;
        if (stored == Py_None) {
            both = Py_NewRef(Py_None);
            goto done;
        }
        PyList_SET_ITEM(rows, at, Py_NewRef(entry->name));
        PyList_SET_ITEM(values, at, Py_NewRef(stored));
    }
    both = PyTuple_Pack(2, rows, values);
done:
    Py_XDECREF(rows);
    Py_XDECREF(values);
    return both;
}

/* The items of a list, and of a list or tuple. */
static int
same_length(PyObject *rows, PyObject *values)
{
    if (PyList_GET_SIZE(rows) == PySequence_Fast_GET_SIZE(values))
        return 0;
    PyErr_SetString(PyExc_ValueError, "There must be as many values as rows.");
    return -1;
}

/* write_rows(writes, unsorted, rows, values): also appends new keys to `unsorted`. */
PyObject *
write_rows(PyObject *module, PyObject *args)
{
    PyObject *writes, *unsorted, *rows, *given, *done = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!O", &PyDict_Type, &writes, &PyList_Type, &unsorted,
                          &PyList_Type, &rows, &given))
        return NULL;
    PyObject *values = PySequence_Fast(given, "values are a sequence");
    if (values == NULL || same_length(rows, values) < 0)
        goto done;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(rows); at++) {
        PyObject *row = PyList_GET_ITEM(rows, at), *value = PySequence_Fast_GET_ITEM(values, at);
        Py_ssize_t before = PyDict_GET_SIZE(writes);
        if (PyDict_SetDefault(writes, row, value) == NULL)
            goto done;
        if (PyDict_GET_SIZE(writes) != before) {
            if (PyList_Append(unsorted, row) < 0)
                goto done;
        } else if (PyDict_SetItem(writes, row, value) < 0) {
            goto done;
        }
    }
    done = Py_NewRef(Py_None);
done:
    Py_XDECREF(values);
    return done;
}

/* times_of_rows(rows, time_at): the smallest and the largest time; there must be a row. */
PyObject *
times_of_rows(PyObject *module, PyObject *args)
{
    PyObject *rows;
    Py_ssize_t time_at;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &rows, &time_at))
        return NULL;
    int64_t first = INT64_MAX, last = INT64_MIN, time;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(rows); at++) {
        if (row_time(PyList_GET_ITEM(rows, at), time_at, &time) < 0)
            return NULL;
        first = time < first ? time : first;
        last = time > last ? time : last;
    }
    return Py_BuildValue("LL", (long long)first, (long long)last);
}

static PyObject *
bytes_from(PyObject *data, Py_ssize_t from)
{
    if (!PyBytes_Check(data) || from < 0 || PyBytes_GET_SIZE(data) < from) {
        PyErr_Format(PyExc_ValueError, "A row has at least %zd bytes.", from);
        return NULL;
    }
    if (from == 0)
        return Py_NewRef(data);
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + from, PyBytes_GET_SIZE(data) - from);
}

/* timestamped_changes(store, rows, values, cut, headers): one changelog record for each row, whose
 * key is the physical one without its first `cut` bytes. */
PyObject *
timestamped_changes(PyObject *module, PyObject *args)
{
    PyObject *store, *rows, *values, *headers;
    Py_ssize_t cut;
    if (!PyArg_ParseTuple(args, "OO!O!nO", &store, &PyList_Type, &rows, &PyList_Type, &values, &cut,
                          &headers)
        || same_length(rows, values) < 0)
        return NULL;
    PyObject *changes = PyList_New(PyList_GET_SIZE(rows));
    for (Py_ssize_t at = 0; changes != NULL && at < PyList_GET_SIZE(rows); at++) {
        PyObject *key = bytes_from(PyList_GET_ITEM(rows, at), cut);
        PyObject *value = key == NULL ? NULL : bytes_from(PyList_GET_ITEM(values, at), 8);
        PyObject *time = NULL, *change = NULL;
        if (value != NULL)
            time = PyLong_FromLongLong(long_from(PyBytes_AS_STRING(PyList_GET_ITEM(values, at))));
        if (time != NULL)
            change = PyTuple_New(5);
        if (change == NULL) {
            Py_XDECREF(key);
            Py_XDECREF(value);
            Py_XDECREF(time);
            Py_CLEAR(changes);
            break;
        }
        PyTuple_SET_ITEM(change, 0, Py_NewRef(store));
        PyTuple_SET_ITEM(change, 1, key);
        PyTuple_SET_ITEM(change, 2, value);
        PyTuple_SET_ITEM(change, 3, time);
        PyTuple_SET_ITEM(change, 4, Py_NewRef(headers));
        PyList_SET_ITEM(changes, at, change);
    }
    return changes;
}

/* tell_changes(entries, current, listen): calls listen(name, value, None, entry) for each entry,
 * with the record that wrote it as the current one. */
PyObject *
tell_changes(PyObject *module, PyObject *args)
{
    PyObject *changes, *current, *listener;
    if (!PyArg_ParseTuple(args, "O!OO", &PyList_Type, &changes, &current, &listener))
        return NULL;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(changes); at++) {
        Entry *entry = (Entry *)PyList_GET_ITEM(changes, at);
        if (!Py_IS_TYPE(entry, &EntryType) || entry->rows == NULL) {
            PyErr_SetString(PyExc_TypeError, "Only written entries can be reported.");
            return NULL;
        }
        if (know_current(current) < 0)
            return NULL;
        Py_INCREF(entry);
        slot_set(current, current_slots.rows, entry->rows);
        slot_set(current, current_slots.sent, entry->sent ? Py_True : Py_False);
        slot_set(current, current_slots.headers, entry->headers);
        PyObject *result = NULL;
        if (slot_set_number(current, current_slots.at, entry->at) == 0
            && slot_set_number(current, current_slots.timestamp, entry->timestamp) == 0)
            result = call_four(listener, entry->name, entry->value, Py_None, (PyObject *)entry);
        Py_DECREF(entry);
        if (result == NULL)
            return NULL;
        Py_DECREF(result);
    }
    Py_RETURN_NONE;
}

/* ---- listeners ------------------------------------------------------------------------------- */

enum { LISTENER, READ_KEY, CAREFUL_KEY, SPLIT, WINDOWED, WINDOW, WINDOWS, LISTENER_OBJECTS };
enum { SIZE_MS };

#define MANY_WINDOWS 1024

/* The window that starts at a time, created once; borrowed from the dictionary of the step. */
static PyObject *
window_at(Step *step, int64_t start)
{
    PyObject *windows = step->held[WINDOWS], *from = PyLong_FromLongLong(start);
    if (from == NULL)
        return NULL;
    PyObject *window = PyDict_GetItemWithError(windows, from);
    if (window == NULL && !PyErr_Occurred()) {
        int64_t size = step->numbers[SIZE_MS];
        PyObject *end = PyLong_FromLongLong(start > INT64_MAX - size ? INT64_MAX : start + size);
        if (PyDict_GET_SIZE(windows) > MANY_WINDOWS)
            PyDict_Clear(windows);
        PyObject *made = end == NULL ? NULL : call_two(step->held[WINDOW], from, end);
        if (made != NULL && PyDict_SetItem(windows, from, made) == 0)
            window = made;
        Py_XDECREF(end);
        Py_XDECREF(made);
    }
    Py_DECREF(from);
    return window;
}

/* An instance of a subclass of tuple with two items and no other fields. */
static PyObject *
pair_of(PyTypeObject *type, PyObject *first, PyObject *second)
{
    PyObject *pair = type->tp_alloc(type, 2);
    if (pair != NULL) {
        PyTuple_SET_ITEM(pair, 0, Py_NewRef(first));
        PyTuple_SET_ITEM(pair, 1, Py_NewRef(second));
    }
    return pair;
}

/* The typed key of a row: the bytes as they are, or those between segment and window start. */
static PyObject *
typed_key(Step *step, PyObject *row)
{
    if (step->numbers[SIZE_MS] < 0)
        return read_value(step->held[READ_KEY], step->held[CAREFUL_KEY], row);
    int64_t start;
    if (row_time(row, -12, &start) < 0)
        return NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(row) - 20;
    PyObject *raw = PyBytes_FromStringAndSize(PyBytes_AS_STRING(row) + 8, size < 0 ? 0 : size);
    if (raw == NULL)
        return NULL;
    PyObject *key = read_value(step->held[READ_KEY], step->held[CAREFUL_KEY], raw);
    Py_DECREF(raw);
    PyObject *window = key == NULL ? NULL : window_at(step, start), *windowed = NULL;
    if (window != NULL)
        windowed = pair_of((PyTypeObject *)step->held[WINDOWED], key, window);
    Py_XDECREF(key);
    return windowed;
}

/* The plain value and timestamp of an entry: the decoded value if it is kept, else its bytes. */
static int
value_and_time(Step *step, Entry *entry, PyObject *stored, PyObject **value, PyObject **time)
{
    *time = PyLong_FromLongLong(entry->typed != UNKNOWN ? entry->time : entry->timestamp);
    if (*time == NULL)
        return -1;
    *value = Py_NewRef(entry->typed != UNKNOWN ? entry->typed : Py_None);
    if (entry->typed != UNKNOWN || stored == Py_None)
        return 0;
    PyObject *parts = PyObject_CallOneArg(step->held[SPLIT], stored);
    if (parts == NULL || !PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) != 2) {
        if (parts != NULL)
            PyErr_SetString(PyExc_TypeError, "A stored value is split into two.");
        Py_XDECREF(parts);
        Py_CLEAR(*value);
        Py_CLEAR(*time);
        return -1;
    }
    Py_SETREF(*value, Py_NewRef(PyTuple_GET_ITEM(parts, 0)));
    if (PyTuple_GET_ITEM(parts, 1) != Py_None)
        Py_SETREF(*time, Py_NewRef(PyTuple_GET_ITEM(parts, 1)));
    Py_DECREF(parts);
    return 0;
}

/* listener(row, new, old, entry): passes typed key, new and old value, time and headers on. */
static PyObject *
row_listener(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    Entry *entry = (Entry *)args[3];
    PyObject *value, *time, *result = NULL, *old = Py_NewRef(Py_None);
    if (!Py_IS_TYPE(entry, &EntryType)) {
        PyErr_SetString(PyExc_TypeError, "A listener takes an entry.");
        Py_DECREF(old);
        return NULL;
    }
    if (args[2] != Py_None) {
        PyObject *parts = PyObject_CallOneArg(step->held[SPLIT], args[2]);
        if (parts != NULL)
            Py_SETREF(old, PySequence_GetItem(parts, 0));
        else
            Py_CLEAR(old);
        Py_XDECREF(parts);
    }
    if (old == NULL)
        return NULL;
    if (value_and_time(step, entry, args[1], &value, &time) == 0) {
        PyObject *key = typed_key(step, args[0]);
        if (key != NULL) {
            PyObject *stack[6] = {NULL, key, value, old, time, entry->headers};
            result = PyObject_Vectorcall(step->held[LISTENER], stack + 1,
                                         5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
            Py_DECREF(key);
        }
        Py_DECREF(value);
        Py_DECREF(time);
    }
    Py_DECREF(old);
    return result;
}

static int
is_tuple_type(PyObject *type)
{
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type))
        return 1;
    PyErr_SetString(PyExc_TypeError, "A subclass of tuple is wanted.");
    return 0;
}

/* row_listener(listener, read_key, careful_key, split, Windowed, Window, size_ms). For a
 * key-value store the size is -1; else rows are as `KeyFirstSchema` has them. */
PyObject *
make_row_listener(PyObject *module, PyObject *args)
{
    PyObject *objects[LISTENER_OBJECTS];
    long long size_ms;
    if (!PyArg_ParseTuple(args, "OOOOOOL", &objects[LISTENER], &objects[READ_KEY],
                          &objects[CAREFUL_KEY], &objects[SPLIT], &objects[WINDOWED],
                          &objects[WINDOW], &size_ms)
        || !is_tuple_type(objects[WINDOWED]))
        return NULL;
    objects[WINDOWS] = PyDict_New();
    if (objects[WINDOWS] == NULL)
        return NULL;
    Step *step = step_new("row_listener", row_listener, objects, LISTENER_OBJECTS);
    Py_DECREF(objects[WINDOWS]);
    if (step != NULL)
        step->numbers[SIZE_MS] = size_ms;
    return (PyObject *)step;
}

/* change_listener(forward, Change): forwards flushed entries as changes. */
static PyObject *
change_listener(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(5)
    PyTypeObject *type = (PyTypeObject *)step->held[1];
    PyObject *change = type->tp_alloc(type, 3);
    if (change == NULL)
        return NULL;
    PyTuple_SET_ITEM(change, 0, Py_NewRef(args[1]));
    PyTuple_SET_ITEM(change, 1, Py_NewRef(args[2]));
    PyTuple_SET_ITEM(change, 2, Py_NewRef(Py_True));
    PyObject *result = call_four(step->held[0], args[0], change, args[3], args[4]);
    Py_DECREF(change);
    return result;
}

PyObject *
make_change_listener(PyObject *module, PyObject *args)
{
    PyObject *objects[2];
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1]) || !is_tuple_type(objects[1]))
        return NULL;
    return (PyObject *)step_new("change_listener", change_listener, objects, 2);
}
