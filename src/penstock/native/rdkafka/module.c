/* penstock.native._rdkafka: reads and writes of Kafka without Python code for each record. */
#include "client.h"

/* setup.py defines PENSTOCK_SOURCES, the checksum of the C files. */
#ifndef PENSTOCK_SOURCES
#error "Build the extension with setup.py."
#endif

static PyObject *
load(PyObject *module, PyObject *path)
{
    const char *text = PyUnicode_AsUTF8(path);
    return text == NULL ? NULL : PyLong_FromLong(load_library(text));
}

static PyMethodDef functions[] = {
    {"load", load, METH_O, "load($module, path, /)\n--\n\n"},
    {"measure", measure, METH_O, "measure($module, column, /)\n--\n\n"},
    {"measure_times", measure_times, METH_O, "measure_times($module, column, /)\n--\n\n"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "penstock.native._rdkafka",
    .m_doc = "Clients of librdkafka that read and write columns.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__rdkafka(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    client_error = PyErr_NewException("penstock.native._rdkafka.Error", NULL, NULL);
    if (client_error == NULL || PyModule_AddObjectRef(module, "Error", client_error) < 0
        || PyModule_AddStringConstant(module, "SOURCES", PENSTOCK_SOURCES) < 0
        || PyModule_AddType(module, &ConsumerType) < 0
        || PyModule_AddType(module, &ProducerType) < 0
        || PyModule_AddType(module, &ReportType) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
