/* Groups the rows that a task writes by destination (engine/worker/record_groups.py). */
#include "core.h"

/* A row ends with key, value, timestamp and headers. */
enum { KEY, VALUE, TIMESTAMP, HEADERS, COLUMNS };
/* So many groups are compared with a row before a table of all groups is used. */
enum { NEAR = 8 };

/* The columns of a group are those of the row and whether any headers are not empty. */
typedef struct {
    PyObject *destination;
    PyObject *columns[COLUMNS];
    int has_headers;
} RowGroup;

typedef struct {
    RowGroup *items;
    Py_ssize_t count, room;
    /* Destination -> index in `items`. */
    PyObject *table;
} RowGroups;

static int
goes_to(RowGroup *group, PyObject *row, Py_ssize_t width)
{
    if (PyTuple_GET_SIZE(group->destination) != width)
        return 0;
    for (Py_ssize_t at = 0; at < width; at++)
        if (PyTuple_GET_ITEM(group->destination, at) != PyTuple_GET_ITEM(row, at))
            return 0;
    return 1;
}

static RowGroup *
add_group(RowGroups *groups, PyObject *destination)
{
    if (groups->count == groups->room) {
        Py_ssize_t room = 2 * groups->room + NEAR;
        RowGroup *items = PyMem_Realloc(groups->items, sizeof(RowGroup) * room);
        if (items == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        groups->items = items;
        groups->room = room;
    }
    PyObject *index = PyLong_FromSsize_t(groups->count);
    int failed = index == NULL || PyDict_SetItem(groups->table, destination, index) < 0;
    Py_XDECREF(index);
    if (failed)
        return NULL;
    RowGroup *group = &groups->items[groups->count++];
    group->destination = Py_NewRef(destination);
    group->has_headers = 0;
    for (int column = 0; column < COLUMNS; column++)
        group->columns[column] = NULL;
    for (int column = 0; column < COLUMNS; column++)
        if ((group->columns[column] = PyList_New(0)) == NULL)
            return NULL;
    return group;
}

static RowGroup *
group_of(RowGroups *groups, PyObject *row, Py_ssize_t width)
{
    for (Py_ssize_t at = 0; at < groups->count && at < NEAR; at++)
        if (goes_to(&groups->items[at], row, width))
            return &groups->items[at];
    PyObject *destination = PyTuple_GetSlice(row, 0, width);
    if (destination == NULL)
        return NULL;
    PyObject *index = PyDict_GetItemWithError(groups->table, destination);
    RowGroup *group = NULL;
    if (index != NULL)
        group = &groups->items[PyLong_AsSsize_t(index)];
    else if (!PyErr_Occurred())
        group = add_group(groups, destination);
    Py_DECREF(destination);
    return group;
}

static int
add_row(RowGroups *groups, PyObject *row, PyObject **no_headers)
{
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) < COLUMNS) {
        PyErr_SetString(PyExc_TypeError, "A row is a tuple of at least four items.");
        return -1;
    }
    Py_ssize_t width = PyTuple_GET_SIZE(row) - COLUMNS;
    RowGroup *group = group_of(groups, row, width);
    if (group == NULL)
        return -1;
    for (int column = 0; column < COLUMNS; column++)
        if (PyList_Append(group->columns[column], PyTuple_GET_ITEM(row, width + column)) < 0)
            return -1;
    PyObject *headers = PyTuple_GET_ITEM(row, width + HEADERS);
    if (headers != *no_headers && !group->has_headers) {
        int is_true = PyObject_IsTrue(headers);
        if (is_true < 0)
            return -1;
        group->has_headers = is_true;
        if (!is_true)
            *no_headers = headers;
    }
    return 0;
}

/* group_columns(rows): destination -> keys, values, timestamps, and headers or None. */
PyObject *
group_columns(PyObject *module, PyObject *given)
{
    PyObject *rows = PySequence_Fast(given, "rows are a sequence"), *found = NULL;
    PyObject *no_headers = NULL;
    RowGroups groups = {NULL, 0, 0, PyDict_New()};
    if (rows == NULL || groups.table == NULL)
        goto done;
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(rows); at++)
        if (add_row(&groups, PySequence_Fast_GET_ITEM(rows, at), &no_headers) < 0)
            goto done;
    found = PyDict_New();
    for (Py_ssize_t at = 0; found != NULL && at < groups.count; at++) {
        RowGroup *group = &groups.items[at];
        PyObject *columns = PyTuple_Pack(
            COLUMNS, group->columns[KEY], group->columns[VALUE], group->columns[TIMESTAMP],
            group->has_headers ? group->columns[HEADERS] : Py_None);
        if (columns == NULL || PyDict_SetItem(found, group->destination, columns) < 0)
            Py_CLEAR(found);
        Py_XDECREF(columns);
    }
done:
    for (Py_ssize_t at = 0; at < groups.count; at++) {
        Py_DECREF(groups.items[at].destination);
        for (int column = 0; column < COLUMNS; column++)
            Py_XDECREF(groups.items[at].columns[column]);
    }
    PyMem_Free(groups.items);
    Py_XDECREF(groups.table);
    Py_XDECREF(rows);
    return found;
}
