/* Converts batches of changelog records to rows (key_schema.py, value_formats.py). */
#include "core.h"

/* A new bytes object: a number in eight bytes, then the data. */
static PyObject *
behind_long(int64_t number, PyObject *data)
{
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    PyObject *both = PyBytes_FromStringAndSize(NULL, size + 8);
    if (both != NULL) {
        put_long(PyBytes_AS_STRING(both), number);
        memcpy(PyBytes_AS_STRING(both) + 8, PyBytes_AS_STRING(data), size);
    }
    return both;
}

/* segmented_rows(keys, time_at, interval): prefixes each key with its segment. */
PyObject *
segmented_rows(PyObject *module, PyObject *args)
{
    PyObject *keys;
    Py_ssize_t time_at;
    long long interval;
    if (!PyArg_ParseTuple(args, "O!nL", &PyList_Type, &keys, &time_at, &interval))
        return NULL;
    if (interval <= 0) {
        PyErr_SetString(PyExc_ValueError, "An interval is longer than nothing.");
        return NULL;
    }
    PyObject *rows = PyList_New(PyList_GET_SIZE(keys));
    for (Py_ssize_t at = 0; rows != NULL && at < PyList_GET_SIZE(keys); at++) {
        PyObject *key = PyList_GET_ITEM(keys, at), *row = NULL;
        int64_t time;
        if (row_time(key, time_at, &time) == 0) {
            /* Rounded down, as Python does. */
            int64_t segment = time / interval - (time % interval < 0);
            row = behind_long(segment, key);
        }
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, at, row);
    }
    return rows;
}

/* timestamped_values(values, timestamps): prefixes values with timestamps; None stays None. */
PyObject *
timestamped_values(PyObject *module, PyObject *args)
{
    PyObject *given_values, *given_timestamps, *stored = NULL;
    if (!PyArg_ParseTuple(args, "OO", &given_values, &given_timestamps))
        return NULL;
    PyObject *values = PySequence_Fast(given_values, "values are a sequence");
    PyObject *timestamps = PySequence_Fast(given_timestamps, "timestamps are a sequence");
    if (values == NULL || timestamps == NULL)
        goto done;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(values);
    if (PySequence_Fast_GET_SIZE(timestamps) != count) {
        PyErr_SetString(PyExc_ValueError, "There must be as many timestamps as values.");
        goto done;
    }
    stored = PyList_New(count);
    for (Py_ssize_t at = 0; stored != NULL && at < count; at++) {
        PyObject *value = PySequence_Fast_GET_ITEM(values, at), *row = NULL;
        if (value == Py_None) {
            row = Py_NewRef(value);
        } else if (!PyBytes_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "A value is bytes or None.");
        } else {
            int64_t time = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(timestamps, at));
            if (time != -1 || !PyErr_Occurred())
                row = behind_long(time, value);
        }
        if (row == NULL)
            Py_CLEAR(stored);
        else
            PyList_SET_ITEM(stored, at, row);
    }
done:
    Py_XDECREF(values);
    Py_XDECREF(timestamps);
    return stored;
}
