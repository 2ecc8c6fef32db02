/* Radio core: the Python module of the native radio, and its type `NativeRadio`.

   Python calls `send`, `set_power` and `move`; C calls `on_received` and `on_done`, once for each
   frame that was received or is done. Decision: docs/decisions/0064-native-radio.md. */

#include "radio.h"

PyObject *outcome_names[OUTCOMES];
static const char *const outcome_texts[OUTCOMES] = {"sent", "exceeded", "full", "stale", "off"};
static const char *const kind_texts[KINDS] = {"broadcast", "unicast", "ack", "rts", "cts"};

#define PAYLOAD_BYTES_MAX (1 << 26)
#define DURATIONS_CACHED 4096

PyObject *set_to_int(const word *set, size_t words)
{
    size_t used = words;
    while (used > 1 && !set[used - 1])
        used--;
    if (used == 1)
        return PyLong_FromUnsignedLongLong(set[0]);
    size_t octets_count = used * sizeof(word);
    unsigned char *octets = PyMem_Malloc(octets_count);
    if (octets == NULL)
        return PyErr_NoMemory();
    for (size_t i = 0; i < octets_count; i++)
        octets[i] = (unsigned char)(set[i / sizeof(word)] >> (8 * (i % sizeof(word))));
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *result = PyLong_FromUnsignedNativeBytes(octets, octets_count,
                                                      Py_ASNATIVEBYTES_LITTLE_ENDIAN);
#else
    PyObject *result = _PyLong_FromByteArray(octets, octets_count, 1, 0);
#endif
    PyMem_Free(octets);
    return result;
}

/* Reads the number of a node. */
static int read_number(const Radio *radio, PyObject *value, int least, int *number)
{
    long found = PyLong_AsLong(value);
    if (found == -1 && PyErr_Occurred())
        return -1;
    if (found < least || found >= radio->links.nodes) {
        PyErr_Format(PyExc_IndexError, "there is no node %ld", found);
        return -1;
    }
    *number = (int)found;
    return 0;
}

static PyObject *radio_send(Radio *self, PyObject *const *args, Py_ssize_t count)
{
    int source, to;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "send takes a source, a destination, bytes and a token");
        return NULL;
    }
    if (read_number(self, args[0], 0, &source) < 0 || read_number(self, args[1], BROADCAST, &to) < 0)
        return NULL;
    long payload_bytes = PyLong_AsLong(args[2]);
    if (payload_bytes == -1 && PyErr_Occurred())
        return NULL;
    if (payload_bytes < 0 || payload_bytes > PAYLOAD_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "a frame cannot have %ld bytes of payload", payload_bytes);
        return NULL;
    }
    int bytes = (int)payload_bytes + self->overhead_bytes;
    if (mac_send(self, self->stations[source], to, bytes, args[3]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *radio_set_power(Radio *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"number", "on", NULL};
    PyObject *value;
    int on, number;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O$p", names, &value, &on)
        || read_number(self, value, 0, &number) < 0 || mac_set_power(self, number, on) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *radio_move(Radio *self, PyObject *args)
{
    PyObject *value, *position;
    int number;
    if (!PyArg_ParseTuple(args, "OO!", &value, &PyTuple_Type, &position)
        || read_number(self, value, 0, &number) < 0
        || links_move(&self->links, number, position) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *radio_position_of(Radio *self, PyObject *value)
{
    int number;
    if (read_number(self, value, 0, &number) < 0)
        return NULL;
    PyObject *position = PyList_GET_ITEM(self->links.positions, number);
    Py_INCREF(position);
    return position;
}

static Py_ssize_t radio_length(Radio *self)
{
    return self->links.nodes;
}

/* Counters */

static PyObject *counts_of(const Radio *radio, const int64_t *counts)
{
    PyObject *list = PyList_New(radio->links.nodes);
    for (int i = 0; list != NULL && i < radio->links.nodes; i++) {
        PyObject *count = PyLong_FromLongLong(counts[i]);
        if (count == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, count);
    }
    return list;
}

static PyObject *radio_frames_by_node(Radio *self, PyObject *Py_UNUSED(ignored))
{
    return counts_of(self, self->counters.frames);
}

static PyObject *radio_bytes_by_node(Radio *self, PyObject *Py_UNUSED(ignored))
{
    return counts_of(self, self->counters.bytes);
}

static PyObject *radio_sending_us_by_node(Radio *self, PyObject *Py_UNUSED(ignored))
{
    return counts_of(self, self->counters.sending_us);
}

static PyObject *radio_receiving_us_by_node(Radio *self, PyObject *Py_UNUSED(ignored))
{
    return counts_of(self, self->counters.receiving_us);
}

static PyObject *radio_retransmissions_by_node(Radio *self, PyObject *Py_UNUSED(ignored))
{
    return counts_of(self, self->counters.retransmissions);
}

static PyObject *radio_frames_by_kind(Radio *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *found = PyDict_New();
    for (int i = 0; found != NULL && i < KINDS; i++) {
        if (!self->counters.by_kind[i])
            continue;
        PyObject *count = PyLong_FromLongLong(self->counters.by_kind[i]);
        if (count == NULL || PyDict_SetItemString(found, kind_texts[i], count) < 0)
            Py_CLEAR(found);
        Py_XDECREF(count);
    }
    return found;
}

/* Start and end */

static int load_twister(Twister *twister, PyObject *state)
{
    if (!PyTuple_Check(state) || PyTuple_GET_SIZE(state) != TWISTER_WORDS + 1) {
        PyErr_SetString(PyExc_ValueError, "not the state of a random generator");
        return -1;
    }
    for (int i = 0; i <= TWISTER_WORDS; i++) {
        unsigned long value = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(state, i));
        if (value == (unsigned long)-1 && PyErr_Occurred())
            return -1;
        if (i < TWISTER_WORDS)
            twister->state[i] = (uint32_t)value;
        else
            twister->next = (int)value;
    }
    return 0;
}

static int allocate(Radio *self)
{
    size_t nodes = (size_t)self->links.nodes + 1, words = self->links.words;
    word *sets = PyMem_Calloc(4 * words, sizeof(word));
    int64_t *counts = PyMem_Calloc(5 * nodes, sizeof(int64_t));
    self->occupied = sets;
    self->counters.frames = counts;
    self->stations = PyMem_Calloc(nodes, sizeof(Station *));
    self->durations = PyMem_Calloc(DURATIONS_CACHED, sizeof(Duration));
    if (sets == NULL || counts == NULL || self->stations == NULL || self->durations == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->off = sets + words;
    self->busy = sets + 2 * words;
    self->in_backoff = sets + 3 * words;
    self->counters.bytes = counts + nodes;
    self->counters.sending_us = counts + 2 * nodes;
    self->counters.receiving_us = counts + 3 * nodes;
    self->counters.retransmissions = counts + 4 * nodes;
    self->durations_capacity = DURATIONS_CACHED;
    for (int i = 0; i < self->links.nodes; i++)
        if ((self->stations[i] = station_new(i, self->cw_min)) == NULL)
            return -1;
    return 0;
}

static int read_settings(Radio *self, PyObject *settings)
{
    static char *names[] = {
        "bits_per_us", "slot_us", "difs_us", "sifs_us", "eifs_us", "preamble_us",
        "preamble_detection_us", "signal_extension_us", "can_defer_locks", "cw_min",
        "transmissions_max", "queue_max", "lifetime_us", "rts_over_bytes", "overhead_bytes",
        "ack_bytes", "rts_bytes", "cts_bytes", NULL,
    };
    PyObject *none = PyTuple_New(0);
    if (none == NULL)
        return -1;
    long long slot, difs, sifs, eifs, preamble, detection, extension, lifetime;
    int read = PyArg_ParseTupleAndKeywords(
        none, settings, "dLLLLLLLpiiiLiiiii", names, &self->bits_per_us, &slot, &difs, &sifs, &eifs,
        &preamble, &detection, &extension, &self->can_defer_locks, &self->cw_min,
        &self->transmissions_max, &self->queue_max, &lifetime, &self->rts_over_bytes,
        &self->overhead_bytes, &self->ack_bytes, &self->rts_bytes, &self->cts_bytes);
    Py_DECREF(none);
    if (!read)
        return -1;
    if (slot <= 0) {
        PyErr_SetString(PyExc_ValueError, "a slot takes no time");
        return -1;
    }
    self->slot_us = slot;
    self->difs_us = difs;
    self->sifs_us = sifs;
    self->eifs_us = eifs;
    self->preamble_us = preamble;
    self->preamble_detection_us = detection;
    self->signal_extension_us = extension;
    self->lifetime_us = lifetime;
    self->ack_timeout_us = sifs + slot + preamble;
    return 0;
}

static int read_air_times(Radio *self)
{
    Duration ack, cts;
    if (radio_duration(self, self->ack_bytes, &ack) < 0
        || radio_duration(self, self->cts_bytes, &cts) < 0)
        return -1;
    self->ack_us = ack.us;
    self->cts_us = cts.us;
    return 0;
}

static PyObject *radio_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kernel", "positions", "model", "duration_us", "reception", "backoff",
                            "settings", "on_received", "on_done", NULL};
    PyObject *kernel, *positions, *model, *duration_us, *reception, *backoff, *settings;
    PyObject *on_received, *on_done;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOOOO!OO", names, &KernelType, &kernel,
                                     &positions, &model, &duration_us, &reception, &backoff,
                                     &PyDict_Type, &settings, &on_received, &on_done))
        return NULL;
    Radio *self = (Radio *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(kernel);
    self->kernel = (Kernel *)kernel;
    Py_INCREF(duration_us);
    self->duration_us = duration_us;
    Py_INCREF(on_received);
    self->on_received = on_received;
    Py_INCREF(on_done);
    self->on_done = on_done;
    if (read_settings(self, settings) < 0 || load_twister(&self->reception, reception) < 0
        || load_twister(&self->backoff, backoff) < 0
        || links_fill(&self->links, positions, model) < 0 || allocate(self) < 0
        || read_air_times(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int radio_traverse(Radio *self, visitproc visit, void *arg)
{
    Py_VISIT(self->kernel);
    Py_VISIT(self->duration_us);
    Py_VISIT(self->on_received);
    Py_VISIT(self->on_done);
    Py_VISIT(self->links.positions);
    Py_VISIT(self->links.log_header);
    Py_VISIT(self->links.log_payload);
    Py_VISIT(self->links.thresholds);
    for (int i = 0; i < self->on_air_count; i++)
        Py_VISIT(self->on_air[i]->frame);
    for (int i = 0; self->stations != NULL && i < self->links.nodes; i++) {
        Station *station = self->stations[i];
        for (int k = 0; station != NULL && k < station->queue_count; k++)
            Py_VISIT(station->queue[(station->queue_first + k) % station->queue_capacity]);
    }
    return 0;
}

static int radio_clear(Radio *self)
{
    int on_air = self->on_air_count, ended = self->ended.count;
    self->on_air_count = self->ended.count = 0;
    for (int i = 0; i < on_air; i++)
        transmission_release(self->on_air[i]);
    for (int i = 0; i < ended; i++)
        transmission_release(self->ended.items[self->ended.first + i]);
    for (int i = 0; self->stations != NULL && i < self->links.nodes; i++)
        if (self->stations[i] != NULL)
            station_clear_queue(self->stations[i]);
    Py_CLEAR(self->kernel);
    Py_CLEAR(self->duration_us);
    Py_CLEAR(self->on_received);
    Py_CLEAR(self->on_done);
    Py_CLEAR(self->links.log_header);
    Py_CLEAR(self->links.log_payload);
    Py_CLEAR(self->links.thresholds);
    return 0;
}

static void radio_dealloc(Radio *self)
{
    PyObject_GC_UnTrack(self);
    radio_clear(self);
    for (int i = 0; self->stations != NULL && i < self->links.nodes; i++)
        station_release(self->stations[i]);
    links_release(&self->links);
    Py_CLEAR(self->links.positions);
    PyMem_Free(self->stations);
    PyMem_Free(self->on_air);
    PyMem_Free(self->ended.items);
    PyMem_Free(self->nav.until_us);
    PyMem_Free(self->nav.stations);
    PyMem_Free(self->durations);
    PyMem_Free(self->occupied);
    PyMem_Free(self->counters.frames);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef radio_methods[] = {
    {"send", (PyCFunction)(void (*)(void))radio_send, METH_FASTCALL, "Queues a frame."},
    {"set_power", (PyCFunction)(void (*)(void))radio_set_power, METH_VARARGS | METH_KEYWORDS,
     "Switches a node's radio on or off."},
    {"move", (PyCFunction)radio_move, METH_VARARGS, "Moves a node."},
    {"position_of", (PyCFunction)radio_position_of, METH_O, "The position of a node."},
    {"frames_by_kind", (PyCFunction)radio_frames_by_kind, METH_NOARGS, "Frames by kind."},
    {"frames_by_node", (PyCFunction)radio_frames_by_node, METH_NOARGS, "Frames by node."},
    {"bytes_by_node", (PyCFunction)radio_bytes_by_node, METH_NOARGS, "Bytes by node."},
    {"sending_us_by_node", (PyCFunction)radio_sending_us_by_node, METH_NOARGS,
     "Time spent sending by node."},
    {"receiving_us_by_node", (PyCFunction)radio_receiving_us_by_node, METH_NOARGS,
     "Time spent receiving by node."},
    {"retransmissions_by_node", (PyCFunction)radio_retransmissions_by_node, METH_NOARGS,
     "Frames sent again by node."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods radio_sequence = {.sq_length = (lenfunc)radio_length};

static PyTypeObject RadioType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "thyme.sim.native.radio_core.NativeRadio",
    .tp_doc = "The MACs of all stations, the medium between them, and its link table.",
    .tp_basicsize = sizeof(Radio),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = radio_new,
    .tp_dealloc = (destructor)radio_dealloc,
    .tp_traverse = (traverseproc)radio_traverse,
    .tp_clear = (inquiry)radio_clear,
    .tp_methods = radio_methods,
    .tp_as_sequence = &radio_sequence,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "radio_core",
    .m_doc = "The kernel and the radio of the simulator in C, with the results of their twins.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit_radio_core(void)
{
    if (PyType_Ready(&KernelType) < 0 || PyType_Ready(&FrameType) < 0
        || PyType_Ready(&RadioType) < 0)
        return NULL;
    for (int i = 0; i < OUTCOMES; i++)
        if ((outcome_names[i] = PyUnicode_InternFromString(outcome_texts[i])) == NULL)
            return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
    if (PyModule_AddObjectRef(made, "NativeKernel", (PyObject *)&KernelType) < 0
        || PyModule_AddObjectRef(made, "NativeRadio", (PyObject *)&RadioType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
