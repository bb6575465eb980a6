/* penstock.native._core: the parts of the task and its stores that every record passes, in C. */
#include "core.h"

/* setup.py defines PENSTOCK_SOURCES, the checksum of the C files; __init__.py compares it with the files
 * that lie beside it. */
#ifndef PENSTOCK_SOURCES
#error "Build the extension with setup.py."
#endif

#define MAKES(name) {#name, make_##name, METH_VARARGS, NULL}
#define DOES(name) {#name, name, METH_VARARGS, NULL}
#define TAKES_ONE(name) {#name, name, METH_O, NULL}

static PyMethodDef functions[] = {
    MAKES(timestamped_rows), MAKES(folding), MAKES(keyed_load), MAKES(overlay_get),
    MAKES(timed_get),
    DOES(stored_rows), DOES(write_rows), DOES(times_of_rows), DOES(timestamped_changes),
    DOES(segmented_rows), DOES(timestamped_values),
    DOES(tell_changes), MAKES(row_listener), MAKES(change_listener),
    DOES(process_rows), MAKES(switching), MAKES(guarded), MAKES(sink),
    MAKES(filtering), MAKES(mapping_values), MAKES(selecting_key), MAKES(null_key_filter),
    {"count_up", (PyCFunction)(void (*)(void))count_up, METH_FASTCALL, NULL},
    {"zero", zero, METH_NOARGS, NULL},
    MAKES(new_value), MAKES(keyed_fold), MAKES(window_fold), MAKES(table_join),
    TAKES_ONE(write_long), TAKES_ONE(read_long), TAKES_ONE(write_double), TAKES_ONE(read_double),
    {"murmur2", murmur2_of, METH_O, NULL},
    MAKES(windowed_writer),
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "penstock.native._core",
    .m_doc = "What every record passes, in C; each part has a twin in Python.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (PyModule_AddStringConstant(module, "SOURCES", PENSTOCK_SOURCES) < 0
        || PyType_Ready(&StepType) < 0 || init_serdes() < 0 || init_flow() < 0
        || init_cache(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
