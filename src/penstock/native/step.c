/* Functions with bound values, like closures in Python. */
#include "core.h"

Step *
step_new(const char *name, vectorcallfunc call, PyObject *const *objects, Py_ssize_t count)
{
    Step *step = PyObject_GC_NewVar(Step, &StepType, count);
    if (step == NULL)
        return NULL;
    step->call = call;
    step->name = name;
    step->calls = 0;
    memset(step->numbers, 0, sizeof(step->numbers));
    for (Py_ssize_t at = 0; at < count; at++)
        step->held[at] = Py_NewRef(objects[at]);
    PyObject_GC_Track(step);
    return step;
}

int
step_check(PyObject *self, size_t nargsf, PyObject *names, Py_ssize_t wanted)
{
    PyErr_Format(PyExc_TypeError, "%s takes %zd positional arguments and no others, %zd were given",
                 ((Step *)self)->name, wanted,
                 PyVectorcall_NARGS(nargsf) + (names == NULL ? 0 : PyTuple_GET_SIZE(names)));
    return -1;
}

static int
step_traverse(PyObject *self, visitproc visit, void *arg)
{
    Step *step = (Step *)self;
    for (Py_ssize_t at = 0; at < Py_SIZE(step); at++)
        Py_VISIT(step->held[at]);
    return 0;
}

static int
step_clear(PyObject *self)
{
    Step *step = (Step *)self;
    /* The finalizer of another object may call a step of a cycle: its fields are None, not NULL. */
    for (Py_ssize_t at = 0; at < Py_SIZE(step); at++)
        Py_SETREF(step->held[at], Py_NewRef(Py_None));
    return 0;
}

static void
step_dealloc(PyObject *self)
{
    Step *step = (Step *)self;
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, step_dealloc)
    for (Py_ssize_t at = 0; at < Py_SIZE(step); at++)
        Py_XDECREF(step->held[at]);
    PyObject_GC_Del(self);
    Py_TRASHCAN_END
}

static PyObject *
step_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<native %s>", ((Step *)self)->name);
}

static PyMemberDef step_members[] = {
    {"calls", T_LONGLONG, offsetof(Step, calls), READONLY, NULL},
    {NULL},
};

PyTypeObject StepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock.native._core.Step",
    .tp_doc = "A closure of the native core; its twin in Python says what it does.",
    .tp_basicsize = offsetof(Step, held),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Step, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = step_traverse,
    .tp_clear = step_clear,
    .tp_dealloc = step_dealloc,
    .tp_repr = step_repr,
    .tp_members = step_members,
};
