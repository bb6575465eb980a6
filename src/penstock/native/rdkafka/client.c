/* The library, and the common parts of consumers and producers. */
#include "client.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

RkLibrary rk;
PyObject *client_error;

int
load_library(const char *path)
{
    RkLibrary found;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return 0;
#define FIND_FUNCTION(result, name, parameters)                                                    \
    *(void **)&found.name = dlsym(library, "rd_kafka_" #name);                                     \
    if (found.name == NULL)                                                                        \
        return 0;
    RDKAFKA_FUNCTIONS(FIND_FUNCTION)
#undef FIND_FUNCTION
    rk = found;
    return rk.version();
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static int
raise_with(int code, const char *reason, int fatal, int retriable, int requires_abort)
{
    PyObject *arguments = Py_BuildValue("(isOOO)", code, reason, fatal ? Py_True : Py_False,
                                        retriable ? Py_True : Py_False,
                                        requires_abort ? Py_True : Py_False);
    if (arguments != NULL) {
        PyErr_SetObject(client_error, arguments);
        Py_DECREF(arguments);
    }
    return -1;
}

int
raise_code(int code, const char *reason)
{
    return raise_with(code, reason == NULL ? rk.err2str(code) : reason, 0, 0, 0);
}

int
raise_error(RkError *error)
{
    if (error == NULL)
        return 0;
    raise_with(rk.error_code(error), rk.error_string(error), rk.error_is_fatal(error),
               rk.error_is_retriable(error), rk.error_txn_requires_abort(error));
    rk.error_destroy(error);
    return -1;
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

static void
on_log(const RkClient *handle, int level, const char *facility, const char *text)
{
    Events *events = handle == NULL ? NULL : rk.opaque(handle);
    if (events == NULL)
        return;
    pthread_mutex_lock(&events->lock);
    if (events->count < LOG_LINES) {
        LogLine *line = &events->lines[events->count++];
        line->level = level;
        snprintf(line->text, sizeof(line->text), "%s: %s", facility, text);
    }
    pthread_mutex_unlock(&events->lock);
}

static void
on_error(RkClient *handle, int code, const char *reason, void *opaque)
{
    Events *events = opaque;
    if (code == RK_ERR_ALL_BROKERS_DOWN && events != NULL) {
        pthread_mutex_lock(&events->lock);
        events->is_lost = 1;
        pthread_mutex_unlock(&events->lock);
    }
}

/* ---- The life of a client -------------------------------------------------------------------- */

static int
configure(RkConf *conf, PyObject *settings)
{
    char reason[512];
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(settings, &at, &name, &value)) {
        const char *name_text = PyUnicode_AsUTF8(name);
        const char *value_text = name_text == NULL ? NULL : PyUnicode_AsUTF8(value);
        if (value_text == NULL)
            return -1;
        if (rk.conf_set(conf, name_text, value_text, reason, sizeof(reason)) != RK_CONF_OK)
            return raise_code(RK_ERR_INVALID_ARG, reason);
    }
    return 0;
}

int
client_open(Client *self, int kind, PyObject *settings, RkConf *conf)
{
    char reason[512];
    Events *events = PyMem_RawCalloc(1, sizeof(Events));
    if (events == NULL || configure(conf, settings) < 0) {
        PyMem_RawFree(events);
        rk.conf_destroy(conf);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return -1;
    }
    pthread_mutex_init(&events->lock, NULL);
    rk.conf_set_opaque(conf, events);
    rk.conf_set_log_cb(conf, on_log);
    rk.conf_set_error_cb(conf, on_error);
    self->handle = rk.new(kind, conf, reason, sizeof(reason));
    if (self->handle == NULL) {
        rk.conf_destroy(conf);
        PyMem_RawFree(events);
        return raise_code(RK_ERR_INVALID_ARG, reason);
    }
    self->events = events;
    self->owner = getpid();
    return 0;
}

int
client_enter(Client *self)
{
    if (self->handle == NULL || self->is_closed || self->owner != getpid()) {
        PyErr_SetString(PyExc_RuntimeError, "The client is closed.");
        return -1;
    }
    self->users++;
    return 0;
}

int
client_is_idle(const Client *self)
{
    return self->handle != NULL && self->users == 0 && self->owner == getpid();
}

static void
destroy(Client *self)
{
    RkClient *handle = self->handle;
    RkQueue *queue = self->queue;
    Events *events = self->events;
    self->handle = NULL;
    self->queue = NULL;
    self->events = NULL;
    if (handle == NULL || self->owner != getpid())
        /* The threads of the client exist in the parent only: destroying it would never return. */
        return;
    Py_BEGIN_ALLOW_THREADS
    if (queue != NULL)
        rk.queue_destroy(queue);
    rk.destroy_flags(handle, RK_NO_CONSUMER_CLOSE);
    Py_END_ALLOW_THREADS
    pthread_mutex_destroy(&events->lock);
    PyMem_RawFree(events);
}

void
client_leave(Client *self)
{
    self->users--;
    if (self->is_closed && self->users == 0)
        destroy(self);
}

void
client_close(Client *self)
{
    self->is_closed = 1;
    if (self->users == 0)
        destroy(self);
    else if (self->queue != NULL)
        rk.queue_yield(self->queue);
}

void
client_free(Client *self)
{
    client_close(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyObject *
client_close_method(Client *self, PyObject *ignored)
{
    client_close(self);
    Py_RETURN_NONE;
}

/* ---- Methods of both types ------------------------------------------------------------------- */

PyObject *
client_is_lost(Client *self, void *closure)
{
    return PyBool_FromLong(self->events != NULL && self->events->is_lost);
}

PyObject *
client_take_logs(Client *self, PyObject *ignored)
{
    Events *events = self->events;
    if (events == NULL || events->count == 0)
        return PyList_New(0);
    LogLine *taken = PyMem_Malloc(sizeof(events->lines));
    if (taken == NULL)
        return PyErr_NoMemory();
    /* Creating objects may run other Python code, which may wait for this lock, or close the client. */
    pthread_mutex_lock(&events->lock);
    int count = events->count;
    memcpy(taken, events->lines, sizeof(LogLine) * (size_t)count);
    events->count = 0;
    pthread_mutex_unlock(&events->lock);
    PyObject *lines = PyList_New(0);
    for (int at = 0; at < count && lines != NULL; at++) {
        LogLine *line = &taken[at];
        PyObject *text = PyUnicode_DecodeUTF8(line->text, strlen(line->text), "replace");
        PyObject *pair = text == NULL ? NULL : Py_BuildValue("(iN)", line->level, text);
        if (pair == NULL || PyList_Append(lines, pair) < 0)
            Py_CLEAR(lines);
        Py_XDECREF(pair);
    }
    PyMem_Free(taken);
    return lines;
}

/* Asks for metadata, of one topic if it is given. The client is no longer lost after a response. */
PyObject *
client_ping(Client *self, PyObject *args)
{
    int timeout_ms, code;
    const char *topic;
    const struct rd_kafka_metadata *metadata = NULL;
    RkTopic *handle = NULL;
    if (!PyArg_ParseTuple(args, "iz", &timeout_ms, &topic) || client_enter(self) < 0)
        return NULL;
    if (topic != NULL)
        handle = rk.topic_new(self->handle, topic, NULL);
    Py_BEGIN_ALLOW_THREADS
    code = rk.metadata(self->handle, 0, handle, &metadata, timeout_ms);
    if (code == 0)
        rk.metadata_destroy(metadata);
    if (handle != NULL)
        rk.topic_destroy(handle);
    Py_END_ALLOW_THREADS
    if (code == 0)
        self->events->is_lost = 0;
    else
        raise_code(code, NULL);
    client_leave(self);
    if (code != 0)
        return NULL;
    Py_RETURN_NONE;
}

RkPartitions *
partitions_from(PyObject *list)
{
    PyObject *items = PySequence_Fast(list, "Partitions are a sequence of tuples.");
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    RkPartitions *partitions = rk.topic_partition_list_new((int)count);
    for (Py_ssize_t at = 0; at < count; at++) {
        const char *topic, *metadata = NULL;
        int partition;
        long long offset = 0;
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items, at), "si|Ls", &topic, &partition,
                              &offset, &metadata)) {
            rk.topic_partition_list_destroy(partitions);
            Py_DECREF(items);
            return NULL;
        }
        RkPartition *added = rk.topic_partition_list_add(partitions, topic, partition);
        added->offset = offset;
        /* librdkafka reads a string and releases it. */
        if (metadata != NULL && (added->metadata = strdup(metadata)) != NULL)
            added->metadata_size = strlen(metadata) + 1;
    }
    Py_DECREF(items);
    return partitions;
}
