/* Key lookups of queries: a short transaction on a free session of a pool
 * (queries/replica_reader.py, stores/bytes/lmdb/reader.py, stores/typed/row_access.py). */
#include "core.h"

#include <pthread.h>

/* The offsets of the fields of `LookupGate`, `StoreSession` and `LmdbReader`. */
static struct {
    PyTypeObject *gate, *session, *reader;
    Py_ssize_t until, commits, allowed;
    Py_ssize_t generation, number, load_value, used_reader;
    Py_ssize_t begin, lock, transaction;
} places;

/* How often this process was forked. A session belongs to the process that opened it. */
static long long forks;

static PyObject *name_get, *name_id, *name_abort, *name_acquire, *name_release, *name_close;

static void
count_fork(void)
{
    forks++;
}

int
init_lookup(void)
{
    if (pthread_atfork(NULL, NULL, count_fork) != 0) {
        PyErr_SetString(PyExc_OSError, "pthread_atfork failed");
        return -1;
    }
    name_get = PyUnicode_InternFromString("get");
    name_id = PyUnicode_InternFromString("id");
    name_abort = PyUnicode_InternFromString("abort");
    name_acquire = PyUnicode_InternFromString("acquire");
    name_release = PyUnicode_InternFromString("release");
    name_close = PyUnicode_InternFromString("close");
    return name_get == NULL || name_id == NULL || name_abort == NULL || name_acquire == NULL
            || name_release == NULL || name_close == NULL
        ? -1
        : 0;
}

static int
learn_reader(PyTypeObject *type)
{
    if ((places.begin = slot_place(type, "begin_transaction")) < 0
        || (places.lock = slot_place(type, "lock")) < 0
        || (places.transaction = slot_place(type, "transaction")) < 0)
        return -1;
    Py_XSETREF(places.reader, (PyTypeObject *)Py_NewRef(type));
    return 0;
}

static int
learn_session(PyTypeObject *type)
{
    if ((places.generation = slot_place(type, "generation")) < 0
        || (places.number = slot_place(type, "number")) < 0
        || (places.load_value = slot_place(type, "load_value")) < 0
        || (places.used_reader = slot_place(type, "reader")) < 0)
        return -1;
    Py_XSETREF(places.session, (PyTypeObject *)Py_NewRef(type));
    return 0;
}

static int
learn_gate(PyTypeObject *type)
{
    if ((places.until = slot_place(type, "until")) < 0
        || (places.commits = slot_place(type, "commits")) < 0
        || (places.allowed = slot_place(type, "generation")) < 0)
        return -1;
    Py_XSETREF(places.gate, (PyTypeObject *)Py_NewRef(type));
    return 0;
}

/* ---- the rows of a transaction --------------------------------------------------------------- */

/* snapshot_get(reader, database, prefix, longest, get_long): the value of a key in the current
 * transaction of the reader. `get_long` reads keys of more than `longest` bytes. */
static PyObject *
snapshot_get(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    PyObject *key = args[0], *prefix = step->held[2];
    if (!PyBytes_CheckExact(key) || PyBytes_GET_SIZE(key) > step->numbers[0])
        return PyObject_CallOneArg(step->held[3], key);
    Py_ssize_t start = PyBytes_GET_SIZE(prefix), size = PyBytes_GET_SIZE(key);
    PyObject *full = PyBytes_FromStringAndSize(NULL, start + size);
    if (full == NULL)
        return NULL;
    memcpy(PyBytes_AS_STRING(full), PyBytes_AS_STRING(prefix), start);
    memcpy(PyBytes_AS_STRING(full) + start, PyBytes_AS_STRING(key), size);
    PyObject *stack[4] = {SLOT(step->held[0], places.transaction), full, Py_None, step->held[1]};
    PyObject *value = PyObject_VectorcallMethod(name_get, stack, 4, NULL);
    Py_DECREF(full);
    return value;
}

PyObject *
make_snapshot_get(PyObject *module, PyObject *args)
{
    PyObject *objects[4];
    long long longest;
    if (!PyArg_ParseTuple(args, "OOSLO", &objects[0], &objects[1], &objects[2], &longest,
                          &objects[3])
        || learn_reader(Py_TYPE(objects[0])) < 0)
        return NULL;
    Step *step = step_new("snapshot_get", snapshot_get, objects, 4);
    if (step != NULL)
        step->numbers[0] = longest;
    return (PyObject *)step;
}

/* timestamped_load(get, read, deserialize): (value, timestamp) of a row key. */
static PyObject *
timestamped_load(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    PyObject *stored = PyObject_CallOneArg(step->held[0], args[0]), *found = NULL;
    if (stored == NULL || stored == Py_None)
        return stored;
    PyObject *value = timestamped_value(stored, step->held[1], step->held[2]);
    if (value == Py_None)
        found = Py_NewRef(Py_None);
    else if (value != NULL) {
        /* Faster than Py_BuildValue, which reads a format. */
        PyObject *time = PyLong_FromLongLong(long_from(PyBytes_AS_STRING(stored)));
        found = time == NULL ? NULL : PyTuple_Pack(2, value, time);
        Py_XDECREF(time);
    }
    Py_XDECREF(value);
    Py_DECREF(stored);
    return found;
}

/* value_load(get, read, deserialize): the value of a row key, without its timestamp. */
static PyObject *
value_load(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    PyObject *stored = PyObject_CallOneArg(step->held[0], args[0]);
    if (stored == NULL || stored == Py_None)
        return stored;
    PyObject *value = timestamped_value(stored, step->held[1], step->held[2]);
    Py_DECREF(stored);
    return value;
}

PyObject *
make_value_load(PyObject *module, PyObject *args)
{
    PyObject *objects[3];
    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2]))
        return NULL;
    return (PyObject *)step_new("load_value", value_load, objects, 3);
}

PyObject *
make_timestamped_load(PyObject *module, PyObject *args)
{
    PyObject *objects[3];
    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2]))
        return NULL;
    return (PyObject *)step_new("load_row", timestamped_load, objects, 3);
}

/* ---- lookups --------------------------------------------------------------------------------- */

enum { GATE, FREE, MONOTONIC, COMMITS, CAREFUL, LOOKUP_OBJECTS };

/* 1 if the gate is open: a free session can be used without further checks. */
static int
is_open(Step *step)
{
    PyObject *gate = step->held[GATE], *until = SLOT(gate, places.until);
    if (!PyFloat_CheckExact(until) || step->numbers[0] != forks)
        return 0;
    double limit = PyFloat_AS_DOUBLE(until);
    PyObject *now = PyObject_CallNoArgs(step->held[MONOTONIC]);
    if (now == NULL)
        return -1;
    int is_valid = PyFloat_CheckExact(now) && PyFloat_AS_DOUBLE(now) < limit;
    Py_DECREF(now);
    if (!is_valid || SLOT(gate, places.commits) == Py_None)
        return is_valid;
    /* During the call another thread may replace the field. */
    PyObject *expected = Py_NewRef(SLOT(gate, places.commits));
    PyObject *commits = PyObject_CallNoArgs(step->held[COMMITS]);
    is_valid = commits == NULL ? -1 : PyObject_RichCompareBool(commits, expected, Py_EQ);
    Py_DECREF(expected);
    Py_XDECREF(commits);
    return is_valid;
}

/* Takes the last session of the list; NULL without an exception if there is none. */
static PyObject *
take_session(Step *step)
{
    PyObject *free = step->held[FREE];
    Py_ssize_t count = PyList_GET_SIZE(free);
    if (count == 0)
        return NULL;
    PyObject *session = Py_NewRef(PyList_GET_ITEM(free, count - 1));
    if (PyList_SetSlice(free, count - 1, count, NULL) < 0)
        Py_CLEAR(session);
    else if (Py_TYPE(session) != places.session && learn_session(Py_TYPE(session)) < 0)
        Py_CLEAR(session);
    return session;
}

/* Calls a method without arguments, and ignores its result. */
static int
call_quietly(PyObject *object, PyObject *name)
{
    PyObject *result = PyObject_CallMethodNoArgs(object, name);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Returns a session to the list. If the files were replaced in the meantime, it is closed. */
static int
give_back(Step *step, PyObject *session)
{
    if (SLOT(session, places.generation) == SLOT(step->held[GATE], places.allowed))
        return PyList_Append(step->held[FREE], session);
    return call_quietly(SLOT(session, places.used_reader), name_close);
}

/* Raises an error that was taken, if there is one. */
static void
give_error(PyObject *error)
{
    if (error == NULL)
        return;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
}

/* Loads a key if the transaction has the number that the session knows. Otherwise returns NULL
 * without an exception. */
static PyObject *
load_in_transaction(PyObject *session, PyObject *transaction, PyObject *key)
{
    PyObject *number = PyObject_CallMethodNoArgs(transaction, name_id);
    if (number == NULL)
        return NULL;
    int same = PyObject_RichCompareBool(number, SLOT(session, places.number), Py_EQ);
    Py_DECREF(number);
    return same > 0 ? PyObject_CallOneArg(SLOT(session, places.load_value), key) : NULL;
}

/* As `LmdbReader.begin`, a load, and `LmdbReader.end`. */
static PyObject *
load_in_session(PyObject *session, PyObject *key)
{
    PyObject *reader = SLOT(session, places.used_reader), *lock = SLOT(reader, places.lock);
    if (call_quietly(lock, name_acquire) < 0)
        return NULL;
    PyObject *found = NULL, *transaction = PyObject_CallNoArgs(SLOT(reader, places.begin));
    if (transaction != NULL) {
        slot_set(reader, places.transaction, transaction);
        found = load_in_transaction(session, transaction, key);
        slot_set(reader, places.transaction, Py_None);
    }
    PyObject *error = PyErr_Occurred() ? take_error() : NULL;
    if (transaction != NULL && call_quietly(transaction, name_abort) < 0)
        PyErr_WriteUnraisable(transaction);
    Py_XDECREF(transaction);
    if (call_quietly(lock, name_release) < 0)
        PyErr_WriteUnraisable(lock);
    give_error(error);
    return found;
}

/* pooled_lookup(gate, free, monotonic, commits, careful): the value of a key, without its
 * timestamp. While the gate is closed, without a free session, after a new commit and after an
 * error, `careful` looks it up. */
static PyObject *
pooled_lookup(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    int open = is_open(step);
    if (open < 0)
        return NULL;
    PyObject *session = open ? take_session(step) : NULL;
    if (session == NULL)
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(step->held[CAREFUL], args[0]);
    PyObject *found = NULL;
    if (SLOT(session, places.generation) == SLOT(step->held[GATE], places.allowed))
        found = load_in_session(session, args[0]);
    PyObject *error = PyErr_Occurred() && forget_error() < 0 ? take_error() : NULL;
    if (give_back(step, session) < 0)
        Py_CLEAR(found);
    Py_DECREF(session);
    give_error(error);
    if (found == NULL && !PyErr_Occurred())
        return PyObject_CallOneArg(step->held[CAREFUL], args[0]);
    return found;
}

PyObject *
make_pooled_lookup(PyObject *module, PyObject *args)
{
    PyObject *objects[LOOKUP_OBJECTS];
    if (!PyArg_ParseTuple(args, "OO!OOO", &objects[GATE], &PyList_Type, &objects[FREE],
                          &objects[MONOTONIC], &objects[COMMITS], &objects[CAREFUL])
        || learn_gate(Py_TYPE(objects[GATE])) < 0)
        return NULL;
    Step *step = step_new("lookup", pooled_lookup, objects, LOOKUP_OBJECTS);
    if (step != NULL)
        step->numbers[0] = forks;
    return (PyObject *)step;
}
