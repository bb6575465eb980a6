/* Declarations shared by the files of the binding to librdkafka.
 *
 * The library is not linked: `load` opens the one that confluent-kafka brings, or the system's, and
 * looks up the functions of `RDKAFKA_FUNCTIONS`. The types and constants below are part of the
 * stable binary interface of librdkafka 1 and 2.
 *
 * All handles of librdkafka are created here. The GIL is released while a call waits. Callbacks of
 * librdkafka run without the GIL and touch no Python objects.
 */
#ifndef PENSTOCK_RDKAFKA_CLIENT_H
#define PENSTOCK_RDKAFKA_CLIENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <sys/types.h>

/* ---- The interface of librdkafka ------------------------------------------------------------- */

typedef struct rd_kafka_s RkClient;
typedef struct rd_kafka_conf_s RkConf;
typedef struct rd_kafka_topic_s RkTopic;
typedef struct rd_kafka_queue_s RkQueue;
typedef struct rd_kafka_error_s RkError;
typedef struct rd_kafka_headers_s RkHeaders;
typedef struct rd_kafka_consumer_group_metadata_s RkGroup;
struct rd_kafka_metadata;

typedef struct {
    int err;
    RkTopic *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} RkMessage;

typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *internal;
} RkPartition;

typedef struct {
    int count;
    int room;
    RkPartition *items;
} RkPartitions;

enum { RK_PRODUCER = 0, RK_CONSUMER = 1 };
enum { RK_CONF_OK = 0 };
enum { RK_NO_CONSUMER_CLOSE = 0x8 };
enum { RK_COPY = 0x2 };
enum { RK_PURGE_QUEUE = 0x1, RK_PURGE_INFLIGHT = 0x2 };
enum { RK_LOG_APPEND_TIME = 2 };
/* The tags of the arguments of `producev`. */
enum {
    RK_V_END = 0, RK_V_HANDLE = 2, RK_V_PARTITION = 3, RK_V_VALUE = 4, RK_V_KEY = 5, RK_V_OPAQUE = 6,
    RK_V_MSGFLAGS = 7, RK_V_TIMESTAMP = 8, RK_V_HEADERS = 10
};
enum {
    RK_ERR_PURGE_INFLIGHT = -151, RK_ERR_PURGE_QUEUE = -152, RK_ERR_ALL_BROKERS_DOWN = -187,
    RK_ERR_PARTITION_EOF = -191, RK_ERR_INVALID_ARG = -186, RK_ERR_FAIL = -196
};

#define RDKAFKA_FUNCTIONS(F)                                                                       \
    F(int, version, (void))                                                                        \
    F(RkConf *, conf_new, (void))                                                                  \
    F(void, conf_destroy, (RkConf *))                                                              \
    F(int, conf_set, (RkConf *, const char *, const char *, char *, size_t))                       \
    F(void, conf_set_opaque, (RkConf *, void *))                                                   \
    F(void, conf_set_error_cb, (RkConf *, void (*)(RkClient *, int, const char *, void *)))        \
    F(void, conf_set_log_cb,                                                                       \
      (RkConf *, void (*)(const RkClient *, int, const char *, const char *)))                     \
    F(void, conf_set_dr_msg_cb, (RkConf *, void (*)(RkClient *, const RkMessage *, void *)))       \
    F(RkClient *, new, (int, RkConf *, char *, size_t))                                            \
    F(void, destroy_flags, (RkClient *, int))                                                      \
    F(void *, opaque, (const RkClient *))                                                          \
    F(const char *, err2str, (int))                                                                \
    F(int, error_code, (const RkError *))                                                          \
    F(const char *, error_string, (const RkError *))                                               \
    F(int, error_is_fatal, (const RkError *))                                                      \
    F(int, error_is_retriable, (const RkError *))                                                  \
    F(int, error_txn_requires_abort, (const RkError *))                                            \
    F(void, error_destroy, (RkError *))                                                            \
    F(int, metadata, (RkClient *, int, RkTopic *, const struct rd_kafka_metadata **, int))         \
    F(void, metadata_destroy, (const struct rd_kafka_metadata *))                                  \
    F(RkPartitions *, topic_partition_list_new, (int))                                             \
    F(RkPartition *, topic_partition_list_add, (RkPartitions *, const char *, int32_t))            \
    F(void, topic_partition_list_destroy, (RkPartitions *))                                        \
    F(int, poll_set_consumer, (RkClient *))                                                        \
    F(RkQueue *, queue_get_consumer, (RkClient *))                                                 \
    F(void, queue_yield, (RkQueue *))                                                              \
    F(void, queue_destroy, (RkQueue *))                                                            \
    F(ssize_t, consume_batch_queue, (RkQueue *, int, RkMessage **, size_t))                        \
    F(RkError *, incremental_assign, (RkClient *, const RkPartitions *))                           \
    F(RkError *, incremental_unassign, (RkClient *, const RkPartitions *))                         \
    F(int, assign, (RkClient *, const RkPartitions *))                                             \
    F(int, pause_partitions, (RkClient *, RkPartitions *))                                         \
    F(int, resume_partitions, (RkClient *, RkPartitions *))                                        \
    F(int, get_watermark_offsets, (RkClient *, const char *, int32_t, int64_t *, int64_t *))       \
    F(const char *, topic_name, (const RkTopic *))                                                 \
    F(const char *, message_errstr, (const RkMessage *))                                           \
    F(int64_t, message_timestamp, (const RkMessage *, int *))                                      \
    F(int, message_headers, (const RkMessage *, RkHeaders **))                                     \
    F(int, header_get_all,                                                                         \
      (const RkHeaders *, size_t, const char **, const void **, size_t *))                         \
    F(void, message_destroy, (RkMessage *))                                                        \
    F(RkTopic *, topic_new, (RkClient *, const char *, void *))                                    \
    F(void, topic_destroy, (RkTopic *))                                                            \
    F(RkHeaders *, headers_new, (size_t))                                                          \
    F(int, header_add, (RkHeaders *, const char *, ssize_t, const void *, ssize_t))                \
    F(void, headers_destroy, (RkHeaders *))                                                        \
    F(int, producev, (RkClient *, ...))                                                            \
    F(int, poll, (RkClient *, int))                                                                \
    F(int, flush, (RkClient *, int))                                                               \
    F(int, purge, (RkClient *, int))                                                               \
    F(int, outq_len, (RkClient *))                                                                 \
    F(RkError *, init_transactions, (RkClient *, int))                                             \
    F(RkError *, begin_transaction, (RkClient *))                                                  \
    F(RkError *, send_offsets_to_transaction,                                                      \
      (RkClient *, const RkPartitions *, const RkGroup *, int))                                    \
    F(RkError *, commit_transaction, (RkClient *, int))                                            \
    F(RkError *, abort_transaction, (RkClient *, int))                                             \
    F(RkError *, consumer_group_metadata_read, (RkGroup **, const void *, size_t))                 \
    F(void, consumer_group_metadata_destroy, (RkGroup *))

#define DECLARE_FUNCTION(result, name, parameters) result(*name) parameters;
typedef struct {
    RDKAFKA_FUNCTIONS(DECLARE_FUNCTION)
} RkLibrary;
#undef DECLARE_FUNCTION

/* The functions; all NULL before `load_library` has succeeded. */
extern RkLibrary rk;

/* Opens a library. Returns its version, or 0 if it cannot be used. */
int load_library(const char *path);

/* ---- client.c: common parts of consumers and producers --------------------------------------- */

enum { LOG_LINES = 64, LOG_LENGTH = 400 };

typedef struct {
    int level;
    char text[LOG_LENGTH];
} LogLine;

/* The part of a client that callbacks of librdkafka write, from any thread. */
typedef struct {
    pthread_mutex_t lock;
    LogLine lines[LOG_LINES];
    int count;
    /* Whether all brokers were unreachable. */
    int is_lost;
} Events;

typedef struct {
    PyObject_HEAD
    RkClient *handle;
    RkQueue *queue;
    Events *events;
    /* The process that created the client. A forked child cannot use or destroy it. */
    pid_t owner;
    /* Calls in progress; the last one destroys a client that was closed meanwhile. */
    int users;
    int is_closed;
} Client;

/* `penstock.native._rdkafka.Error`: code, reason, is fatal, is retriable, requires an abort. */
extern PyObject *client_error;

/* Creates the handle from a dict of strings. */
int client_open(Client *self, int kind, PyObject *settings, RkConf *conf);
/* Count a call in progress; `enter` raises if the client is closed. */
int client_enter(Client *self);
/* Whether this process may destroy the handle: no call is in progress. */
int client_is_idle(const Client *self);
void client_leave(Client *self);
void client_close(Client *self);
void client_free(Client *self);
/* Raise. `raise_error` releases the error, and returns 0 for NULL. */
int raise_code(int code, const char *reason);
int raise_error(RkError *error);
/* From a list of tuples (topic, partition[, offset[, metadata]]). */
RkPartitions *partitions_from(PyObject *list);

/* Methods of both types. */
PyObject *client_take_logs(Client *self, PyObject *ignored);
PyObject *client_ping(Client *self, PyObject *args);
PyObject *client_close_method(Client *self, PyObject *ignored);
PyObject *client_is_lost(Client *self, void *closure);

#define CLIENT_METHODS                                                                             \
    {"take_logs", (PyCFunction)client_take_logs, METH_NOARGS, "take_logs($self, /)\n--\n\n"},      \
    {"ping", (PyCFunction)client_ping, METH_VARARGS, "ping($self, timeout_ms, topic, /)\n--\n\n"}, \
    {"close", (PyCFunction)client_close_method, METH_NOARGS, "close($self, /)\n--\n\n"}

#define METHOD(type, name, parameters)                                                             \
    {#name, (PyCFunction)type##_##name, METH_VARARGS, #name "($self, " parameters "/)\n--\n\n"}

/* ---- columns.c, consumer.c, producer.c ------------------------------------------------------- */

/* Appends what the messages hold to a list, as tuples of one partition each. */
int fetched_from(PyObject *list, RkMessage **messages, Py_ssize_t count);
PyObject *measure(PyObject *module, PyObject *column);
PyObject *measure_times(PyObject *module, PyObject *column);

extern PyTypeObject ConsumerType, ProducerType, ReportType;

#endif
