/* Operators that call a user function once and may forward (processors/stateless.py). The node
 * handles exceptions of the function, not those of later nodes. */
#include "core.h"

enum { FUNCTION, FORWARD, FAILED, PLAIN_OBJECTS };

/* A step of (function, forward, failed), and a flag if the format has one. */
static PyObject *
make_plain(PyObject *args, const char *format, const char *name, vectorcallfunc call)
{
    PyObject *objects[PLAIN_OBJECTS];
    int flag = 0;
    if (!PyArg_ParseTuple(args, format, &objects[FUNCTION], &objects[FORWARD],
                          &objects[FAILED], &flag))
        return NULL;
    Step *step = step_new(name, call, objects, PLAIN_OBJECTS);
    if (step != NULL)
        step->numbers[0] = flag;
    return (PyObject *)step;
}

/* Filter; with the flag it forwards the records that the predicate rejects. */
static PyObject *
filtering(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    PyObject *result = call_two(step->held[FUNCTION], args[0], args[1]);
    int accepted = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    if (accepted < 0)
        return ask_about_error(step->held[FAILED], args);
    if (accepted == step->numbers[0])
        Py_RETURN_NONE;
    return call_four(step->held[FORWARD], args[0], args[1], args[2], args[3]);
}

/* MapValues; with the flag the function takes the key before the value. */
static PyObject *
mapping_values(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    PyObject *function = step->held[FUNCTION];
    PyObject *value = step->numbers[0] ? call_two(function, args[0], args[1])
                                       : PyObject_CallOneArg(function, args[1]);
    if (value == NULL)
        return ask_about_error(step->held[FAILED], args);
    PyObject *result = call_four(step->held[FORWARD], args[0], value, args[2], args[3]);
    Py_DECREF(value);
    return result;
}

static PyObject *
selecting_key(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    PyObject *key = call_two(step->held[FUNCTION], args[0], args[1]);
    if (key == NULL)
        return ask_about_error(step->held[FAILED], args);
    PyObject *result = call_four(step->held[FORWARD], key, args[1], args[2], args[3]);
    Py_DECREF(key);
    return result;
}

static PyObject *
null_key_filter(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    STEP_ARGUMENTS(4)
    if (args[0] == Py_None)
        Py_RETURN_NONE;
    return call_four(step->held[0], args[0], args[1], args[2], args[3]);
}

PyObject *
make_filtering(PyObject *module, PyObject *args)
{
    return make_plain(args, "OOOp", "filtering", filtering);
}

PyObject *
make_mapping_values(PyObject *module, PyObject *args)
{
    return make_plain(args, "OOOp", "mapping_values", mapping_values);
}

PyObject *
make_selecting_key(PyObject *module, PyObject *args)
{
    return make_plain(args, "OOO", "selecting_key", selecting_key);
}

PyObject *
make_null_key_filter(PyObject *module, PyObject *args)
{
    PyObject *forward;
    if (!PyArg_ParseTuple(args, "O", &forward))
        return NULL;
    return (PyObject *)step_new("null_key_filter", null_key_filter, &forward, 1);
}
