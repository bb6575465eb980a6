/* Sorts changes of a bytes store for a bulk write (stores/bytes/lmdb/rows.py). */
#include "core.h"

typedef struct {
    PyObject *key, *value;
    /* The later one of two changes of a row counts. */
    Py_ssize_t position;
} RowChange;

static int
compare_changes(const void *left, const void *right)
{
    const RowChange *one = left, *other = right;
    Py_ssize_t size = PyBytes_GET_SIZE(one->key), others = PyBytes_GET_SIZE(other->key);
    int order = memcmp(PyBytes_AS_STRING(one->key), PyBytes_AS_STRING(other->key),
                       size < others ? size : others);
    if (order == 0)
        order = (size > others) - (size < others);
    return order != 0 ? order : (one->position > other->position) - (one->position < other->position);
}

static int
is_same_row(RowChange *one, RowChange *other)
{
    Py_ssize_t size = PyBytes_GET_SIZE(one->key);
    return size == PyBytes_GET_SIZE(other->key)
        && memcmp(PyBytes_AS_STRING(one->key), PyBytes_AS_STRING(other->key), size) == 0;
}

/* 1 if all keys have at most `longest` bytes, 0 if not, -1 for an error. */
static int
fill_changes(RowChange *changes, PyObject *pairs, Py_ssize_t longest)
{
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(pairs); at++) {
        PyObject *pair = PySequence_Fast_GET_ITEM(pairs, at);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2
            || !PyBytes_Check(PyTuple_GET_ITEM(pair, 0))) {
            PyErr_SetString(PyExc_TypeError, "A change is a pair of a key and a value.");
            return -1;
        }
        changes[at] = (RowChange){PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), at};
        if (PyBytes_GET_SIZE(changes[at].key) > longest)
            return 0;
    }
    return 1;
}

static PyObject *
prefixed_key(PyObject *prefix, PyObject *key)
{
    Py_ssize_t before = PyBytes_GET_SIZE(prefix), size = PyBytes_GET_SIZE(key);
    PyObject *stored = PyBytes_FromStringAndSize(NULL, before + size);
    if (stored != NULL) {
        memcpy(PyBytes_AS_STRING(stored), PyBytes_AS_STRING(prefix), before);
        memcpy(PyBytes_AS_STRING(stored) + before, PyBytes_AS_STRING(key), size);
    }
    return stored;
}

static int
add_change(RowChange *change, PyObject *prefix, PyObject *puts, PyObject *deletions)
{
    PyObject *key = prefixed_key(prefix, change->key);
    if (key == NULL)
        return -1;
    int result = -1;
    if (change->value == Py_None) {
        result = PyList_Append(deletions, key);
    } else {
        PyObject *put = PyTuple_Pack(2, key, change->value);
        if (put != NULL)
            result = PyList_Append(puts, put);
        Py_XDECREF(put);
    }
    Py_DECREF(key);
    return result;
}

/* sorted_changes(changes, prefix, longest): the rows to put and the keys to delete, in order of the
 * keys and with a prefix; None if a key has more than `longest` bytes. */
PyObject *
sorted_changes(PyObject *module, PyObject *args)
{
    PyObject *given, *prefix, *found = NULL, *puts = NULL, *deletions = NULL;
    Py_ssize_t longest;
    if (!PyArg_ParseTuple(args, "OO!n", &given, &PyBytes_Type, &prefix, &longest))
        return NULL;
    PyObject *pairs = PySequence_Fast(given, "changes are a sequence");
    if (pairs == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(pairs);
    RowChange *changes = PyMem_Malloc(sizeof(RowChange) * (count + 1));
    if (changes == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int are_short = fill_changes(changes, pairs, longest);
    if (are_short <= 0) {
        found = are_short < 0 ? NULL : Py_NewRef(Py_None);
        goto done;
    }
    qsort(changes, (size_t)count, sizeof(RowChange), compare_changes);
    puts = PyList_New(0);
    deletions = PyList_New(0);
    if (puts == NULL || deletions == NULL)
        goto done;
    for (Py_ssize_t at = 0; at < count; at++)
        if ((at + 1 == count || !is_same_row(&changes[at], &changes[at + 1]))
            && add_change(&changes[at], prefix, puts, deletions) < 0)
            goto done;
    found = PyTuple_Pack(2, puts, deletions);
done:
    Py_XDECREF(puts);
    Py_XDECREF(deletions);
    PyMem_Free(changes);
    Py_DECREF(pairs);
    return found;
}
