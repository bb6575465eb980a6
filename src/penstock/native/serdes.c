/* Serdes: numbers, strings, windowed keys, timestamps in row keys, and Kafka's hash. */
#include "core.h"

PyObject *bytes_decode, *str_encode, *store_serde_exception;

int
init_serdes(void)
{
    PyObject *errors = PyImport_ImportModule("penstock.errors");
    if (errors == NULL)
        return -1;
    store_serde_exception = PyObject_GetAttrString(errors, "StoreSerdeException");
    Py_DECREF(errors);
    if (store_serde_exception == NULL)
        return -1;
    bytes_decode = PyObject_GetAttrString((PyObject *)&PyBytes_Type, "decode");
    str_encode = PyObject_GetAttrString((PyObject *)&PyUnicode_Type, "encode");
    return bytes_decode == NULL || str_encode == NULL ? -1 : 0;
}

PyObject *
read_value(PyObject *reader, PyObject *careful, PyObject *data)
{
    PyObject *value = read_fast(reader, data);
    if (value == NULL && forget_error() == 0)
        value = PyObject_CallOneArg(careful, data);
    return value;
}

PyObject *
write_row(PyObject *writer, PyObject *careful, PyObject *key)
{
    PyObject *row = write_fast(writer, key);
    if (row == NULL && forget_error() == 0)
        row = PyObject_CallOneArg(careful, key);
    return row;
}

PyObject *
write_value(PyObject *writer, PyObject *careful, PyObject *value)
{
    PyObject *data = write_row(writer, careful, value);
    if (data != NULL && !PyBytes_Check(data)) {
        PyErr_Format(PyExc_TypeError, "A serializer must result bytes, not %.100s.",
                     Py_TYPE(data)->tp_name);
        Py_CLEAR(data);
    }
    return data;
}

PyObject *
write_long(PyObject *module, PyObject *value)
{
    int64_t number;
    char data[8];
    if (!is_long(value, &number)) {
        PyErr_SetString(PyExc_TypeError, "not an int of 64 bits");
        return NULL;
    }
    put_long(data, number);
    return PyBytes_FromStringAndSize(data, 8);
}

PyObject *
write_double(PyObject *module, PyObject *value)
{
    char data[8];
    if (!PyFloat_CheckExact(value)) {
        PyErr_SetString(PyExc_TypeError, "not a float");
        return NULL;
    }
    put_double(data, PyFloat_AS_DOUBLE(value));
    return PyBytes_FromStringAndSize(data, 8);
}

static int
eight_bytes(PyObject *data, int64_t *bits)
{
    if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) != 8) {
        PyErr_SetString(PyExc_TypeError, "not 8 bytes");
        return -1;
    }
    *bits = long_from(PyBytes_AS_STRING(data));
    return 0;
}

PyObject *
read_long(PyObject *module, PyObject *data)
{
    int64_t bits;
    return eight_bytes(data, &bits) < 0 ? NULL : PyLong_FromLongLong(bits);
}

PyObject *
read_double(PyObject *module, PyObject *data)
{
    int64_t bits;
    double number;
    if (eight_bytes(data, &bits) < 0)
        return NULL;
    memcpy(&number, &bits, sizeof(number));
    return PyFloat_FromDouble(number);
}

/* windowed_writer(inner writer, Windowed, sequenced): key, start[, four zero bytes].
 * Accepts only instances of `Windowed`. */
static PyObject *
windowed_writer(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    PyObject *value = args[0], *window;
    int64_t start;
    if ((PyObject *)Py_TYPE(value) != step->held[1] || PyTuple_GET_SIZE(value) != 2
        || !PyTuple_Check(window = PyTuple_GET_ITEM(value, 1)) || PyTuple_GET_SIZE(window) != 2
        || !is_long(PyTuple_GET_ITEM(window, 0), &start)) {
        PyErr_SetString(PyExc_TypeError, "not a windowed key");
        return NULL;
    }
    PyObject *key = write_fast(step->held[0], PyTuple_GET_ITEM(value, 0));
    if (key == NULL)
        return NULL;
    PyObject *data = NULL;
    if (!PyBytes_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "not bytes");
    } else {
        Py_ssize_t size = PyBytes_GET_SIZE(key), tail = step->numbers[0] ? 12 : 8;
        data = PyBytes_FromStringAndSize(NULL, size + tail);
        if (data != NULL) {
            char *to = PyBytes_AS_STRING(data);
            memcpy(to, PyBytes_AS_STRING(key), size);
            put_long(to + size, start);
            memset(to + size + 8, 0, tail - 8);
        }
    }
    Py_DECREF(key);
    return data;
}

PyObject *
make_windowed_writer(PyObject *module, PyObject *args)
{
    PyObject *objects[2];
    int sequenced;
    if (!PyArg_ParseTuple(args, "OO!p", &objects[0], &PyType_Type, &objects[1], &sequenced))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)objects[1], &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "A windowed key is a tuple of a key and a window.");
        return NULL;
    }
    Step *step = step_new("windowed_writer", windowed_writer, objects, 2);
    if (step != NULL)
        step->numbers[0] = sequenced;
    return (PyObject *)step;
}

int
row_time(PyObject *row, Py_ssize_t at, int64_t *time)
{
    if (!PyBytes_Check(row)) {
        PyErr_SetString(PyExc_TypeError, "A row key is bytes.");
        return -1;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(row), from = at < 0 ? size + at : at;
    if (from < 0 || from > size - 8) {
        PyErr_Format(PyExc_ValueError, "A row key of %zd bytes has no time at %zd.", size, at);
        return -1;
    }
    *time = long_from(PyBytes_AS_STRING(row) + from);
    return 0;
}

uint32_t
murmur2(const unsigned char *data, Py_ssize_t size)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ (uint32_t)size;
    for (; size >= 4; data += 4, size -= 4) {
        uint32_t word = data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24;
        word *= m;
        word ^= word >> 24;
        hash = (hash * m) ^ (word * m);
    }
    if (size) {
        for (Py_ssize_t at = 0; at < size; at++)
            hash ^= (uint32_t)data[at] << (8 * at);
        hash *= m;
    }
    hash ^= hash >> 13;
    hash *= m;
    return hash ^ hash >> 15;
}

PyObject *
murmur2_of(PyObject *module, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t hash = murmur2(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(hash);
}
