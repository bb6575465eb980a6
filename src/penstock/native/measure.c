/* Sizes and ages of records, for the metrics of a task (task/meters.py). */
#include "core.h"

/* Adds the size of a key, a value or a header. Objects without a size are not counted: the log
 * refuses such a record with a better message. */
static void
add_size(Measured *all, PyObject *data)
{
    if (data == Py_None)
        return;
    Py_ssize_t size = PyBytes_Check(data) ? PyBytes_GET_SIZE(data) : PyObject_Length(data);
    if (size >= 0)
        all->bytes += size;
    else
        PyErr_Clear();
}

static void
add_headers(Measured *all, PyObject *headers)
{
    if (!PyTuple_Check(headers))
        return;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(headers); at++) {
        PyObject *pair = PyTuple_GET_ITEM(headers, at);
        Py_ssize_t size;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)
            continue;
        PyObject *name = PyTuple_GET_ITEM(pair, 0);
        if (PyUnicode_Check(name) && PyUnicode_AsUTF8AndSize(name, &size) != NULL)
            all->bytes += size;
        else
            PyErr_Clear();
        add_size(all, PyTuple_GET_ITEM(pair, 1));
    }
}

static int
add_age(Measured *all, long long now, PyObject *timestamp)
{
    long long time = as_number(timestamp);
    if (time == -1 && PyErr_Occurred())
        return -1;
    long long age = now - time;
    if (all->records == 0 || age < all->youngest)
        all->youngest = age;
    if (all->records == 0 || age > all->oldest)
        all->oldest = age;
    all->ages += (double)age;
    all->records++;
    return 0;
}

/* Adds a record without headers that is about to be processed. A timestamp that is no number is
 * reported by the code that processes it. */
void
measure_record(Measured *all, long long now, PyObject *timestamp, PyObject *key, PyObject *value)
{
    add_size(all, key);
    add_size(all, value);
    if (add_age(all, now, timestamp) < 0)
        PyErr_Clear();
}

static PyObject *
as_tuple(Measured *all)
{
    return Py_BuildValue("(LLdLL)", all->records, all->bytes, all->ages, all->youngest,
                         all->oldest);
}

/* measure_columns(keys, values, timestamps, headers or None, (first, last), now):
 * (records, bytes, sum of ages, smallest age, largest age). */
PyObject *
measure_columns(PyObject *module, PyObject *args)
{
    PyObject *given[4], *columns[4] = {NULL, NULL, NULL, NULL}, *found = NULL;
    Py_ssize_t first, last;
    long long now;
    Measured all = {0};
    if (!PyArg_ParseTuple(args, "OOOO(nn)L", &given[0], &given[1], &given[2], &given[3], &first,
                          &last, &now))
        return NULL;
    for (int at = 0; at < 4; at++) {
        if (given[at] == Py_None)
            continue;
        columns[at] = PySequence_Fast(given[at], "A column is a sequence.");
        if (columns[at] == NULL)
            goto done;
        if (first < 0 || last > PySequence_Fast_GET_SIZE(columns[at])) {
            PyErr_SetString(PyExc_IndexError, "The span is not inside of the column.");
            goto done;
        }
    }
    if (columns[0] == NULL || columns[1] == NULL || columns[2] == NULL) {
        PyErr_SetString(PyExc_TypeError, "Only the column of headers may be missing.");
        goto done;
    }
    for (Py_ssize_t at = first; at < last; at++) {
        add_size(&all, PySequence_Fast_GET_ITEM(columns[0], at));
        add_size(&all, PySequence_Fast_GET_ITEM(columns[1], at));
        if (columns[3] != NULL)
            add_headers(&all, PySequence_Fast_GET_ITEM(columns[3], at));
        if (add_age(&all, now, PySequence_Fast_GET_ITEM(columns[2], at)) < 0)
            goto done;
    }
    found = as_tuple(&all);
done:
    for (int at = 0; at < 4; at++)
        Py_XDECREF(columns[at]);
    return found;
}

/* Adds to the dict what was measured of one topic. */
static int
add_topic(PyObject *found, PyObject *topic, Measured *all)
{
    PyObject *before = PyDict_GetItemWithError(found, topic);
    if (before == NULL && PyErr_Occurred())
        return -1;
    if (before != NULL) {
        Measured earlier;
        if (!PyArg_ParseTuple(before, "LLdLL", &earlier.records, &earlier.bytes, &earlier.ages,
                              &earlier.youngest, &earlier.oldest))
            return -1;
        all->records += earlier.records;
        all->bytes += earlier.bytes;
        all->ages += earlier.ages;
        all->youngest = earlier.youngest < all->youngest ? earlier.youngest : all->youngest;
        all->oldest = earlier.oldest > all->oldest ? earlier.oldest : all->oldest;
    }
    PyObject *tuple = as_tuple(all);
    int failed = tuple == NULL || PyDict_SetItem(found, topic, tuple) < 0;
    Py_XDECREF(tuple);
    return failed ? -1 : 0;
}

/* measure_outputs(outputs, first, now): topic -> the same of rows with the fields of `Output`. */
PyObject *
measure_outputs(PyObject *module, PyObject *args)
{
    PyObject *outputs, *topic = NULL;
    Py_ssize_t first;
    long long now;
    Measured all = {0};
    if (!PyArg_ParseTuple(args, "O!nL", &PyList_Type, &outputs, &first, &now))
        return NULL;
    if (first < 0) {
        PyErr_SetString(PyExc_IndexError, "The first output is not inside of the list.");
        return NULL;
    }
    PyObject *found = PyDict_New();
    if (found == NULL)
        return NULL;
    for (Py_ssize_t at = first; at < PyList_GET_SIZE(outputs); at++) {
        PyObject *row = PyList_GET_ITEM(outputs, at);
        if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 6) {
            PyErr_SetString(PyExc_TypeError, "An output is a tuple of six items.");
            goto failed;
        }
        /* The sinks of a task alternate rarely, and use one object for the name of a topic. */
        if (PyTuple_GET_ITEM(row, 0) != topic) {
            if (topic != NULL && add_topic(found, topic, &all) < 0)
                goto failed;
            topic = PyTuple_GET_ITEM(row, 0);
            memset(&all, 0, sizeof all);
        }
        add_size(&all, PyTuple_GET_ITEM(row, 2));
        add_size(&all, PyTuple_GET_ITEM(row, 3));
        add_headers(&all, PyTuple_GET_ITEM(row, 5));
        if (add_age(&all, now, PyTuple_GET_ITEM(row, 4)) < 0)
            goto failed;
    }
    if (topic == NULL || add_topic(found, topic, &all) == 0)
        return found;
failed:
    Py_DECREF(found);
    return NULL;
}
