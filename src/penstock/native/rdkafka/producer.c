/* A transactional producer, and the delivery reports of an append. */
#include "client.h"

#include <string.h>

/* The most records whose bytes are collected before the GIL is released. */
enum { BLOCK = 1024, TOPICS = 256 };

/* The delivery reports of one append. Callbacks write it without the GIL. Its producer holds it
 * until all reports have arrived. */
typedef struct {
    PyObject_HEAD
    long long base, last, timestamp, expected, reported;
    int code;
    char reason[256];
} Report;

typedef struct {
    Client client;
    /* Reports that may still be written. */
    PyObject *reports;
    /* The topics written to. */
    RkTopic *topics[TOPICS];
    int topic_count;
} Producer;

/* ---- Delivery reports ------------------------------------------------------------------------ */

static int
is_purged(int code)
{
    return code == RK_ERR_PURGE_QUEUE || code == RK_ERR_PURGE_INFLIGHT;
}

static void
on_delivery(RkClient *handle, const RkMessage *message, void *opaque)
{
    Report *report = message->opaque;
    if (report == NULL)
        return;
    report->reported++;
    if (message->err != 0) {
        /* The reason of a rejection, if there is one: other records are then purged. */
        if (report->code == 0 || (is_purged(report->code) && !is_purged(message->err))) {
            report->code = message->err;
            snprintf(report->reason, sizeof(report->reason), "%s", rk.err2str(message->err));
        }
        return;
    }
    if (report->last == PY_LLONG_MIN) {
        int kind;
        int64_t timestamp = rk.message_timestamp(message, &kind);
        report->base = message->offset;
        if (kind == RK_LOG_APPEND_TIME)
            report->timestamp = timestamp;
    }
    report->last = message->offset;
}

static PyObject *
report_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    Report *self = (Report *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->base = self->last = PY_LLONG_MIN;
        self->timestamp = -1;
    }
    return (PyObject *)self;
}

static PyObject *
report_reason(Report *self, void *closure)
{
    return PyUnicode_DecodeUTF8(self->reason, strlen(self->reason), "replace");
}

static PyMemberDef report_members[] = {
    {"base", T_LONGLONG, offsetof(Report, base), READONLY, NULL},
    {"last", T_LONGLONG, offsetof(Report, last), READONLY, NULL},
    {"timestamp", T_LONGLONG, offsetof(Report, timestamp), 0, NULL},
    {"expected", T_LONGLONG, offsetof(Report, expected), READONLY, NULL},
    {"reported", T_LONGLONG, offsetof(Report, reported), READONLY, NULL},
    {"code", T_INT, offsetof(Report, code), READONLY, NULL},
    {NULL},
};

static PyGetSetDef report_fields[] = {
    {"reason", (getter)report_reason, NULL, NULL, NULL},
    {NULL},
};

PyTypeObject ReportType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock.native._rdkafka.Report",
    .tp_basicsize = sizeof(Report),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = report_new,
    .tp_members = report_members,
    .tp_getset = report_fields,
};

/* Holds a report, and releases those that are complete. */
static int
keep_report(Producer *self, Report *report)
{
    PyObject *kept = PyList_New(0);
    if (kept == NULL)
        return -1;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(self->reports); at++) {
        Report *old = (Report *)PyList_GET_ITEM(self->reports, at);
        if (old != report && old->reported < old->expected
            && PyList_Append(kept, (PyObject *)old) < 0) {
            Py_DECREF(kept);
            return -1;
        }
    }
    if (PyList_Append(kept, (PyObject *)report) < 0) {
        Py_DECREF(kept);
        return -1;
    }
    Py_SETREF(self->reports, kept);
    return 0;
}

/* ---- Records --------------------------------------------------------------------------------- */

typedef struct {
    PyObject *key, *value;
    int64_t timestamp;
    RkHeaders *headers;
} Outgoing;

typedef struct {
    PyObject *keys, *values, *timestamps, *headers;
    PyObject *zero_name, *zero_value;
    long long now;
} Columns;

static RkTopic *
find_topic(Producer *self, const char *name)
{
    for (int at = 0; at < self->topic_count; at++)
        if (strcmp(rk.topic_name(self->topics[at]), name) == 0)
            return self->topics[at];
    if (self->topic_count == TOPICS)
        while (self->topic_count > 0)
            rk.topic_destroy(self->topics[--self->topic_count]);
    RkTopic *topic = rk.topic_new(self->client.handle, name, NULL);
    if (topic != NULL)
        self->topics[self->topic_count++] = topic;
    return topic;
}

static int
add_header(RkHeaders *headers, PyObject *name, PyObject *value)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == NULL)
        return -1;
    if (value != Py_None && !PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "The value of a header is bytes or None.");
        return -1;
    }
    rk.header_add(headers, text, size, value == Py_None ? NULL : PyBytes_AS_STRING(value),
                  value == Py_None ? 0 : PyBytes_GET_SIZE(value));
    return 0;
}

/* librdkafka treats the timestamp 0 as now: such a record gets 1 and a header. */
static int
prepare_headers(Outgoing *record, PyObject *pairs, const Columns *columns)
{
    int is_zero = record->timestamp == 0;
    PyObject *items = NULL;
    Py_ssize_t count = 0;
    if (pairs != NULL) {
        items = PySequence_Fast(pairs, "Headers are a sequence of pairs.");
        if (items == NULL)
            return -1;
        count = PySequence_Fast_GET_SIZE(items);
    }
    if (count + is_zero > 0)
        record->headers = rk.headers_new((size_t)(count + is_zero));
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *name, *value;
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items, at), "OO", &name, &value)
            || add_header(record->headers, name, value) < 0) {
            Py_DECREF(items);
            return -1;
        }
    }
    Py_XDECREF(items);
    if (is_zero) {
        record->timestamp = 1;
        return add_header(record->headers, columns->zero_name, columns->zero_value);
    }
    return 0;
}

/* Takes references to a record, so that it can be read without the GIL. */
static int
prepare(Outgoing *record, const Columns *columns, Py_ssize_t at)
{
    PyObject *key = PySequence_Fast_GET_ITEM(columns->keys, at);
    PyObject *value = PySequence_Fast_GET_ITEM(columns->values, at);
    if ((key != Py_None && !PyBytes_Check(key)) || (value != Py_None && !PyBytes_Check(value))) {
        PyErr_SetString(PyExc_TypeError, "Keys and values are bytes or None.");
        return -1;
    }
    record->timestamp = columns->now;
    if (columns->timestamps != NULL) {
        record->timestamp = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(columns->timestamps, at));
        if (record->timestamp == -1 && PyErr_Occurred())
            return -1;
    }
    record->headers = NULL;
    if (columns->headers != NULL || record->timestamp == 0) {
        PyObject *pairs =
            columns->headers == NULL ? NULL : PySequence_Fast_GET_ITEM(columns->headers, at);
        if (prepare_headers(record, pairs, columns) < 0) {
            if (record->headers != NULL)
                rk.headers_destroy(record->headers);
            return -1;
        }
    }
    record->key = Py_NewRef(key);
    record->value = Py_NewRef(value);
    return 0;
}

static inline int
enqueue(RkClient *handle, RkTopic *topic, int partition, Outgoing *record, Report *report)
{
    int has_key = record->key != Py_None, has_value = record->value != Py_None;
    return rk.producev(
        handle, RK_V_HANDLE, topic, RK_V_PARTITION, partition, RK_V_MSGFLAGS, RK_COPY,
        RK_V_VALUE, has_value ? PyBytes_AS_STRING(record->value) : NULL,
        has_value ? (size_t)PyBytes_GET_SIZE(record->value) : (size_t)0,
        RK_V_KEY, has_key ? PyBytes_AS_STRING(record->key) : NULL,
        has_key ? (size_t)PyBytes_GET_SIZE(record->key) : (size_t)0,
        RK_V_TIMESTAMP, record->timestamp, RK_V_OPAQUE, report,
        RK_V_HEADERS, record->headers, RK_V_END);
}

/* Enqueues records from `*at` on, a block at a time. Returns a code of librdkafka if it rejects one,
 * or -1 with an exception. `*at` is then the rejected record. */
static int
enqueue_block(Producer *self, RkTopic *topic, int partition, const Columns *columns,
              Report *report, Py_ssize_t *at, Outgoing *block)
{
    Py_ssize_t end = PySequence_Fast_GET_SIZE(columns->keys), count = 0, sent = 0;
    int code = 0;
    while (count < BLOCK && *at + count < end) {
        if (prepare(&block[count], columns, *at + count) < 0) {
            code = -1;
            break;
        }
        count++;
    }
    if (code == 0) {
        Py_BEGIN_ALLOW_THREADS
        while (sent < count) {
            code = enqueue(self->client.handle, topic, partition, &block[sent], report);
            if (code != 0)
                break;
            sent++;
        }
        Py_END_ALLOW_THREADS
    }
    report->expected += sent;
    for (Py_ssize_t each = 0; each < count; each++) {
        if (each >= sent && block[each].headers != NULL)
            rk.headers_destroy(block[each].headers);
        Py_DECREF(block[each].key);
        Py_DECREF(block[each].value);
    }
    *at += sent;
    return code;
}

static PyObject *
fast_or_null(PyObject *column)
{
    return column == Py_None ? NULL : PySequence_Fast(column, "A column is a sequence.");
}

static int
check_lengths(const Columns *columns, Py_ssize_t begin)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(columns->keys);
    if (PySequence_Fast_GET_SIZE(columns->values) != count || begin < 0 || begin > count
        || (columns->timestamps && PySequence_Fast_GET_SIZE(columns->timestamps) != count)
        || (columns->headers && PySequence_Fast_GET_SIZE(columns->headers) != count)) {
        PyErr_SetString(PyExc_ValueError, "The columns differ in length.");
        return -1;
    }
    return 0;
}

static int
enqueue_all(Producer *self, RkTopic *topic, int partition, const Columns *columns, Report *report,
            Py_ssize_t *at)
{
    Py_ssize_t end = PySequence_Fast_GET_SIZE(columns->keys);
    int code = 0;
    Outgoing *block = PyMem_Malloc(sizeof(Outgoing) * BLOCK);
    if (block == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    while (code == 0 && *at < end)
        code = enqueue_block(self, topic, partition, columns, report, at, block);
    PyMem_Free(block);
    return code;
}

/* Enqueues the records from `begin` on. Returns the index of the first record that was rejected and
 * the error code, or the number of records and 0. */
static PyObject *
producer_produce(Producer *self, PyObject *args)
{
    const char *name;
    int partition, code = -1;
    Py_ssize_t at;
    PyObject *keys, *values, *timestamps, *headers, *result = NULL;
    Columns columns;
    Report *report;
    if (!PyArg_ParseTuple(args, "siOOOOL(UO)nO!", &name, &partition, &keys, &values, &timestamps,
                          &headers, &columns.now, &columns.zero_name, &columns.zero_value, &at,
                          &ReportType, &report)
        || client_enter(&self->client) < 0)
        return NULL;
    columns.keys = PySequence_Fast(keys, "A column is a sequence.");
    columns.values = PySequence_Fast(values, "A column is a sequence.");
    columns.timestamps = fast_or_null(timestamps);
    columns.headers = fast_or_null(headers);
    RkTopic *topic = find_topic(self, name);
    if (topic == NULL && !PyErr_Occurred())
        raise_code(RK_ERR_FAIL, "The topic has no handle");
    if (!PyErr_Occurred() && check_lengths(&columns, at) == 0 && keep_report(self, report) == 0)
        code = enqueue_all(self, topic, partition, &columns, report, &at);
    if (!PyErr_Occurred())
        result = Py_BuildValue("(ni)", at, code);
    Py_XDECREF(columns.keys);
    Py_XDECREF(columns.values);
    Py_XDECREF(columns.timestamps);
    Py_XDECREF(columns.headers);
    client_leave(&self->client);
    return result;
}

/* ---- Transactions ---------------------------------------------------------------------------- */

typedef RkError *(*TimedCall)(RkClient *, int);

static PyObject *
timed_call(Producer *self, PyObject *args, TimedCall call)
{
    int timeout_ms;
    RkError *error;
    if (!PyArg_ParseTuple(args, "i", &timeout_ms) || client_enter(&self->client) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = call(self->client.handle, timeout_ms);
    Py_END_ALLOW_THREADS
    client_leave(&self->client);
    if (raise_error(error) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
producer_init_transactions(Producer *self, PyObject *args)
{
    return timed_call(self, args, rk.init_transactions);
}

static PyObject *
producer_commit_transaction(Producer *self, PyObject *args)
{
    return timed_call(self, args, rk.commit_transaction);
}

static PyObject *
producer_abort_transaction(Producer *self, PyObject *args)
{
    return timed_call(self, args, rk.abort_transaction);
}

static PyObject *
producer_begin_transaction(Producer *self, PyObject *ignored)
{
    RkError *error;
    if (client_enter(&self->client) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = rk.begin_transaction(self->client.handle);
    Py_END_ALLOW_THREADS
    client_leave(&self->client);
    if (raise_error(error) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
producer_send_offsets(Producer *self, PyObject *args)
{
    PyObject *list;
    const char *data;
    Py_ssize_t size;
    int timeout_ms;
    RkGroup *group = NULL;
    RkError *error;
    RkPartitions *offsets;
    if (!PyArg_ParseTuple(args, "Oy#i", &list, &data, &size, &timeout_ms)
        || (offsets = partitions_from(list)) == NULL)
        return NULL;
    if (client_enter(&self->client) < 0) {
        rk.topic_partition_list_destroy(offsets);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    error = rk.consumer_group_metadata_read(&group, data, (size_t)size);
    if (error == NULL) {
        error = rk.send_offsets_to_transaction(self->client.handle, offsets, group, timeout_ms);
        rk.consumer_group_metadata_destroy(group);
    }
    rk.topic_partition_list_destroy(offsets);
    Py_END_ALLOW_THREADS
    client_leave(&self->client);
    if (raise_error(error) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Serves delivery reports. Both return the number of records without one. */
static PyObject *
serve_reports(Producer *self, PyObject *args, int (*serve)(RkClient *, int))
{
    int timeout_ms, left;
    if (!PyArg_ParseTuple(args, "i", &timeout_ms) || client_enter(&self->client) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    serve(self->client.handle, timeout_ms);
    left = rk.outq_len(self->client.handle);
    Py_END_ALLOW_THREADS
    client_leave(&self->client);
    return PyLong_FromLong(left);
}

static PyObject *
producer_flush(Producer *self, PyObject *args)
{
    return serve_reports(self, args, rk.flush);
}

static PyObject *
producer_poll(Producer *self, PyObject *args)
{
    return serve_reports(self, args, rk.poll);
}

static PyObject *
producer_purge(Producer *self, PyObject *ignored)
{
    if (client_enter(&self->client) < 0)
        return NULL;
    rk.purge(self->client.handle, RK_PURGE_QUEUE | RK_PURGE_INFLIGHT);
    client_leave(&self->client);
    Py_RETURN_NONE;
}

/* ---- The type -------------------------------------------------------------------------------- */

static PyObject *
producer_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *settings;
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &settings))
        return NULL;
    if (rk.version == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Load librdkafka first.");
        return NULL;
    }
    Producer *self = (Producer *)type->tp_alloc(type, 0);
    if (self == NULL || (self->reports = PyList_New(0)) == NULL) {
        Py_XDECREF(self);
        return NULL;
    }
    RkConf *conf = rk.conf_new();
    rk.conf_set_dr_msg_cb(conf, on_delivery);
    if (client_open(&self->client, RK_PRODUCER, settings, conf) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *
producer_close(Producer *self, PyObject *ignored)
{
    /* Otherwise a call uses the topics, or they belong to the parent of a forked process. */
    if (client_is_idle(&self->client))
        while (self->topic_count > 0)
            rk.topic_destroy(self->topics[--self->topic_count]);
    client_close(&self->client);
    Py_RETURN_NONE;
}

static void
producer_free(Producer *self)
{
    Py_XDECREF(producer_close(self, NULL));
    /* No callback writes reports any more. */
    Py_CLEAR(self->reports);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef producer_methods[] = {
    METHOD(producer, init_transactions, "timeout_ms, "),
    {"begin_transaction", (PyCFunction)producer_begin_transaction, METH_NOARGS,
     "begin_transaction($self, /)\n--\n\n"},
    METHOD(producer, produce, "topic, partition, keys, values, timestamps, headers, now, "
                              "zero_header, begin, report, "),
    METHOD(producer, send_offsets, "offsets, group_metadata, timeout_ms, "),
    METHOD(producer, commit_transaction, "timeout_ms, "),
    METHOD(producer, abort_transaction, "timeout_ms, "),
    METHOD(producer, flush, "timeout_ms, "),
    METHOD(producer, poll, "timeout_ms, "),
    {"purge", (PyCFunction)producer_purge, METH_NOARGS, "purge($self, /)\n--\n\n"},
    {"take_logs", (PyCFunction)client_take_logs, METH_NOARGS, "take_logs($self, /)\n--\n\n"},
    {"ping", (PyCFunction)client_ping, METH_VARARGS, "ping($self, timeout_ms, topic, /)\n--\n\n"},
    {"close", (PyCFunction)producer_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {NULL},
};

static PyGetSetDef producer_fields[] = {
    {"is_lost", (getter)client_is_lost, NULL, NULL, NULL},
    {NULL},
};

PyTypeObject ProducerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock.native._rdkafka.Producer",
    .tp_basicsize = sizeof(Producer),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = producer_new,
    .tp_dealloc = (destructor)producer_free,
    .tp_methods = producer_methods,
    .tp_getset = producer_fields,
};
