/* The record cache in Python: the types, their fields and methods. */
#include "core.h"

PyObject *PENDING, *UNKNOWN;

/* The bytes of an entry without key, value and context: three references and a flag; and those of
 * the timestamp, offset and partition of the context. */
#define FIXED_BYTES (8 + 8 + 8 + 1 + 8 + 8 + 4)

static PyObject *
cache_find(PyObject *self, PyObject *key)
{
    if (check_row(key) < 0)
        return NULL;
    Entry *entry = table_find(&((CacheEntries *)self)->entries, key);
    return Py_NewRef(entry == NULL ? Py_None : (PyObject *)entry);
}

static PyObject *
cache_get(PyObject *self, PyObject *key)
{
    PyObject *entry = cache_find(self, key);
    if (entry != NULL && entry != Py_None && entries_use((CacheEntries *)self, (Entry *)entry) < 0)
        Py_CLEAR(entry);
    return entry;
}

static PyObject *
cache_names(PyObject *self, PyObject *ignored)
{
    return table_names(&((CacheEntries *)self)->entries);
}

static PyObject *
cache_use(PyObject *self, PyObject *entry)
{
    if (!Py_IS_TYPE(entry, &EntryType)) {
        PyErr_SetString(PyExc_TypeError, "not an entry");
        return NULL;
    }
    return entries_use((CacheEntries *)self, (Entry *)entry) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
cache_stored(PyObject *self, PyObject *entry)
{
    if (!Py_IS_TYPE(entry, &EntryType)) {
        PyErr_SetString(PyExc_TypeError, "not an entry");
        return NULL;
    }
    return Py_XNewRef(entry_stored((CacheEntries *)self, (Entry *)entry));
}

static PyObject *
cache_keep(PyObject *self, PyObject *args)
{
    PyObject *key, *value;
    if (!PyArg_ParseTuple(args, "SS", &key, &value))
        return NULL;
    return entries_keep((CacheEntries *)self, key, value) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
cache_put(PyObject *self, PyObject *args)
{
    PyObject *key, *value, *current, *typed = UNKNOWN;
    Py_ssize_t value_bytes;
    long long time = -1;
    if (!PyArg_ParseTuple(args, "SOnO|OL", &key, &value, &value_bytes, &current, &typed, &time))
        return NULL;
    int done =
        entries_put((CacheEntries *)self, key, value, value_bytes, current, typed, time);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
cache_pend(PyObject *self, PyObject *type)
{
    ((CacheEntries *)self)->number = number_code(type);
    Py_RETURN_NONE;
}

static PyObject *
cache_flush(PyObject *self, PyObject *ignored)
{
    return entries_flush((CacheEntries *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
cache_clear(PyObject *self, PyObject *ignored)
{
    return entries_clear((CacheEntries *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static Py_ssize_t
cache_length(PyObject *self)
{
    return (Py_ssize_t)((CacheEntries *)self)->entries.count;
}

static PyObject *
cache_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *budget, *flush, *time_at;
    Py_ssize_t key_bytes;
    if (!PyArg_ParseTuple(args, "O!OnO", &CacheBudgetType, &budget, &flush, &key_bytes, &time_at))
        return NULL;
    CacheEntries *self = (CacheEntries *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->budget = (CacheBudget *)Py_NewRef(budget);
    self->flush = Py_NewRef(flush);
    self->unsorted = PySet_New(NULL);
    self->fixed_bytes = key_bytes + FIXED_BYTES;
    self->used_limit = MANY_USES;
    self->oldest = self->newest = -1;
    self->time_at = time_at == Py_None ? NO_TIME : PyLong_AsSsize_t(time_at);
    if (self->unsorted == NULL || PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* Entries cannot refer to the cache, so only its own fields are traversed. */
static int
cache_traverse(PyObject *self, visitproc visit, void *arg)
{
    CacheEntries *cache = (CacheEntries *)self;
    Py_VISIT(cache->budget);
    Py_VISIT(cache->flush);
    Py_VISIT(cache->ordered);
    Py_VISIT(cache->unsorted);
    return 0;
}

static int
cache_drop(PyObject *self)
{
    /* All other fields stay valid for callers that still use the object. */
    Py_XSETREF(((CacheEntries *)self)->flush, Py_NewRef(Py_None));
    return 0;
}

static void
cache_dealloc(PyObject *self)
{
    CacheEntries *cache = (CacheEntries *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    notes_clear(&cache->written);
    notes_clear(&cache->used);
    Py_XDECREF(cache->budget);
    Py_XDECREF(cache->flush);
    table_clear(&cache->entries);
    Py_XDECREF(cache->ordered);
    Py_XDECREF(cache->unsorted);
    type->tp_free(self);
}

static PyMemberDef cache_members[] = {
    {"ordered", T_OBJECT, offsetof(CacheEntries, ordered), 0, NULL},
    {"unsorted", T_OBJECT_EX, offsetof(CacheEntries, unsorted), READONLY, NULL},
    {"size", T_PYSSIZET, offsetof(CacheEntries, size), READONLY, NULL},
    {"oldest", T_LONGLONG, offsetof(CacheEntries, oldest), READONLY, NULL},
    {"newest", T_LONGLONG, offsetof(CacheEntries, newest), READONLY, NULL},
    {NULL},
};

static PyMethodDef cache_methods[] = {
    {"find", cache_find, METH_O, NULL},
    {"get", cache_get, METH_O, NULL},
    {"names", cache_names, METH_NOARGS, NULL},
    {"use", cache_use, METH_O, NULL},
    {"stored", cache_stored, METH_O, NULL},
    {"keep", cache_keep, METH_VARARGS, NULL},
    {"put", cache_put, METH_VARARGS, NULL},
    {"pend", cache_pend, METH_O, NULL},
    {"flush", cache_flush, METH_NOARGS, NULL},
    {"clear", cache_clear, METH_NOARGS, NULL},
    {NULL},
};

static PySequenceMethods cache_sequence = {.sq_length = cache_length};

PyTypeObject CacheEntriesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock.native._core.CacheEntries",
    .tp_doc = "The entries of one store by row key.",
    .tp_basicsize = sizeof(CacheEntries),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = cache_new,
    .tp_traverse = cache_traverse,
    .tp_clear = cache_drop,
    .tp_dealloc = cache_dealloc,
    .tp_members = cache_members,
    .tp_methods = cache_methods,
    .tp_as_sequence = &cache_sequence,
};

static PyObject *
budget_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    Py_ssize_t max_bytes;
    if (!PyArg_ParseTuple(args, "n", &max_bytes))
        return NULL;
    if (max_bytes < 0)
        return PyErr_Format(PyExc_ValueError,
                            "The size of the record cache must not be negative: %zd.", max_bytes);
    CacheBudget *self = (CacheBudget *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->max_bytes = max_bytes;
    return (PyObject *)self;
}

static PyMemberDef budget_members[] = {
    {"max_bytes", T_PYSSIZET, offsetof(CacheBudget, max_bytes), 0, NULL},
    {"size", T_PYSSIZET, offsetof(CacheBudget, size), 0, NULL},
    {"evictions", T_PYSSIZET, offsetof(CacheBudget, evictions), 0, NULL},
    {NULL},
};

PyTypeObject CacheBudgetType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock.native._core.CacheBudget",
    .tp_doc = "How large all caches of a task may be together, and how large they are.",
    .tp_basicsize = sizeof(CacheBudget),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = budget_new,
    .tp_members = budget_members,
};

int
init_cache(PyObject *module)
{
    PENDING = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    UNKNOWN = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (PENDING == NULL || UNKNOWN == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "PENDING", PENDING) < 0
        || PyModule_AddObjectRef(module, "UNKNOWN", UNKNOWN) < 0)
        return -1;
    PyTypeObject *types[] = {&EntryType, &CacheBudgetType, &CacheEntriesType};
    for (int at = 0; at < 3; at++) {
        if (PyModule_AddType(module, types[at]) < 0)
            return -1;
    }
    return 0;
}
