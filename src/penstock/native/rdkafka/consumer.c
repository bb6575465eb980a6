/* A consumer that follows partitions. */
#include "client.h"

/* The most messages that are taken at once. */
enum { BLOCK = 4096 };

static PyObject *
consumer_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *settings;
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &settings))
        return NULL;
    if (rk.version == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Load librdkafka first.");
        return NULL;
    }
    Client *self = (Client *)type->tp_alloc(type, 0);
    if (self == NULL || client_open(self, RK_CONSUMER, settings, rk.conf_new()) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    rk.poll_set_consumer(self->handle);
    self->queue = rk.queue_get_consumer(self->handle);
    return (PyObject *)self;
}

typedef RkError *(*ChangePartitions)(RkClient *, const RkPartitions *);
typedef int (*SwitchPartitions)(RkClient *, RkPartitions *);

/* Calls one of two kinds of functions with the partitions of the only argument. */
static PyObject *
with_partitions(Client *self, PyObject *args, ChangePartitions change, SwitchPartitions switching)
{
    PyObject *list;
    RkPartitions *partitions;
    RkError *error = NULL;
    int code = 0;
    if (!PyArg_ParseTuple(args, "O", &list) || (partitions = partitions_from(list)) == NULL)
        return NULL;
    if (client_enter(self) < 0) {
        rk.topic_partition_list_destroy(partitions);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    if (change != NULL)
        error = change(self->handle, partitions);
    else
        code = switching(self->handle, partitions);
    rk.topic_partition_list_destroy(partitions);
    Py_END_ALLOW_THREADS
    client_leave(self);
    if (raise_error(error) < 0 || (code != 0 && raise_code(code, NULL) < 0))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
consumer_assign(Client *self, PyObject *args)
{
    return with_partitions(self, args, rk.incremental_assign, NULL);
}

static int
replace_partitions(RkClient *handle, RkPartitions *partitions)
{
    return rk.assign(handle, partitions);
}

static PyObject *
consumer_replace(Client *self, PyObject *args)
{
    return with_partitions(self, args, NULL, replace_partitions);
}

static PyObject *
consumer_unassign(Client *self, PyObject *args)
{
    return with_partitions(self, args, rk.incremental_unassign, NULL);
}

static PyObject *
consumer_pause(Client *self, PyObject *args)
{
    return with_partitions(self, args, NULL, rk.pause_partitions);
}

static PyObject *
consumer_resume(Client *self, PyObject *args)
{
    return with_partitions(self, args, NULL, rk.resume_partitions);
}

/* Takes messages; waits for the first only. Returns how many. */
static Py_ssize_t
take(Client *self, RkMessage **messages, int timeout_ms, Py_ssize_t most)
{
    ssize_t first = 0, more = 0;
    Py_BEGIN_ALLOW_THREADS
    first = rk.consume_batch_queue(self->queue, timeout_ms, messages, 1);
    if (first == 1 && most > 1)
        more = rk.consume_batch_queue(self->queue, 0, messages + 1, (size_t)most - 1);
    Py_END_ALLOW_THREADS
    return (first > 0 ? first : 0) + (more > 0 ? more : 0);
}

static PyObject *
consumer_consume(Client *self, PyObject *args)
{
    int timeout_ms;
    Py_ssize_t most, taken = 0;
    if (!PyArg_ParseTuple(args, "in", &timeout_ms, &most) || client_enter(self) < 0)
        return NULL;
    PyObject *fetched = PyList_New(0);
    RkMessage **messages = PyMem_Malloc(sizeof(RkMessage *) * BLOCK);
    if (messages == NULL && fetched != NULL) {
        PyErr_NoMemory();
        Py_CLEAR(fetched);
    }
    while (fetched != NULL && taken < most) {
        Py_ssize_t wanted = most - taken < BLOCK ? most - taken : BLOCK;
        Py_ssize_t count = take(self, messages, taken == 0 ? timeout_ms : 0, wanted);
        if (fetched_from(fetched, messages, count) < 0)
            Py_CLEAR(fetched);
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < count; at++)
            rk.message_destroy(messages[at]);
        Py_END_ALLOW_THREADS
        taken += count;
        if (count < wanted)
            break;
    }
    PyMem_Free(messages);
    client_leave(self);
    return fetched;
}

static PyObject *
consumer_high_watermark(Client *self, PyObject *args)
{
    const char *topic;
    int partition, code;
    int64_t low, high;
    if (!PyArg_ParseTuple(args, "si", &topic, &partition) || client_enter(self) < 0)
        return NULL;
    code = rk.get_watermark_offsets(self->handle, topic, partition, &low, &high);
    client_leave(self);
    return PyLong_FromLongLong(code == 0 ? high : -1);
}

/* Any thread may call it. */
static PyObject *
consumer_wake(Client *self, PyObject *ignored)
{
    if (self->queue != NULL && !self->is_closed)
        rk.queue_yield(self->queue);
    Py_RETURN_NONE;
}

static PyMethodDef consumer_methods[] = {
    METHOD(consumer, assign, "positions, "),
    METHOD(consumer, replace, "positions, "),
    METHOD(consumer, unassign, "partitions, "),
    METHOD(consumer, pause, "partitions, "),
    METHOD(consumer, resume, "partitions, "),
    METHOD(consumer, consume, "timeout_ms, max_records, "),
    METHOD(consumer, high_watermark, "topic, partition, "),
    {"wake", (PyCFunction)consumer_wake, METH_NOARGS, "wake($self, /)\n--\n\n"},
    CLIENT_METHODS,
    {NULL},
};

static PyGetSetDef consumer_fields[] = {
    {"is_lost", (getter)client_is_lost, NULL, NULL, NULL},
    {NULL},
};

PyTypeObject ConsumerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock.native._rdkafka.Consumer",
    .tp_basicsize = sizeof(Client),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = consumer_new,
    .tp_dealloc = (destructor)client_free,
    .tp_methods = consumer_methods,
    .tp_getset = consumer_fields,
};
