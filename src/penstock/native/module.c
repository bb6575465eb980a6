/* penstock.native._core: the per-record parts of tasks and stores in C. */
#include "core.h"

/* setup.py defines PENSTOCK_SOURCES, the checksum of the C files; __init__.py compares it with the
 * files in its folder. */
#ifndef PENSTOCK_SOURCES
#error "Build the extension with setup.py."
#endif

/* `parameters` are shown by inspect.signature; a test compares them with _core.pyi. */
#define DOC(name, parameters) #name "($module, " parameters "/)\n--\n\n"
#define MAKES(name, parameters) {#name, make_##name, METH_VARARGS, DOC(name, parameters ", ")}
#define DOES(name, parameters) {#name, name, METH_VARARGS, DOC(name, parameters ", ")}
#define TAKES_ONE(name, parameter) {#name, name, METH_O, DOC(name, parameter ", ")}

static PyMethodDef functions[] = {
    /* rows.c */
    MAKES(timestamped_rows, "cache, current, below, serdes, keeps"),
    MAKES(folding, "cache, current, below, serdes, keeps, initializer, aggregator"),
    MAKES(keyed_load, "write_key, row_of, load_row"),
    MAKES(overlay_get, "writes, inner_get"),
    MAKES(timed_get, "clock, get, time_at, reach"),
    /* lookup.c */
    MAKES(snapshot_get, "reader, database, prefix, longest, get_long"),
    MAKES(timestamped_load, "get, read, deserialize"),
    MAKES(value_load, "get, read, deserialize"),
    MAKES(pooled_lookup, "gate, free, monotonic, commits, careful"),
    /* flush.c */
    DOES(stored_rows, "cache, entries"),
    DOES(write_rows, "writes, unsorted, rows, values"),
    DOES(times_of_rows, "rows, time_at"),
    DOES(timestamped_changes, "store, rows, values, cut, headers"),
    DOES(tell_changes, "entries, current, listener"),
    MAKES(row_listener, "listener, read_key, careful_key, split, windowed, window, size_ms"),
    MAKES(change_listener, "forward, change"),
    /* restore.c */
    DOES(segmented_rows, "keys, time_at, interval_ms"),
    DOES(timestamped_values, "values, timestamps"),
    /* groups.c */
    TAKES_ONE(group_columns, "rows"),
    /* measure.c */
    DOES(measure_columns, "keys, values, timestamps, headers, span, now"),
    DOES(measure_outputs, "outputs, first, now"),
    /* sorting.c */
    DOES(sorted_changes, "changes, prefix, longest"),
    /* flow.c */
    DOES(process_rows, "queue, runtime, rows, span, readers, times, set_head, now"),
    MAKES(switching, "to_all, current"),
    MAKES(guarded, "process, judge"),
    MAKES(counted, "process"),
    MAKES(sink, "topic, writers, encode, append_checked, current, outputs, partitions, limit, "
                "tail, earliest=-9223372036854775808, latest=9223372036854775807"),
    DOES(limit_sink, "sink, limit, earliest, latest"),
    /* stateless.c */
    MAKES(filtering, "predicate, forward, failed, negate"),
    MAKES(mapping_values, "mapper, forward, failed, with_key"),
    MAKES(selecting_key, "selector, forward, failed"),
    MAKES(null_key_filter, "forward"),
    /* operators.c */
    {"count_up", (PyCFunction)(void (*)(void))count_up, METH_FASTCALL,
     DOC(count_up, "key, value, count, ")},
    {"zero", zero, METH_NOARGS, DOC(zero, "")},
    MAKES(new_value, "forward"),
    MAKES(keyed_fold, "drop, write_key, row_of, fold_row"),
    MAKES(window_fold, "drop, clock, row_functions, windows"),
    MAKES(table_join, "get, joiner, forward, drop, tallies, left"),
    /* serdes.c */
    TAKES_ONE(write_long, "value"),
    TAKES_ONE(read_long, "data"),
    TAKES_ONE(write_double, "value"),
    TAKES_ONE(read_double, "data"),
    {"murmur2", murmur2_of, METH_O, DOC(murmur2, "data, ")},
    MAKES(windowed_writer, "write_key, windowed, sequenced"),
    /* crc.c */
    {"crc32", crc32_of, METH_VARARGS, DOC(crc32, "data, start, ")},
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
        || init_cache(module) < 0 || init_crc(module) < 0
        || init_lookup() < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
