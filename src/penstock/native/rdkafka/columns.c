/* Converts messages to columns, and measures columns. */
#include "client.h"

#include <string.h>

/* The messages of one partition. */
typedef struct {
    RkTopic *topic;
    int32_t partition;
    Py_ssize_t records;
    PyObject *offsets, *timestamps, *keys, *values, *headers;
    /* How many records are filled in, and the timestamp of the last one. */
    Py_ssize_t filled;
    int64_t last_time;
    int64_t end;
    const RkMessage *failed;
} Group;

static Group *
find_group(Group *groups, Py_ssize_t *count, Group *last, const RkMessage *message)
{
    if (last != NULL && last->topic == message->topic && last->partition == message->partition)
        return last;
    for (Py_ssize_t at = 0; at < *count; at++)
        if (groups[at].topic == message->topic && groups[at].partition == message->partition)
            return &groups[at];
    Group *added = &groups[(*count)++];
    memset(added, 0, sizeof(*added));
    added->topic = message->topic;
    added->partition = message->partition;
    added->end = -1;
    return added;
}

static void
release_group(Group *group)
{
    Py_CLEAR(group->offsets);
    Py_CLEAR(group->timestamps);
    Py_CLEAR(group->keys);
    Py_CLEAR(group->values);
    Py_CLEAR(group->headers);
}

static int
make_columns(Group *group)
{
    group->offsets = PyList_New(group->records);
    group->timestamps = PyList_New(group->records);
    group->keys = PyList_New(group->records);
    group->values = PyList_New(group->records);
    return group->offsets && group->timestamps && group->keys && group->values ? 0 : -1;
}

static inline PyObject *
bytes_or_none(const void *data, size_t size)
{
    if (data == NULL)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

static PyObject *
header_pairs(const RkHeaders *headers)
{
    PyObject *pairs = PyList_New(0);
    const char *name;
    const void *value;
    size_t size;
    for (size_t at = 0; pairs != NULL && rk.header_get_all(headers, at, &name, &value, &size) == 0;
         at++) {
        PyObject *text = PyUnicode_DecodeUTF8(name, strlen(name), "replace");
        PyObject *pair = text == NULL ? NULL : Py_BuildValue("(NN)", text,
                                                             bytes_or_none(value, size));
        if (pair == NULL || PyList_Append(pairs, pair) < 0)
            Py_CLEAR(pairs);
        Py_XDECREF(pair);
    }
    return pairs;
}

/* The column of headers exists from the first record with headers on; None for one without. */
static int
set_headers(Group *group, const RkMessage *message)
{
    RkHeaders *headers;
    PyObject *pairs;
    if (rk.message_headers(message, &headers) != 0) {
        if (group->headers == NULL)
            return 0;
        pairs = Py_NewRef(Py_None);
    }
    else {
        if (group->headers == NULL) {
            group->headers = PyList_New(group->records);
            if (group->headers == NULL)
                return -1;
            for (Py_ssize_t at = 0; at < group->records; at++)
                PyList_SET_ITEM(group->headers, at, Py_NewRef(Py_None));
        }
        pairs = header_pairs(headers);
        if (pairs == NULL)
            return -1;
    }
    return PyList_SetItem(group->headers, group->filled, pairs);
}

static int
add_record(Group *group, const RkMessage *message)
{
    Py_ssize_t at = group->filled;
    int kind;
    int64_t time = rk.message_timestamp(message, &kind);
    PyObject *offset = PyLong_FromLongLong(message->offset);
    /* Records often have the time of the one before. */
    PyObject *timestamp = at > 0 && time == group->last_time
                              ? Py_NewRef(PyList_GET_ITEM(group->timestamps, at - 1))
                              : PyLong_FromLongLong(time);
    PyObject *key = bytes_or_none(message->key, message->key_len);
    PyObject *value = bytes_or_none(message->payload, message->len);
    group->last_time = time;
    if (offset != NULL)
        PyList_SET_ITEM(group->offsets, at, offset);
    if (timestamp != NULL)
        PyList_SET_ITEM(group->timestamps, at, timestamp);
    if (key != NULL)
        PyList_SET_ITEM(group->keys, at, key);
    if (value != NULL)
        PyList_SET_ITEM(group->values, at, value);
    if (!offset || !timestamp || !key || !value || set_headers(group, message) < 0)
        return -1;
    group->filled++;
    return 0;
}

/* (topic, partition, columns or None, end, error or None, offset of the error). */
static PyObject *
group_result(Group *group)
{
    const RkMessage *failed = group->failed;
    PyObject *columns = Py_NewRef(Py_None), *error = Py_NewRef(Py_None);
    if (group->records > 0)
        Py_SETREF(columns, PyTuple_Pack(5, group->offsets, group->timestamps, group->keys,
                                        group->values, group->headers ? group->headers : Py_None));
    if (failed != NULL)
        Py_SETREF(error, Py_BuildValue("(is)", failed->err, rk.message_errstr(failed)));
    if (columns == NULL || error == NULL) {
        Py_XDECREF(columns);
        Py_XDECREF(error);
        return NULL;
    }
    return Py_BuildValue("(siNLNL)", group->topic == NULL ? "" : rk.topic_name(group->topic),
                         (int)group->partition, columns, (long long)group->end, error,
                         (long long)(failed == NULL ? -1 : failed->offset));
}

static void
count_message(Group *group, const RkMessage *message)
{
    if (message->err == 0) {
        group->records++;
        group->end = -1;
    }
    else if (message->err == RK_ERR_PARTITION_EOF)
        group->end = message->offset;
    else if (group->failed == NULL)
        group->failed = message;
}

int
fetched_from(PyObject *list, RkMessage **messages, Py_ssize_t count)
{
    Py_ssize_t group_count = 0;
    int result = -1;
    Group *groups = PyMem_Malloc(sizeof(Group) * (count + 1)), *group = NULL;
    if (groups == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        group = find_group(groups, &group_count, group, messages[at]);
        count_message(group, messages[at]);
    }
    for (Py_ssize_t at = 0; at < group_count; at++)
        if (make_columns(&groups[at]) < 0)
            goto done;
    group = NULL;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (messages[at]->err != 0)
            continue;
        group = find_group(groups, &group_count, group, messages[at]);
        if (add_record(group, messages[at]) < 0)
            goto done;
    }
    for (Py_ssize_t at = 0; at < group_count; at++) {
        PyObject *item = group_result(&groups[at]);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_XDECREF(item);
            goto done;
        }
        Py_DECREF(item);
    }
    result = 0;
done:
    for (Py_ssize_t at = 0; at < group_count; at++)
        release_group(&groups[at]);
    PyMem_Free(groups);
    return result;
}

/* The bytes of a column, and of its longest entry; None if an entry is neither bytes nor None. */
PyObject *
measure(PyObject *module, PyObject *column)
{
    PyObject *items = PySequence_Fast(column, "A column is a sequence.");
    Py_ssize_t total = 0, longest = 0;
    if (items == NULL)
        return NULL;
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(items); at++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, at);
        if (item == Py_None)
            continue;
        if (!PyBytes_Check(item)) {
            Py_DECREF(items);
            Py_RETURN_NONE;
        }
        Py_ssize_t size = PyBytes_GET_SIZE(item);
        total += size;
        longest = size > longest ? size : longest;
    }
    Py_DECREF(items);
    return Py_BuildValue("(nn)", total, longest);
}

/* The smallest and the largest timestamp; None if there are none, or one is not an integer. */
PyObject *
measure_times(PyObject *module, PyObject *column)
{
    PyObject *items = PySequence_Fast(column, "A column is a sequence.");
    int64_t least = INT64_MAX, most = INT64_MIN;
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, at);
        int overflow = 1;
        int64_t time = 0;
        if (PyLong_CheckExact(item))
            time = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow) {
            count = 0;
            break;
        }
        least = time < least ? time : least;
        most = time > most ? time : most;
    }
    Py_DECREF(items);
    if (count == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)least, (long long)most);
}
