/* The function of a sink (task/collector.py). */
#include "core.h"

enum {
    TOPIC, WRITE_KEY, WRITE_VALUE, ENCODE, CHECKED, SINK_CURRENT, OUTPUTS, INDEXES, MARKS,
    SINK_OBJECTS,
};
enum { COUNT, LIMIT, TAIL, EARLIEST, LATEST };

static PyObject *
serialized(PyObject *writer, PyObject *half)
{
    return half == Py_None ? Py_NewRef(half) : write_fast(writer, half);
}

/* encode(topic, key, value, timestamp, headers, written, error): `written` holds the key if the value
 * failed. A new reference to (key, value), None if the handler skipped the record, or NULL. */
static PyObject *
encode_after_failure(Step *step, PyObject *const *args, PyObject *raw_key)
{
    PyObject *both = NULL;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *error = take_error();
    PyObject *written = raw_key == NULL ? PyTuple_New(0) : PyTuple_Pack(1, raw_key);
    if (written != NULL) {
        PyObject *stack[8] = {NULL, step->held[TOPIC], args[0], args[1], args[2], args[3], written,
                              error};
        both = PyObject_Vectorcall(step->held[ENCODE], stack + 1,
                                   7 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    Py_XDECREF(written);
    Py_DECREF(error);
    return both;
}

/* Encodes key and value, with the careful functions if necessary. 0: the handler skipped it. */
static int
encode_halves(Step *step, PyObject *const *args, PyObject **raw_key, PyObject **raw_value)
{
    *raw_key = serialized(step->held[WRITE_KEY], args[0]);
    *raw_value = *raw_key == NULL ? NULL : serialized(step->held[WRITE_VALUE], args[1]);
    if (*raw_value != NULL)
        return 1;
    PyObject *both = encode_after_failure(step, args, *raw_key);
    Py_CLEAR(*raw_key);
    int done = both == NULL ? -1 : 0;
    if (both != NULL && both != Py_None) {
        if (PyTuple_Check(both) && PyTuple_GET_SIZE(both) == 2) {
            *raw_key = Py_NewRef(PyTuple_GET_ITEM(both, 0));
            *raw_value = Py_NewRef(PyTuple_GET_ITEM(both, 1));
            done = 1;
        } else {
            PyErr_SetString(PyExc_TypeError, "An encoder must return a pair or None.");
            done = -1;
        }
    }
    Py_XDECREF(both);
    return done;
}

/* The partition of a record, or -1 if the record needs the slow path. */
static Py_ssize_t
plain_partition(Step *step, PyObject *raw_key, PyObject *raw_value, PyObject *time,
                PyObject *headers)
{
    int64_t count = step->numbers[COUNT], limit = step->numbers[LIMIT], at;
    if (count == 1 && limit < 0)
        return 0;
    if (count < 1 || !PyBytes_Check(raw_key)
        || (raw_value != Py_None && !PyBytes_Check(raw_value)))
        return -1;
    if (limit >= 0) {
        Py_ssize_t size = raw_value == Py_None ? 0 : PyBytes_GET_SIZE(raw_value);
        if (!PyTuple_Check(headers) || PyTuple_GET_SIZE(headers)
            || size + PyBytes_GET_SIZE(raw_key) > limit || !is_long(time, &at)
            || at < step->numbers[EARLIEST] || at > step->numbers[LATEST])
            return -1;
    }
    if (count == 1)
        return 0;
    Py_ssize_t size = PyBytes_GET_SIZE(raw_key) - step->numbers[TAIL];
    if (size < 0)
        return -1;
    uint32_t hash = murmur2((unsigned char *)PyBytes_AS_STRING(raw_key), size);
    return (hash & 0x7fffffff) % count;
}

/* OutputOrigins.note: the lists are None if nothing is to be noted. */
static int
note_origin(Step *step)
{
    PyObject *indexes = step->held[INDEXES], *marks = step->held[MARKS];
    if (indexes == Py_None)
        return 0;
    PyObject *current = step->held[SINK_CURRENT], *rows = SLOT(current, current_slots.rows);
    Py_ssize_t count = PyList_GET_SIZE(marks);
    PyObject *last = count == 0 ? NULL : PyList_GET_ITEM(marks, count - 1);
    if (last == NULL || PyTuple_GET_ITEM(last, 1) != rows) {
        PyObject *mark = Py_BuildValue("nO", PyList_GET_SIZE(indexes), rows);
        int done = mark == NULL ? -1 : PyList_Append(marks, mark);
        Py_XDECREF(mark);
        if (done < 0)
            return -1;
    }
    return PyList_Append(indexes, SLOT(current, current_slots.at));
}

static int
append_output(Step *step, Py_ssize_t partition, PyObject *raw_key, PyObject *raw_value,
              PyObject *const *args)
{
    PyObject *output = PyTuple_New(6), *number = PyLong_FromSsize_t(partition);
    int done = -1;
    if (output != NULL && number != NULL) {
        PyTuple_SET_ITEM(output, 0, Py_NewRef(step->held[TOPIC]));
        PyTuple_SET_ITEM(output, 1, Py_NewRef(number));
        PyTuple_SET_ITEM(output, 2, Py_NewRef(raw_key));
        PyTuple_SET_ITEM(output, 3, Py_NewRef(raw_value));
        PyTuple_SET_ITEM(output, 4, Py_NewRef(args[2]));
        PyTuple_SET_ITEM(output, 5, Py_NewRef(args[3]));
        done = PyList_Append(step->held[OUTPUTS], output);
    }
    Py_XDECREF(number);
    Py_XDECREF(output);
    return done < 0 ? -1 : note_origin(step);
}

/* The function of a sink with a fixed topic, partitioned by the bytes of the key without those of
 * its window. */
static PyObject *
sink(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    PyObject *raw_key, *raw_value, *current = step->held[SINK_CURRENT], *result = NULL;
    int encoded = encode_halves(step, args, &raw_key, &raw_value);
    if (encoded <= 0)
        return encoded < 0 ? NULL : Py_NewRef(Py_None);
    if (know_current(current) == 0) {
        slot_set(current, current_slots.sent, Py_True);
        Py_ssize_t partition = plain_partition(step, raw_key, raw_value, args[2], args[3]);
        if (partition >= 0) {
            if (append_output(step, partition, raw_key, raw_value, args) == 0)
                result = Py_NewRef(Py_None);
        } else {
            PyObject *stack[7] = {NULL,    step->held[TOPIC], Py_None, raw_key,
                                  raw_value, args[2],         args[3]};
            result = PyObject_Vectorcall(step->held[CHECKED], stack + 1,
                                         6 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        }
    }
    Py_DECREF(raw_key);
    Py_DECREF(raw_value);
    return result;
}

/* sink(topic, (write_key, write_value), encode, checked append, current, (outputs, indexes, marks),
 * partitions, limit, tail, earliest, latest): `indexes` and `marks` as in OutputOrigins, or None;
 * 0 partitions mean unknown, a limit of -1 means no size limit; `tail` bytes at the end of a key do
 * not influence its partition; the topic accepts timestamps from `earliest` to `latest`. */
PyObject *
make_sink(PyObject *module, PyObject *args)
{
    PyObject *objects[SINK_OBJECTS];
    long long count, limit, tail, earliest = INT64_MIN, latest = INT64_MAX;
    if (!PyArg_ParseTuple(args, "O(OO)OOO(O!OO)LLL|LL", &objects[TOPIC], &objects[WRITE_KEY],
                          &objects[WRITE_VALUE], &objects[ENCODE], &objects[CHECKED],
                          &objects[SINK_CURRENT], &PyList_Type, &objects[OUTPUTS],
                          &objects[INDEXES], &objects[MARKS], &count, &limit, &tail, &earliest,
                          &latest)
        || know_current(objects[SINK_CURRENT]) < 0)
        return NULL;
    if (objects[INDEXES] != Py_None
        && !(PyList_Check(objects[INDEXES]) && PyList_Check(objects[MARKS]))) {
        PyErr_SetString(PyExc_TypeError, "The origins of outputs are two lists.");
        return NULL;
    }
    Step *step = step_new("sink", sink, objects, SINK_OBJECTS);
    if (step != NULL) {
        step->numbers[COUNT] = count;
        step->numbers[LIMIT] = limit;
        step->numbers[TAIL] = tail;
        step->numbers[EARLIEST] = earliest;
        step->numbers[LATEST] = latest;
    }
    return (PyObject *)step;
}

/* limit_sink(sink, limit, earliest, latest): replaces the limits of a sink. */
PyObject *
limit_sink(PyObject *module, PyObject *args)
{
    PyObject *given;
    long long limit, earliest, latest;
    if (!PyArg_ParseTuple(args, "OLLL", &given, &limit, &earliest, &latest))
        return NULL;
    if (!Py_IS_TYPE(given, &StepType) || ((Step *)given)->call != sink) {
        PyErr_SetString(PyExc_TypeError, "limit_sink() takes a sink.");
        return NULL;
    }
    Step *step = (Step *)given;
    step->numbers[LIMIT] = limit;
    step->numbers[EARLIEST] = earliest;
    step->numbers[LATEST] = latest;
    Py_RETURN_NONE;
}
