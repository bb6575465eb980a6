/* The record cache: entries in the order of writes and in the order of use. The Python twin,
 * stores/cache/entries.py, has the same names and documents the rules.
 *
 * Every dirty entry is in `written`, every entry in `used`, as often as its counters state; both
 * lists hold a reference for each occurrence. No function keeps a borrowed entry across a call that
 * may run other code: a listener may write to the cache during a flush.
 */
#include "core.h"

int
check_row(PyObject *row)
{
    if (PyBytes_Check(row))
        return 0;
    PyErr_Format(PyExc_TypeError, "A row is bytes, not %.100s.", Py_TYPE(row)->tp_name);
    return -1;
}

/* ---- numbers --------------------------------------------------------------------------------- */

int
number_code(PyObject *type)
{
    if (type == (PyObject *)&PyLong_Type)
        return A_LONG;
    return type == (PyObject *)&PyFloat_Type ? A_DOUBLE : NO_NUMBER;
}

int
can_pend(int number, PyObject *value)
{
    int64_t ignored;
    return number == A_LONG ? is_long(value, &ignored)
                            : number == A_DOUBLE && PyFloat_CheckExact(value);
}

PyObject *
entry_stored(CacheEntries *self, Entry *entry)
{
    if (entry->value != PENDING)
        return entry->value;
    char data[16];
    put_long(data, entry->time);
    if (self->number == A_DOUBLE)
        put_double(data + 8, PyFloat_AsDouble(entry->typed));
    else
        put_long(data + 8, PyLong_AsLongLong(entry->typed));
    if (PyErr_Occurred())
        return NULL;
    PyObject *stored = PyBytes_FromStringAndSize(data, 16);
    if (stored != NULL)
        Py_SETREF(entry->value, stored);
    return stored;
}

/* ---- flush and evict ------------------------------------------------------------------------- */

static inline int
is_ordered(CacheEntries *self)
{
    return self->ordered != NULL && self->ordered != Py_None;
}

static int
entries_remove(CacheEntries *self, Entry *entry)
{
    PyObject *name = Py_NewRef(entry->name);
    self->size -= entry->size;
    entry->size = 0;
    int done = 0;
    table_remove(&self->entries, name);
    if (is_ordered(self)) {
        int waiting = PySet_Discard(self->unsorted, name);
        if (waiting == 0) {
            PyObject *result = PyObject_CallMethod(self->ordered, "remove", "O", name);
            done = result == NULL ? -1 : 0;
            Py_XDECREF(result);
        } else if (waiting < 0) {
            done = -1;
        }
    }
    Py_DECREF(name);
    return done;
}

static int
remove_deleted(CacheEntries *self, PyObject *deleted)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(deleted); at++) {
        Entry *entry = (Entry *)PyList_GET_ITEM(deleted, at);
        Entry *found = table_find(&self->entries, entry->name);
        if (found == NULL)
            continue;
        Py_INCREF(found);
        int done = entries_remove(self, found);
        Py_DECREF(found);
        if (done < 0)
            return -1;
    }
    return 0;
}

/* Moves the written entries to `changes` and `deleted`; they are not dirty afterwards. */
static int
collect_dirty(Notes *written, Entry *evicted, PyObject *changes, PyObject *deleted)
{
    if (evicted != NULL && PyList_Append(changes, (PyObject *)evicted) < 0)
        return -1;
    for (size_t at = 0; at < written->count; at++) {
        Entry *entry = notes_at(written, at);
        if (--entry->writes || entry == evicted || !entry->size)
            continue;
        if (PyList_Append(changes, (PyObject *)entry) < 0)
            return -1;
        if (entry->value == Py_None && PyList_Append(deleted, (PyObject *)entry) < 0)
            return -1;
    }
    return 0;
}

static int
flush_dirty(CacheEntries *self, Entry *evicted)
{
    Notes written = self->written;
    memset(&self->written, 0, sizeof(self->written));
    PyObject *changes = PyList_New(0), *deleted = PyList_New(0), *result = NULL;
    int done = changes == NULL || deleted == NULL ? -1 : 0;
    if (done == 0)
        done = collect_dirty(&written, evicted, changes, deleted);
    notes_clear(&written);
    if (done == 0) {
        result = PyObject_CallOneArg(self->flush, changes);
        done = result == NULL ? -1 : remove_deleted(self, deleted);
    }
    Py_XDECREF(result);
    Py_XDECREF(changes);
    Py_XDECREF(deleted);
    return done;
}

static int
entries_evict(CacheEntries *self)
{
    while (self->used.count) {
        Entry *entry = notes_take(&self->used);
        int done = 0, gone = --entry->uses == 0 && entry->size;
        if (gone) {
            done = entries_remove(self, entry);
            if (done == 0 && entry->writes)
                done = flush_dirty(self, entry);
        }
        Py_DECREF(entry);
        if (gone)
            return done;
    }
    PyErr_SetString(PyExc_AssertionError, "An entry of the record cache was never used.");
    return -1;
}

static int
make_room(CacheEntries *self)
{
    CacheBudget *budget = self->budget;
    while (budget->size > budget->max_bytes) {
        /* Flushed changes may have enlarged other caches; only this one evicts entries. */
        if (!self->entries.count)
            return 0;
        Py_ssize_t before = self->size;
        if (entries_evict(self) < 0)
            return -1;
        budget->size += self->size - before;
        budget->evictions++;
    }
    return 0;
}

/* Keeps only the last occurrence of every entry in the order of use. */
static void
shorten_used(CacheEntries *self)
{
    Notes *used = &self->used;
    size_t kept = 0;
    for (size_t at = used->count; at-- > 0;) {
        Entry *entry = notes_at(used, at);
        /* 0 marks an entry that was already found nearer to the end. */
        if (entry->uses && entry->size) {
            entry->uses = 0;
            kept++;
            used->items[(used->head + used->count - kept) & (used->room - 1)] = entry;
        } else {
            entry->uses = 0;
            Py_DECREF(entry);
        }
    }
    used->head = (used->head + used->count - kept) & (used->room - 1);
    used->count = kept;
    for (size_t at = 0; at < kept; at++)
        notes_at(used, at)->uses = 1;
    self->used_limit = 4 * (Py_ssize_t)kept + MANY_USES;
}

static inline void
limit_used(CacheEntries *self)
{
    if ((Py_ssize_t)self->used.count > self->used_limit)
        shorten_used(self);
}

static int
entries_grow(CacheEntries *self, Py_ssize_t growth)
{
    self->size += growth;
    self->budget->size += growth;
    if (self->budget->size > self->budget->max_bytes)
        return make_room(self);
    limit_used(self);
    return 0;
}

/* ---- reads and writes------------------------------------------------------------------------ */

int
entries_use(CacheEntries *self, Entry *entry)
{
    if (notes_add(&self->used, entry) < 0)
        return -1;
    entry->uses++;
    limit_used(self);
    return 0;
}

/* A new entry that replaces an existing one with its key; borrowed. */
static Entry *
entries_add(CacheEntries *self, PyObject *key)
{
    Entry *entry = entry_new(key);
    if (entry == NULL)
        return NULL;
    int done = table_set(&self->entries, entry);
    Py_DECREF(entry);
    return done < 0 ? NULL : entry;
}

int
entries_keep(CacheEntries *self, PyObject *key, PyObject *value)
{
    Entry *entry = entries_add(self, key);
    if (entry == NULL)
        return -1;
    entry->value = Py_NewRef(value);
    entry->typed = Py_NewRef(UNKNOWN);
    entry->size = self->fixed_bytes + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(value);
    if (entries_use(self, entry) < 0
        || (is_ordered(self) && PySet_Add(self->unsorted, key) < 0))
        return -1;
    return entries_grow(self, entry->size);
}

static Py_ssize_t
header_bytes(PyObject *headers)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(headers); at++) {
        PyObject *pair = PyTuple_GET_ITEM(headers, at), *name, *value;
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "UO", &name, &value))
            return -1;
        Py_ssize_t more = value == Py_None ? 0 : PyObject_Size(value);
        if (more < 0)
            return -1;
        size += PyUnicode_GET_LENGTH(name) + more;
    }
    return size;
}

static int
observe_time(CacheEntries *self, PyObject *key)
{
    int64_t time;
    if (row_time(key, self->time_at, &time) < 0)
        return -1;
    if (time > self->newest)
        self->newest = time;
    if (self->oldest < 0 || time < self->oldest)
        self->oldest = time;
    return 0;
}

/* Copies the context of the current record to an entry. */
static int
take_context(Entry *entry, PyObject *current)
{
    entry->at = slot_number(current, current_slots.at);
    entry->timestamp = slot_number(current, current_slots.timestamp);
    entry->sent = SLOT(current, current_slots.sent) == Py_True;
    return PyErr_Occurred() ? -1 : 0;
}

static Py_ssize_t
entry_bytes(CacheEntries *self, PyObject *key, Py_ssize_t value_bytes, PyObject *current)
{
    PyObject *rows = SLOT(current, current_slots.rows);
    PyObject *headers = SLOT(current, current_slots.headers);
    Py_ssize_t topic = topic_bytes(rows);
    if (topic < 0)
        return -1;
    Py_ssize_t more = 0;
    if (PyTuple_Check(headers) && PyTuple_GET_SIZE(headers) && (more = header_bytes(headers)) < 0)
        return -1;
    return self->fixed_bytes + PyBytes_GET_SIZE(key) + value_bytes + topic + more;
}

int
entries_put(CacheEntries *self, PyObject *key, PyObject *value, Py_ssize_t value_bytes,
            PyObject *current, PyObject *typed, int64_t time)
{
    if (know_current(current) < 0 || (self->time_at != NO_TIME && observe_time(self, key) < 0))
        return -1;
    Py_ssize_t size = entry_bytes(self, key, value_bytes, current), growth = size;
    if (size < 0)
        return -1;
    Entry *entry = table_find(&self->entries, key);
    if (entry == NULL || !entry->writes) {
        if (entry != NULL) {
            /* A flush may be using the old entry, which must not change. */
            growth -= entry->size;
            entry->size = 0;
        } else if (is_ordered(self) && PySet_Add(self->unsorted, key) < 0) {
            return -1;
        }
        entry = entries_add(self, key);
        if (entry == NULL)
            return -1;
    } else {
        growth -= entry->size;
    }
    if (notes_add(&self->used, entry) < 0 || notes_add(&self->written, entry) < 0)
        return -1;
    entry->uses++;
    entry->writes++;
    entry->size = size;
    Py_XSETREF(entry->value, Py_NewRef(value));
    Py_XSETREF(entry->typed, Py_NewRef(typed));
    Py_CLEAR(entry->owned);
    Py_XSETREF(entry->rows, Py_NewRef(SLOT(current, current_slots.rows)));
    Py_XSETREF(entry->headers, Py_NewRef(SLOT(current, current_slots.headers)));
    entry->time = time;
    return take_context(entry, current) < 0 ? -1 : entries_grow(self, growth);
}

int
entries_rewrite(CacheEntries *self, Entry *entry, PyObject *current, Py_ssize_t growth)
{
    if (know_current(current) < 0 || notes_add(&self->used, entry) < 0
        || notes_add(&self->written, entry) < 0)
        return -1;
    entry->uses++;
    entry->writes++;
    entry->size += growth;
    return take_context(entry, current) < 0 ? -1 : entries_grow(self, growth);
}

int
entries_flush(CacheEntries *self)
{
    Py_ssize_t before = self->size;
    if (flush_dirty(self, NULL) < 0)
        return -1;
    self->budget->size += self->size - before;
    return 0;
}

int
entries_clear(CacheEntries *self)
{
    self->budget->size -= self->size;
    self->size = 0;
    table_clear(&self->entries);
    notes_clear(&self->written);
    notes_clear(&self->used);
    Py_CLEAR(self->ordered);
    return PySet_Clear(self->unsorted);
}
