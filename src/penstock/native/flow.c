/* The path of a record: from the queue to the nodes (task/queue.py), and from node to node
 * (task/assembly.py). */
#include "core.h"

/* ---- errors ---------------------------------------------------------------------------------- */

PyObject *
take_error(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    Py_DECREF(type);
    Py_XDECREF(trace);
    return error;
#endif
}

PyObject *
ask_about_error(PyObject *judge, PyObject *const *args)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *error = take_error(), *before = PyErr_GetHandledException();
    PyErr_SetHandledException(error);
    PyObject *stack[6] = {NULL, error, args[0], args[1], args[2], args[3]};
    PyObject *result =
        PyObject_Vectorcall(judge, stack + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    PyErr_SetHandledException(before);
    Py_XDECREF(before);
    Py_DECREF(error);
    return result;
}

/* guarded(process, judge): passes errors of a node to the handler. */
static PyObject *
guarded(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    PyObject *result = call_four(step->held[0], args[0], args[1], args[2], args[3]);
    return result != NULL ? result : ask_about_error(step->held[1], args);
}

PyObject *
make_guarded(PyObject *module, PyObject *args)
{
    PyObject *objects[2];
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1]))
        return NULL;
    return (PyObject *)step_new("guarded", guarded, objects, 2);
}

/* counted(process): counts the calls of a function that does not count them itself. */
static PyObject *
counted(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    return call_four(step->held[0], args[0], args[1], args[2], args[3]);
}

PyObject *
make_counted(PyObject *module, PyObject *args)
{
    PyObject *process;
    if (!PyArg_ParseTuple(args, "O", &process))
        return NULL;
    return (PyObject *)step_new("counted", counted, &process, 1);
}

/* switching(to_all, current): makes the forwarded record the current one during the call. */
static PyObject *
switching(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    PyObject *to_all = step->held[0], *current = step->held[1];
    if (know_current(current) < 0)
        return NULL;
    PyObject *timestamp = SLOT(current, current_slots.timestamp);
    PyObject *headers = SLOT(current, current_slots.headers);
    int same = headers != args[3] ? 0 : timestamp == args[2]
        || PyObject_RichCompareBool(timestamp, args[2], Py_EQ);
    if (same < 0)
        return NULL;
    if (same)
        return call_four(to_all, args[0], args[1], args[2], args[3]);
    PyObject *sent = SLOT(current, current_slots.sent);
    Py_INCREF(timestamp);
    Py_INCREF(headers);
    Py_INCREF(sent);
    slot_set(current, current_slots.timestamp, args[2]);
    slot_set(current, current_slots.headers, args[3]);
    PyObject *result = call_four(to_all, args[0], args[1], args[2], args[3]);
    if (know_current(current) == 0) {
        slot_set(current, current_slots.timestamp, timestamp);
        slot_set(current, current_slots.headers, headers);
        slot_set(current, current_slots.sent, sent);
    }
    Py_DECREF(timestamp);
    Py_DECREF(headers);
    Py_DECREF(sent);
    return result;
}

PyObject *
make_switching(PyObject *module, PyObject *args)
{
    PyObject *objects[2];
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1]) || know_current(objects[1]) < 0)
        return NULL;
    return (PyObject *)step_new("switching", switching, objects, 2);
}

/* ---- sources --------------------------------------------------------------------------------- */

static PyObject *name_partition_time, *name_key, *name_value, *name_time;

int
init_flow(void)
{
    name_partition_time = PyUnicode_InternFromString("partition_time");
    name_key = PyUnicode_InternFromString("key");
    name_value = PyUnicode_InternFromString("value");
    name_time = PyUnicode_InternFromString("time");
    return PyErr_Occurred() ? -1 : 0;
}

/* One run over some rows of a queue; all borrowed. */
typedef struct {
    PyObject *queue, *runtime, *rows, *read_key, *read_value;
    PyObject *current, *schedules, *forward, *set_head, *never, *no_headers, *headers;
    int64_t stream_time, partition_time;
    Py_ssize_t stream_time_at, next_due_at;
    int plain_time;
    long long now;
    Measured measured;
} Run;

/* The next record, ready to be forwarded; new references. */
typedef struct {
    PyObject *key, *value, *timestamp;
    int64_t time;
} Head;

static void
head_drop(Head *head)
{
    Py_CLEAR(head->key);
    Py_CLEAR(head->value);
    Py_CLEAR(head->timestamp);
}

static int
set_number(PyObject *object, PyObject *name, int64_t value)
{
    PyObject *number = PyLong_FromLongLong(value);
    int done = number == NULL ? -1 : PyObject_SetAttr(object, name, number);
    Py_XDECREF(number);
    return done;
}

/* set_head(rows, at, halves, failure), with the halves of the head that are deserialized. */
static PyObject *
set_head(Run *run, Py_ssize_t at, const Head *head, PyObject *failure)
{
    PyObject *number = PyLong_FromSsize_t(at);
    PyObject *halves = head->key == NULL ? PyTuple_New(0)
        : head->value == NULL            ? PyTuple_Pack(1, head->key)
                                         : PyTuple_Pack(2, head->key, head->value);
    PyObject *result = NULL;
    if (number != NULL && halves != NULL)
        result = call_four(run->set_head, run->rows, number, halves, failure);
    Py_XDECREF(number);
    Py_XDECREF(halves);
    return result;
}

/* The careful path: calls handlers for errors and extracts timestamps. 0: skipped. */
static int
careful_head(Run *run, Py_ssize_t at, Head *head, PyObject *failure)
{
    if (set_number(run->queue, name_partition_time, run->partition_time) < 0)
        return -1;
    PyObject *result = set_head(run, at, head, failure);
    head_drop(head);
    int there = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    if (there <= 0)
        return there;
    head->key = PyObject_GetAttr(run->queue, name_key);
    head->value = PyObject_GetAttr(run->queue, name_value);
    head->timestamp = PyObject_GetAttr(run->queue, name_time);
    if (head->key == NULL || head->value == NULL || head->timestamp == NULL)
        return -1;
    head->time = as_number(head->timestamp);
    return head->time == -1 && PyErr_Occurred() ? -1 : 1;
}

/* 1: there is a head, 0: the record is skipped. */
static int
read_head(Run *run, Py_ssize_t at, PyObject *timestamp, PyObject *key, PyObject *value, Head *head)
{
    head->key = key == Py_None ? Py_NewRef(key) : read_fast(run->read_key, key);
    if (head->key != NULL)
        head->value = value == Py_None ? Py_NewRef(value) : read_fast(run->read_value, value);
    if (head->value == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return -1;
        PyObject *failure = take_error();
        int there = careful_head(run, at, head, failure);
        Py_DECREF(failure);
        return there;
    }
    if (run->plain_time && is_long(timestamp, &head->time) && head->time >= 0) {
        head->timestamp = Py_NewRef(timestamp);
        return 1;
    }
    return careful_head(run, at, head, Py_None);
}

static int
fire_due(Run *run)
{
    PyObject *due = SLOT(run->schedules, run->next_due_at);
    int64_t time;
    if (due == run->never || !is_long(due, &time) || time > run->stream_time)
        return 0;
    PyObject *punctuate = PyObject_GetAttrString(run->runtime, "punctuate");
    PyObject *result = punctuate == NULL ? NULL : PyObject_CallMethod(
        run->schedules, "fire", "LO", (long long)run->stream_time, punctuate);
    Py_XDECREF(punctuate);
    Py_XDECREF(result);
    if (result == NULL || know_current(run->current) < 0)
        return -1;
    slot_set(run->current, current_slots.rows, run->rows);
    return 0;
}

static int
process_head(Run *run, Py_ssize_t at, Head *head)
{
    if (head->time > run->partition_time) {
        run->partition_time = head->time;
        if (head->time > run->stream_time) {
            run->stream_time = head->time;
            slot_set(run->runtime, run->stream_time_at, head->timestamp);
        }
    }
    PyObject *headers = run->headers == Py_None ? Py_NewRef(run->no_headers)
                                                : PySequence_GetItem(run->headers, at);
    PyObject *number = PyLong_FromSsize_t(at);
    int done = -1;
    if (headers != NULL && number != NULL && know_current(run->current) == 0) {
        slot_set(run->current, current_slots.at, number);
        slot_set(run->current, current_slots.sent, Py_False);
        slot_set(run->current, current_slots.timestamp, head->timestamp);
        slot_set(run->current, current_slots.headers, headers);
        PyObject *result =
            call_four(run->forward, head->key, head->value, head->timestamp, headers);
        done = result == NULL ? -1 : 0;
        Py_XDECREF(result);
    }
    Py_XDECREF(number);
    Py_XDECREF(headers);
    return done < 0 ? -1 : fire_due(run);
}

/* rows.<name>[first:last] as a list or tuple. */
static PyObject *
column(PyObject *rows, const char *name, Py_ssize_t first, Py_ssize_t last)
{
    PyObject *whole = PyObject_GetAttrString(rows, name);
    PyObject *part = whole == NULL ? NULL : PySequence_GetSlice(whole, first, last);
    PyObject *fast = part == NULL ? NULL : PySequence_Fast(part, "A column is a sequence.");
    Py_XDECREF(whole);
    Py_XDECREF(part);
    if (fast != NULL && PySequence_Fast_GET_SIZE(fast) != last - first) {
        PyErr_Format(PyExc_ValueError, "The column of %s is too short.", name);
        Py_CLEAR(fast);
    }
    return fast;
}

/* Releases a decoded value when its record has been processed. Stores hold their own references. */
static int
run_rows(Run *run, Py_ssize_t first, Py_ssize_t last, PyObject *const columns[3])
{
    for (Py_ssize_t at = first; at < last; at++) {
        Head head = {NULL, NULL, NULL, 0};
        PyObject *timestamp = PySequence_Fast_GET_ITEM(columns[0], at - first);
        PyObject *key = PySequence_Fast_GET_ITEM(columns[1], at - first);
        PyObject *value = PySequence_Fast_GET_ITEM(columns[2], at - first);
        measure_record(&run->measured, run->now, timestamp, key, value);
        int there = read_head(run, at, timestamp, key, value, &head);
        int done = there <= 0 ? there : process_head(run, at, &head);
        head_drop(&head);
        if (done < 0)
            return -1;
    }
    return 0;
}

static int
number_of(PyObject *object, PyObject *name, int64_t *number)
{
    PyObject *found = PyObject_GetAttr(object, name);
    if (found == NULL)
        return -1;
    *number = as_number(found);
    Py_DECREF(found);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Looks up the constants of a run; the caller releases them. */
static int
open_run(Run *run)
{
    run->schedules = run->forward = run->headers = NULL;
    if ((run->current = PyObject_GetAttrString(run->runtime, "current")) == NULL
        || (run->schedules = PyObject_GetAttrString(run->runtime, "stream_schedules")) == NULL
        || (run->forward = PyObject_GetAttrString(run->queue, "forward")) == NULL
        || (run->headers = PyObject_GetAttrString(run->rows, "headers")) == NULL)
        return -1;
    if ((run->stream_time_at = slot_place(Py_TYPE(run->runtime), "stream_time")) < 0
        || (run->next_due_at = slot_place(Py_TYPE(run->schedules), "next_due")) < 0
        || number_of(run->queue, name_partition_time, &run->partition_time) < 0)
        return -1;
    run->stream_time = slot_number(run->runtime, run->stream_time_at);
    return PyErr_Occurred() ? -1 : know_current(run->current);
}

/* process_rows(queue, runtime, rows, (first, last), (read_key, read_value), (plain time, never,
 * no headers), set_head, now): the twin of RecordQueue._process_rows. Returns the partition time,
 * and the number, bytes, sum of ages, smallest and largest age of the records; without headers. */
PyObject *
process_rows(PyObject *module, PyObject *args)
{
    Run run;
    Py_ssize_t first, last;
    memset(&run.measured, 0, sizeof run.measured);
    if (!PyArg_ParseTuple(args, "OOO(nn)(OO)(pOO)OL", &run.queue, &run.runtime, &run.rows, &first,
                          &last, &run.read_key, &run.read_value, &run.plain_time, &run.never,
                          &run.no_headers, &run.set_head, &run.now))
        return NULL;
    static const char *const names[3] = {"timestamps", "keys", "values"};
    PyObject *columns[3] = {NULL, NULL, NULL};
    int done = open_run(&run);
    for (int at = 0; done == 0 && at < 3; at++) {
        columns[at] = column(run.rows, names[at], first, last);
        done = columns[at] == NULL ? -1 : 0;
    }
    if (done == 0) {
        slot_set(run.current, current_slots.rows, run.rows);
        done = run_rows(&run, first, last, columns);
    }
    for (int at = 0; at < 3; at++)
        Py_XDECREF(columns[at]);
    Py_XDECREF(run.current);
    Py_XDECREF(run.schedules);
    Py_XDECREF(run.forward);
    Py_XDECREF(run.headers);
    if (done < 0)
        return NULL;
    Measured *all = &run.measured;
    return Py_BuildValue("LLLdLL", (long long)run.partition_time, all->records, all->bytes,
                         all->ages, all->youngest, all->oldest);
}
