/* Row access for operators: load, save and fold over the cache (stores/typed/row_access.py), and
 * reads of the layers below it (stores/bytes/overlay.py, stores/bytes/windowed_rows.py). */
#include "core.h"

#include <math.h>

/* The objects of the steps of a cached store; folding has two more. */
enum {
    CACHE, CURRENT, BELOW, SERIALIZE, DESERIALIZE, WRITE, READ, ROW_OBJECTS,
    INITIALIZER = ROW_OBJECTS, AGGREGATOR, FOLD_OBJECTS,
};
enum { NUMBER, KEEPS, PLAIN_JSON };

/* The cache of a step. */
#define CACHE_OF(step) ((CacheEntries *)(step)->held[CACHE])

static int
is_unchanging(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyLong_Type || type == &PyUnicode_Type || type == &PyFloat_Type
        || type == &PyBool_Type || type == &PyBytes_Type;
}

#define DEEP_JSON 16

/* Whether a value is plain JSON without mutable parts that other code refers to. Such a value
 * equals its decoded bytes, so decoding can be skipped. (NaN is written as null.) */
static int
is_owned_json(PyObject *value, int depth)
{
    if (PyFloat_CheckExact(value))
        return isfinite(PyFloat_AS_DOUBLE(value));
    if (PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value)
        || value == Py_None)
        return 1;
    if (Py_REFCNT(value) != 1 || depth == DEEP_JSON)
        return 0;
    if (PyDict_CheckExact(value)) {
        PyObject *name, *part;
        Py_ssize_t at = 0;
        while (PyDict_Next(value, &at, &name, &part)) {
            if (!PyUnicode_CheckExact(name) || !is_owned_json(part, depth + 1))
                return 0;
        }
        return 1;
    }
    if (!PyList_CheckExact(value))
        return 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(value); at++) {
        if (!is_owned_json(PyList_GET_ITEM(value, at), depth + 1))
            return 0;
    }
    return 1;
}

PyObject *
timestamped_value(PyObject *stored, PyObject *reader, PyObject *careful)
{
    if (!PyBytes_Check(stored) || PyBytes_GET_SIZE(stored) < 8) {
        PyErr_SetString(PyExc_ValueError, "A stored row with a timestamp has at least 8 bytes.");
        return NULL;
    }
    PyObject *data =
        PyBytes_FromStringAndSize(PyBytes_AS_STRING(stored) + 8, PyBytes_GET_SIZE(stored) - 8);
    if (data == NULL)
        return NULL;
    PyObject *value = read_value(reader, careful, data);
    Py_DECREF(data);
    return value;
}

static PyObject *
value_in(Step *step, PyObject *stored)
{
    return timestamped_value(stored, step->held[READ], step->held[DESERIALIZE]);
}

/* The stored row of a value: timestamp, bytes. */
static PyObject *
stored_row(Step *step, PyObject *value, int64_t time)
{
    PyObject *data = write_value(step->held[WRITE], step->held[SERIALIZE], value);
    if (data == NULL)
        return NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    PyObject *stored = PyBytes_FromStringAndSize(NULL, size + 8);
    if (stored != NULL) {
        put_long(PyBytes_AS_STRING(stored), time);
        memcpy(PyBytes_AS_STRING(stored) + 8, PyBytes_AS_STRING(data), size);
    }
    Py_DECREF(data);
    return stored;
}

/* Reads from the store below, and caches the row if the store caches reads. */
static PyObject *
read_below(Step *step, PyObject *row)
{
    PyObject *stored = PyObject_CallOneArg(step->held[BELOW], row);
    if (stored != NULL && stored != Py_None && step->numbers[KEEPS]
        && (check_row(stored) < 0 || entries_keep(CACHE_OF(step), row, stored) < 0))
        Py_CLEAR(stored);
    return stored;
}

static PyObject *
value_at(PyObject *value, int64_t time)
{
    PyObject *number = PyLong_FromLongLong(time);
    PyObject *both = number == NULL ? NULL : PyTuple_Pack(2, value, number);
    Py_XDECREF(number);
    return both;
}

static PyObject *
load_row(Step *step, PyObject *row)
{
    CacheEntries *cache = CACHE_OF(step);
    Entry *entry = table_find(&cache->entries, row);
    PyObject *stored;
    if (entry == NULL) {
        stored = read_below(step, row);
    } else {
        if (entries_use(cache, entry) < 0)
            return NULL;
        if (entry->typed != UNKNOWN)
            return value_at(entry->typed, entry->time);
        stored = Py_XNewRef(entry_stored(cache, entry));
    }
    if (stored == NULL || stored == Py_None)
        return stored;
    PyObject *value = value_in(step, stored), *found = NULL;
    if (value == Py_None)
        found = Py_NewRef(Py_None);
    else if (value != NULL)
        found = value_at(value, long_from(PyBytes_AS_STRING(stored)));
    Py_XDECREF(value);
    Py_DECREF(stored);
    return found;
}

static int
save_row(Step *step, PyObject *row, PyObject *value, int64_t time)
{
    CacheEntries *cache = CACHE_OF(step);
    PyObject *current = step->held[CURRENT];
    if (can_pend((int)step->numbers[NUMBER], value))
        return entries_put(cache, row, PENDING, 16, current, value, time);
    if (value == Py_None)
        return entries_put(cache, row, Py_None, 0, current, UNKNOWN, -1);
    PyObject *stored = stored_row(step, value, time);
    if (stored == NULL)
        return -1;
    PyObject *known = is_unchanging(value) ? value : UNKNOWN;
    int done = entries_put(cache, row, stored, PyBytes_GET_SIZE(stored), current, known, time);
    Py_DECREF(stored);
    return done;
}

static PyObject *
load_row_step(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    return check_row(args[0]) < 0 ? NULL : load_row(step, args[0]);
}

static PyObject *
save_row_step(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    int64_t time = as_number(args[3]);
    if (check_row(args[0]) < 0 || (time == -1 && PyErr_Occurred())
        || save_row(step, args[0], args[2], time) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- folding --------------------------------------------------------------------------------- */

/* The input of a fold: row key, typed key, value and timestamp. */
typedef struct {
    PyObject *row, *key, *value;
    int64_t time;
} Folded;

/* Computes the next aggregate, with the later of both timestamps. */
static int
fold_into(Step *step, const Folded *folded, PyObject *old, int64_t time)
{
    PyObject *value = call_three(step->held[AGGREGATOR], folded->key, folded->value, old);
    if (value == NULL)
        return -1;
    int done = save_row(step, folded->row, value, time > folded->time ? time : folded->time);
    Py_DECREF(value);
    return done;
}

/* A row that does not exist starts with the initializer. */
static int
fold_new(Step *step, const Folded *folded)
{
    PyObject *initial = PyObject_CallNoArgs(step->held[INITIALIZER]);
    if (initial == NULL)
        return -1;
    int done = fold_into(step, folded, initial, folded->time);
    Py_DECREF(initial);
    return done;
}

static int
fold_slowly(Step *step, const Folded *folded)
{
    PyObject *found = load_row(step, folded->row);
    if (found == NULL)
        return -1;
    int done = found == Py_None
        ? fold_new(step, folded)
        : fold_into(step, folded, PyTuple_GET_ITEM(found, 0),
                    as_number(PyTuple_GET_ITEM(found, 1)));
    Py_DECREF(found);
    return done;
}

/* Whether an earlier record of this batch wrote the entry, so that it can be updated in place. */
static int
is_in_place(Entry *entry, PyObject *current)
{
    return entry->writes && entry->rows == SLOT(current, current_slots.rows)
        && entry->headers == SLOT(current, current_slots.headers) && entry->value != Py_None
        && entry->time >= 0;
}

/* Replaces the value of an entry. */
static int
rewrite_entry(Step *step, Entry *entry, PyObject *row, PyObject *value, int64_t time)
{
    CacheEntries *cache = CACHE_OF(step);
    PyObject *current = step->held[CURRENT];
    if (can_pend((int)step->numbers[NUMBER], value)) {
        Py_SETREF(entry->typed, Py_NewRef(value));
        Py_SETREF(entry->value, Py_NewRef(PENDING));
        entry->time = time;
        return entries_rewrite(cache, entry, current, 0);
    }
    if (value == Py_None || !PyBytes_Check(entry->value))
        return save_row(step, row, value, time);
    PyObject *stored = stored_row(step, value, time);
    if (stored == NULL)
        return -1;
    Py_ssize_t growth = PyBytes_GET_SIZE(stored) - PyBytes_GET_SIZE(entry->value);
    Py_SETREF(entry->typed, Py_NewRef(is_unchanging(value) ? value : UNKNOWN));
    Py_SETREF(entry->value, stored);
    if (step->numbers[PLAIN_JSON] && is_owned_json(value, 0))
        Py_XSETREF(entry->owned, Py_NewRef(value));
    entry->time = time;
    return entries_rewrite(cache, entry, current, growth);
}

static int
fold_in_place(Step *step, Entry *entry, const Folded *folded)
{
    /* The aggregator may change the owned value: if it fails, the changed value is discarded. */
    PyObject *old = entry->owned;
    entry->owned = NULL;
    if (old == NULL)
        old = entry->typed == UNKNOWN ? value_in(step, entry->value) : Py_NewRef(entry->typed);
    if (old == NULL)
        return -1;
    if (old == Py_None) {
        /* The serde decodes these bytes as null: the row does not exist. */
        Py_DECREF(old);
        return fold_slowly(step, folded);
    }
    int64_t time = entry->time > folded->time ? entry->time : folded->time;
    PyObject *value = call_three(step->held[AGGREGATOR], folded->key, folded->value, old);
    Py_DECREF(old);
    int done = value == NULL ? -1 : rewrite_entry(step, entry, folded->row, value, time);
    Py_XDECREF(value);
    return done;
}

static PyObject *
fold_row(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    Folded folded = {args[0], args[1], args[2], as_number(args[3])};
    PyObject *current = step->held[CURRENT];
    if ((folded.time == -1 && PyErr_Occurred()) || check_row(args[0]) < 0
        || know_current(current) < 0)
        return NULL;
    Entry *entry = table_find(&CACHE_OF(step)->entries, args[0]);
    int done;
    if (entry != NULL && is_in_place(entry, current)) {
        Py_INCREF(entry);
        done = fold_in_place(step, entry, &folded);
        Py_DECREF(entry);
    } else {
        done = fold_slowly(step, &folded);
    }
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- constructors ---------------------------------------------------------------------------- */

/* A format without initializer and aggregator does not set these. */
static int
parse_rows(PyObject *args, const char *format, PyObject **objects, int64_t *numbers)
{
    PyObject *type;
    int keeps, plain_json;
    if (!PyArg_ParseTuple(args, format, &CacheEntriesType, &objects[CACHE], &objects[CURRENT],
                          &objects[BELOW], &objects[SERIALIZE], &objects[DESERIALIZE],
                          &objects[WRITE], &objects[READ], &type, &plain_json, &keeps,
                          &objects[INITIALIZER], &objects[AGGREGATOR]))
        return -1;
    numbers[NUMBER] = number_code(type);
    numbers[KEEPS] = keeps;
    numbers[PLAIN_JSON] = plain_json;
    return know_current(objects[CURRENT]);
}

/* timestamped_rows(cache, current, below, serdes, keeps): load_row and save_row. */
PyObject *
make_timestamped_rows(PyObject *module, PyObject *args)
{
    PyObject *objects[FOLD_OBJECTS];
    int64_t numbers[STEP_NUMBERS] = {0};
    if (parse_rows(args, "O!OO(OOOOOp)p", objects, numbers) < 0)
        return NULL;
    Step *load = step_new("load_row", load_row_step, objects, ROW_OBJECTS);
    Step *save = step_new("save_row", save_row_step, objects, ROW_OBJECTS);
    PyObject *both = NULL;
    if (load != NULL && save != NULL) {
        memcpy(load->numbers, numbers, sizeof(numbers));
        memcpy(save->numbers, numbers, sizeof(numbers));
        both = PyTuple_Pack(2, load, save);
    }
    Py_XDECREF(load);
    Py_XDECREF(save);
    return both;
}

/* folding(cache, current, below, serdes, keeps, initializer, aggregator): fold_row. */
PyObject *
make_folding(PyObject *module, PyObject *args)
{
    PyObject *objects[FOLD_OBJECTS];
    int64_t numbers[STEP_NUMBERS] = {0};
    if (parse_rows(args, "O!OO(OOOOOp)pOO", objects, numbers) < 0)
        return NULL;
    Step *fold = step_new("fold_row", fold_row, objects, FOLD_OBJECTS);
    if (fold != NULL)
        memcpy(fold->numbers, numbers, sizeof(numbers));
    return (PyObject *)fold;
}

/* keyed_load(write_key, row_of, load_row): (value, timestamp) of a typed key. */
static PyObject *
keyed_load(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    PyObject *row = write_row(step->held[0], step->held[1], args[0]);
    if (row == NULL)
        return NULL;
    PyObject *found = PyObject_CallOneArg(step->held[2], row);
    Py_DECREF(row);
    return found;
}

PyObject *
make_keyed_load(PyObject *module, PyObject *args)
{
    PyObject *objects[3];
    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2]))
        return NULL;
    return (PyObject *)step_new("load", keyed_load, objects, 3);
}

/* overlay_get(writes, inner get): the written value, or that of the store below. */
static PyObject *
overlay_get(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    PyObject *value = PyDict_GetItemWithError(step->held[0], args[0]);
    if (value != NULL)
        return Py_NewRef(value);
    return PyErr_Occurred() ? NULL : PyObject_CallOneArg(step->held[1], args[0]);
}

PyObject *
make_overlay_get(PyObject *module, PyObject *args)
{
    PyObject *objects[2];
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &objects[0], &objects[1]))
        return NULL;
    return (PyObject *)step_new("overlay_get", overlay_get, objects, 2);
}

/* timed_get(clock, overlay get, time_at, reach): None for rows older than stream time - reach. */
static PyObject *
timed_get(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(1)
    int64_t time, stream_time = slot_number(step->held[0], step->numbers[2]);
    if ((stream_time == -1 && PyErr_Occurred()) || row_time(args[0], step->numbers[0], &time) < 0)
        return NULL;
    if (time < stream_time - step->numbers[1])
        Py_RETURN_NONE;
    return PyObject_CallOneArg(step->held[1], args[0]);
}

PyObject *
make_timed_get(PyObject *module, PyObject *args)
{
    PyObject *objects[2];
    Py_ssize_t time_at;
    long long reach;
    if (!PyArg_ParseTuple(args, "OOnL", &objects[0], &objects[1], &time_at, &reach))
        return NULL;
    Py_ssize_t place = slot_place(Py_TYPE(objects[0]), "stream_time");
    Step *step = place < 0 ? NULL : step_new("timed_get", timed_get, objects, 2);
    if (step != NULL) {
        step->numbers[0] = time_at;
        step->numbers[1] = reach;
        step->numbers[2] = place;
    }
    return (PyObject *)step;
}
