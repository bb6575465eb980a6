/* The entries of the record cache, the hash table by name, and the ring buffers. */
#include "core.h"

Entry *
entry_new(PyObject *name)
{
    Entry *entry = (Entry *)EntryType.tp_alloc(&EntryType, 0);
    if (entry != NULL)
        entry->name = Py_NewRef(name);
    return entry;
}

static void
entry_dealloc(PyObject *self)
{
    Entry *entry = (Entry *)self;
    Py_XDECREF(entry->name);
    Py_XDECREF(entry->value);
    Py_XDECREF(entry->typed);
    Py_XDECREF(entry->owned);
    Py_XDECREF(entry->rows);
    Py_XDECREF(entry->headers);
    Py_TYPE(self)->tp_free(self);
}

#define FIELD(name) {#name, T_OBJECT_EX, offsetof(Entry, name), READONLY, NULL}

static PyMemberDef entry_members[] = {
    FIELD(name), FIELD(value), FIELD(typed), FIELD(rows), FIELD(headers),
    {"time", T_LONGLONG, offsetof(Entry, time), READONLY, NULL},
    {"at", T_LONGLONG, offsetof(Entry, at), READONLY, NULL},
    {"timestamp", T_LONGLONG, offsetof(Entry, timestamp), READONLY, NULL},
    {"sent", T_BOOL, offsetof(Entry, sent), READONLY, NULL},
    {"size", T_PYSSIZET, offsetof(Entry, size), READONLY, NULL},
    {"uses", T_UINT, offsetof(Entry, uses), READONLY, NULL},
    {"writes", T_UINT, offsetof(Entry, writes), READONLY, NULL},
    {NULL},
};

PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock.native._core.CacheEntry",
    .tp_doc = "One cached row.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = entry_dealloc,
    .tp_members = entry_members,
};

/* ---- the table ------------------------------------------------------------------------------- */

/* Open addressing with at least a third of the slots free. Removal moves later entries up and
 * leaves no tombstones. A lookup needs one memory access, which uses the caches of the processor
 * better than the two of a dictionary. */

static inline int
is_same_name(PyObject *one, PyObject *other)
{
    Py_ssize_t size = PyBytes_GET_SIZE(one);
    return one == other
        || (size == PyBytes_GET_SIZE(other)
            && memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), size) == 0);
}

/* The slot of a name, or the free slot to insert it. The table must be allocated. */
static Place *
table_place(const Table *table, PyObject *name, Py_hash_t hash)
{
    size_t at = (size_t)hash & (table->room - 1);
    while (table->places[at].entry != NULL) {
        Place *place = &table->places[at];
        if (place->hash == hash) {
            __builtin_prefetch(place->entry);
            if (is_same_name(place->name, name))
                break;
        }
        at = (at + 1) & (table->room - 1);
    }
    return &table->places[at];
}

Entry *
table_find(const Table *table, PyObject *name)
{
    return table->count ? table_place(table, name, PyObject_Hash(name))->entry : NULL;
}

static int
table_grow(Table *table)
{
    Table larger = {NULL, table->room ? table->room * 2 : 64, table->count};
    larger.places = PyMem_Calloc(larger.room, sizeof(Place));
    if (larger.places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t at = 0; at < table->room; at++) {
        Place *place = &table->places[at];
        if (place->entry != NULL)
            *table_place(&larger, place->name, place->hash) = *place;
    }
    PyMem_Free(table->places);
    *table = larger;
    return 0;
}

int
table_set(Table *table, Entry *entry)
{
    if (table->count * 3 >= table->room * 2 && table_grow(table) < 0)
        return -1;
    Py_hash_t hash = PyObject_Hash(entry->name);
    Place *place = table_place(table, entry->name, hash);
    Entry *before = place->entry;
    table->count += before == NULL;
    *place = (Place){hash, entry->name, (Entry *)Py_NewRef(entry)};
    Py_XDECREF(before);
    return 0;
}

void
table_remove(Table *table, PyObject *name)
{
    if (!table->count)
        return;
    size_t last = table->room - 1;
    size_t free = table_place(table, name, PyObject_Hash(name)) - table->places;
    Entry *gone = table->places[free].entry;
    if (gone == NULL)
        return;
    table->count--;
    for (size_t at = (free + 1) & last; table->places[at].entry != NULL; at = (at + 1) & last) {
        size_t wanted = (size_t)table->places[at].hash & last;
        /* An entry may move to the free slot unless that is before its preferred slot. */
        if (((at - wanted) & last) >= ((at - free) & last)) {
            table->places[free] = table->places[at];
            free = at;
        }
    }
    table->places[free].entry = NULL;
    Py_DECREF(gone);
}

void
table_clear(Table *table)
{
    Table gone = *table;
    memset(table, 0, sizeof(*table));
    for (size_t at = 0; at < gone.room; at++)
        Py_XDECREF(gone.places[at].entry);
    PyMem_Free(gone.places);
}

PyObject *
table_names(const Table *table)
{
    PyObject *names = PyList_New(0);
    for (size_t at = 0; names != NULL && at < table->room; at++) {
        if (table->places[at].entry != NULL && PyList_Append(names, table->places[at].name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

/* ---- ring buffers ---------------------------------------------------------------------------- */

int
notes_add(Notes *notes, Entry *entry)
{
    if (notes->count == notes->room) {
        size_t room = notes->room ? notes->room * 2 : 256;
        Entry **items = PyMem_New(Entry *, room);
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t at = 0; at < notes->count; at++)
            items[at] = notes->items[(notes->head + at) & (notes->room - 1)];
        PyMem_Free(notes->items);
        notes->items = items;
        notes->head = 0;
        notes->room = room;
    }
    notes->items[(notes->head + notes->count++) & (notes->room - 1)] = (Entry *)Py_NewRef(entry);
    return 0;
}

void
notes_clear(Notes *notes)
{
    Notes gone = *notes;
    memset(notes, 0, sizeof(*notes));
    for (size_t at = 0; at < gone.count; at++)
        Py_DECREF(notes_at(&gone, at));
    PyMem_Free(gone.items);
}
