/* Fields of `CurrentRecord`, `PartitionColumns`, `Clock` and `Tally`, Python classes with
 * __slots__. Their offsets are read from the descriptors once. */
#include "core.h"

CurrentSlots current_slots;
static PyTypeObject *rows_type;
static Py_ssize_t rows_topic;

Py_ssize_t
slot_place(PyTypeObject *type, const char *name)
{
    PyObject *descriptor = PyObject_GetAttrString((PyObject *)type, name);
    if (descriptor == NULL && forget_error() < 0)
        return -1;
    Py_ssize_t place = -1;
    if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        if (member->type == T_OBJECT_EX)
            place = member->offset;
    }
    Py_XDECREF(descriptor);
    if (place < 0)
        PyErr_Format(PyExc_TypeError, "%s.%s is not a slot.", type->tp_name, name);
    return place;
}

int
learn_current(PyObject *current)
{
    PyTypeObject *type = Py_TYPE(current);
    CurrentSlots found = {.type = type};
    if ((found.rows = slot_place(type, "rows")) < 0 || (found.at = slot_place(type, "at")) < 0
        || (found.sent = slot_place(type, "sent")) < 0
        || (found.timestamp = slot_place(type, "timestamp")) < 0
        || (found.headers = slot_place(type, "headers")) < 0)
        return -1;
    /* The class is never deallocated. */
    Py_INCREF(type);
    Py_XDECREF(current_slots.type);
    current_slots = found;
    return 0;
}

Py_ssize_t
topic_bytes(PyObject *rows)
{
    if (Py_TYPE(rows) != rows_type) {
        Py_ssize_t place = slot_place(Py_TYPE(rows), "topic");
        if (place < 0)
            return -1;
        Py_XSETREF(rows_type, (PyTypeObject *)Py_NewRef(Py_TYPE(rows)));
        rows_topic = place;
    }
    PyObject *topic = SLOT(rows, rows_topic);
    return PyUnicode_Check(topic) ? PyUnicode_GET_LENGTH(topic) : 0;
}
