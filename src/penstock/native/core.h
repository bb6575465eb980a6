/* Declarations shared by the files of the native core.
 *
 * Every function has a Python twin that documents it; tests/unit/native compares both.
 * References: a function that returns a PyObject pointer returns a new reference unless its comment
 * states "borrowed"; one that returns an int returns 0, or -1 with an exception set.
 */
#ifndef PENSTOCK_CORE_H
#define PENSTOCK_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

/* ---- step.c: functions with bound values ----------------------------------------------------- */

#define STEP_NUMBERS 5

/* A closure: a C function with bound objects and numbers. All steps have one type. */
typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc call;
    const char *name;
    /* The number of calls so far, which counts the records of a node. */
    int64_t calls;
    int64_t numbers[STEP_NUMBERS];
    PyObject *held[1];
} Step;

extern PyTypeObject StepType;

/* A step that holds new references to `count` objects. */
Step *step_new(const char *name, vectorcallfunc call, PyObject *const *objects, Py_ssize_t count);

/* Raises for a wrong number of arguments, or for keyword arguments. */
int step_check(PyObject *self, size_t nargsf, PyObject *names, Py_ssize_t wanted);

#define STEP_ARGUMENTS(wanted)                                                                     \
    Step *step = (Step *)self;                                                                     \
    if (PyVectorcall_NARGS(nargsf) != (wanted) || names != NULL) {                                 \
        step_check(self, nargsf, names, (wanted));                                                 \
        return NULL;                                                                               \
    }                                                                                              \
    step->calls++;

static inline PyObject *
call_four(PyObject *function, PyObject *a, PyObject *b, PyObject *c, PyObject *d)
{
    PyObject *stack[5] = {NULL, a, b, c, d};
    return PyObject_Vectorcall(function, stack + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

static inline PyObject *
call_three(PyObject *function, PyObject *a, PyObject *b, PyObject *c)
{
    PyObject *stack[4] = {NULL, a, b, c};
    return PyObject_Vectorcall(function, stack + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

static inline PyObject *
call_two(PyObject *function, PyObject *a, PyObject *b)
{
    PyObject *stack[3] = {NULL, a, b};
    return PyObject_Vectorcall(function, stack + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* `penstock.errors.StoreSerdeException`, see serdes.c. */
extern PyObject *store_serde_exception;

/* Clears the `Exception` of a fast function; -1 for another kind of error, and for the final one of
 * a store's serde, which stays set. */
static inline int
forget_error(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)
        || PyErr_ExceptionMatches(store_serde_exception))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Fetches and clears the current exception, with its traceback (flow.c). */
PyObject *take_error(void);
/* As `except Exception as error: judge(error, key, value, timestamp, headers)` (flow.c). */
PyObject *ask_about_error(PyObject *judge, PyObject *const *args);

/* ---- slots.c: fields of some Python classes, without lookup by name -------------------------- */

/* The offsets of the fields of `CurrentRecord`. */
typedef struct {
    PyTypeObject *type;
    Py_ssize_t rows, at, sent, timestamp, headers;
} CurrentSlots;

extern CurrentSlots current_slots;

/* The offset of a slot in the instances of a class; -1 with an exception if it does not exist. */
Py_ssize_t slot_place(PyTypeObject *type, const char *name);
int learn_current(PyObject *current);
/* The bytes that the cache counts for the topic name of `PartitionColumns`. */
Py_ssize_t topic_bytes(PyObject *rows);

static inline int
know_current(PyObject *current)
{
    return Py_TYPE(current) == current_slots.type ? 0 : learn_current(current);
}

#define SLOT(object, place) (*(PyObject **)((char *)(object) + (place)))

/* Sets a slot. */
static inline void
slot_set(PyObject *object, Py_ssize_t place, PyObject *value)
{
    PyObject *before = SLOT(object, place);
    SLOT(object, place) = Py_NewRef(value);
    Py_XDECREF(before);
}

/* A 64-bit integer; -1 with an exception for other objects. Timestamps have too many bits for the
 * fast path of PyLong_AsLongLong. */
static inline int64_t
as_number(PyObject *object)
{
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow)
        PyErr_SetString(PyExc_OverflowError, "A time or a number has at most 64 bits.");
    return number;
}

/* The number in a slot. */
static inline int64_t
slot_number(PyObject *object, Py_ssize_t place)
{
    return as_number(SLOT(object, place));
}

/* ---- serdes.c: bytes ------------------------------------------------------------------------- */

extern PyObject *bytes_decode, *str_encode;

/* Calls the fast function of a serde; the common ones are inlined. */
static inline PyObject *
read_fast(PyObject *reader, PyObject *data)
{
    if (reader == bytes_decode && PyBytes_CheckExact(data))
        return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), NULL);
    return PyObject_CallOneArg(reader, data);
}

static inline PyObject *
write_fast(PyObject *writer, PyObject *value)
{
    if (writer == str_encode && PyUnicode_CheckExact(value))
        return PyUnicode_AsUTF8String(value);
    return PyObject_CallOneArg(writer, value);
}

/* The same; on failure it calls the careful function. For values it checks that the result is
 * bytes; functions that take a row key check the key themselves. */
PyObject *read_value(PyObject *reader, PyObject *careful, PyObject *data);
PyObject *write_row(PyObject *writer, PyObject *careful, PyObject *key);
PyObject *write_value(PyObject *writer, PyObject *careful, PyObject *value);

static inline void
put_long(char *to, int64_t number)
{
    uint64_t rest = (uint64_t)number;
    for (int at = 7; at >= 0; at--, rest >>= 8)
        to[at] = (char)(rest & 0xff);
}

static inline int64_t
long_from(const char *from)
{
    uint64_t number = 0;
    for (int at = 0; at < 8; at++)
        number = number << 8 | (unsigned char)from[at];
    return (int64_t)number;
}

static inline void
put_double(char *to, double number)
{
    int64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    put_long(to, bits);
}

/* Sets a slot to a number. */
static inline int
slot_set_number(PyObject *object, Py_ssize_t place, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number), *before = SLOT(object, place);
    if (value == NULL)
        return -1;
    SLOT(object, place) = value;
    Py_XDECREF(before);
    return 0;
}

/* Whether an object is a 64-bit integer, and its value. */
static inline int
is_long(PyObject *object, int64_t *number)
{
    int overflow;
    if (!PyLong_CheckExact(object))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

/* The time in a row key: `at` bytes from its start, or -`at` from its end. */
int row_time(PyObject *row, Py_ssize_t at, int64_t *time);
uint32_t murmur2(const unsigned char *data, Py_ssize_t size);

/* ---- entry.c, cache.c, cache_types.c: the record cache --------------------------------------- */

extern PyObject *PENDING, *UNKNOWN;
extern PyTypeObject EntryType, CacheBudgetType, CacheEntriesType;

/* One cached row, see the class of that name. It cannot be part of a reference cycle. */
typedef struct {
    PyObject_HEAD
    /* The most frequently used fields are adjacent. */
    PyObject *value, *typed;
    uint32_t uses, writes;
    PyObject *name;
    /* The decoded `value` if no other code can change it; NULL if it must be decoded. */
    PyObject *owned;
    PyObject *rows, *headers;
    /* Numbers, not objects: releasing old objects would cost memory accesses. */
    int64_t time, at, timestamp;
    Py_ssize_t size;
    char sent;
} Entry;

/* A new entry with a name only. */
Entry *entry_new(PyObject *name);

typedef struct {
    PyObject_HEAD
    Py_ssize_t max_bytes, size, evictions;
} CacheBudget;

/* A hash table of entries by name. A slot without an entry is free; the entry owns the name. */
typedef struct {
    Py_hash_t hash;
    PyObject *name;
    Entry *entry;
} Place;

typedef struct {
    Place *places;
    size_t room, count;
} Table;

/* Names are bytes. Returned entries are borrowed; NULL is not an error. Setting takes a reference
 * and replaces an entry with the same name. */
Entry *table_find(const Table *table, PyObject *name);
int table_set(Table *table, Entry *entry);
void table_remove(Table *table, PyObject *name);
void table_clear(Table *table);
PyObject *table_names(const Table *table);

/* A ring buffer of references to entries, possibly with repetitions. */
typedef struct {
    Entry **items;
    size_t head, count, room;
} Notes;

int notes_add(Notes *notes, Entry *entry);
void notes_clear(Notes *notes);

/* Borrowed. */
static inline Entry *
notes_at(Notes *notes, size_t at)
{
    return notes->items[(notes->head + at) & (notes->room - 1)];
}

/* Removes the first entry and returns its reference. The ring must not be empty. */
static inline Entry *
notes_take(Notes *notes)
{
    Entry *entry = notes->items[notes->head];
    notes->head = (notes->head + 1) & (notes->room - 1);
    notes->count--;
    return entry;
}

#define NO_TIME PY_SSIZE_T_MIN
/* The list of uses is compacted when it is longer than this and four times the necessary length. */
#define MANY_USES 4096

typedef struct {
    PyObject_HEAD
    CacheBudget *budget;
    PyObject *flush;
    Table entries;
    PyObject *ordered, *unsorted;
    Py_ssize_t fixed_bytes, size, used_limit, time_at;
    int64_t oldest, newest;
    /* The kind of pending values: 0, or the code of `number_code`. */
    int number;
    Notes written, used;
} CacheEntries;

enum { NO_NUMBER, A_LONG, A_DOUBLE };

/* `int`, `float` or None. */
int number_code(PyObject *type);
/* Whether a value can stay pending: a number of the kind of the cache that fits into 8 bytes. */
int can_pend(int number, PyObject *value);

/* Raises if an object is not a row key. */
int check_row(PyObject *row);
int entries_use(CacheEntries *self, Entry *entry);
int entries_keep(CacheEntries *self, PyObject *key, PyObject *value);
int entries_put(CacheEntries *self, PyObject *key, PyObject *value, Py_ssize_t value_bytes,
                PyObject *current, PyObject *typed, int64_t time);
int entries_rewrite(CacheEntries *self, Entry *entry, PyObject *current, Py_ssize_t growth);
int entries_flush(CacheEntries *self);
int entries_clear(CacheEntries *self);
/* The stored value, borrowed from the entry. */
PyObject *entry_stored(CacheEntries *self, Entry *entry);

/* ---- rows.c, lookup.c, flush.c, restore.c, flow.c, sink.c, stateless.c, operators.c: the functions
 * of module.c ---------------------------------------------------------------------------------- */

PyObject *make_timestamped_rows(PyObject *module, PyObject *args);
PyObject *make_folding(PyObject *module, PyObject *args);
PyObject *make_keyed_load(PyObject *module, PyObject *args);
PyObject *make_overlay_get(PyObject *module, PyObject *args);
PyObject *make_timed_get(PyObject *module, PyObject *args);
/* The value of a stored row, after the timestamp. */
PyObject *timestamped_value(PyObject *stored, PyObject *reader, PyObject *careful);

PyObject *make_snapshot_get(PyObject *module, PyObject *args);
PyObject *make_timestamped_load(PyObject *module, PyObject *args);
PyObject *make_value_load(PyObject *module, PyObject *args);
PyObject *make_pooled_lookup(PyObject *module, PyObject *args);

PyObject *stored_rows(PyObject *module, PyObject *args);
PyObject *write_rows(PyObject *module, PyObject *args);
PyObject *times_of_rows(PyObject *module, PyObject *args);
PyObject *segmented_rows(PyObject *module, PyObject *args);
PyObject *timestamped_values(PyObject *module, PyObject *args);
PyObject *timestamped_changes(PyObject *module, PyObject *args);
PyObject *group_columns(PyObject *module, PyObject *given);
/* The records of one topic. The sum is a double: a timestamp of 0 makes a record very old. */
typedef struct {
    long long records, bytes, youngest, oldest;
    double ages;
} Measured;

void measure_record(Measured *all, long long now, PyObject *timestamp, PyObject *key,
                    PyObject *value);
PyObject *measure_columns(PyObject *module, PyObject *args);
PyObject *measure_outputs(PyObject *module, PyObject *args);
PyObject *sorted_changes(PyObject *module, PyObject *args);
PyObject *tell_changes(PyObject *module, PyObject *args);
PyObject *make_row_listener(PyObject *module, PyObject *args);
PyObject *make_change_listener(PyObject *module, PyObject *args);

PyObject *process_rows(PyObject *module, PyObject *args);
PyObject *make_switching(PyObject *module, PyObject *args);
PyObject *make_guarded(PyObject *module, PyObject *args);
PyObject *make_counted(PyObject *module, PyObject *args);
PyObject *make_sink(PyObject *module, PyObject *args);
PyObject *limit_sink(PyObject *module, PyObject *args);

PyObject *make_filtering(PyObject *module, PyObject *args);
PyObject *make_mapping_values(PyObject *module, PyObject *args);
PyObject *make_selecting_key(PyObject *module, PyObject *args);
PyObject *make_null_key_filter(PyObject *module, PyObject *args);

PyObject *count_up(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *zero(PyObject *module, PyObject *ignored);
PyObject *make_new_value(PyObject *module, PyObject *args);
PyObject *make_keyed_fold(PyObject *module, PyObject *args);
PyObject *make_window_fold(PyObject *module, PyObject *args);
PyObject *make_table_join(PyObject *module, PyObject *args);

PyObject *write_long(PyObject *module, PyObject *value);
PyObject *read_long(PyObject *module, PyObject *data);
PyObject *write_double(PyObject *module, PyObject *value);
PyObject *read_double(PyObject *module, PyObject *data);
PyObject *murmur2_of(PyObject *module, PyObject *data);
PyObject *make_windowed_writer(PyObject *module, PyObject *args);

PyObject *crc32_of(PyObject *module, PyObject *args);

int init_flow(void);
int init_serdes(void);
int init_cache(PyObject *module);
int init_crc(PyObject *module);
int init_lookup(void);

#endif
