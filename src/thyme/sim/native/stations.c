/* Stations: the queue of each node, frames, and switching a radio on or off. */

#include "radio.h"

Station *station_new(int number, int cw)
{
    Station *station = PyMem_Calloc(1, sizeof(Station));
    if (station == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    station->references = 1;
    station->number = number;
    station->cw = cw;
    station->countdown_from_us = NEVER;
    station->transmit_at_us = NEVER;
    return station;
}

void station_release(Station *station)
{
    if (station == NULL || --station->references)
        return;
    PyMem_Free(station->queue);
    PyMem_Free(station);
}

/* Takes the first frame from the queue; NULL if there is none. The caller owns it. */
Frame *station_pop(Station *station)
{
    if (!station->queue_count)
        return NULL;
    Frame *frame = station->queue[station->queue_first];
    station->queue_first = (station->queue_first + 1) % station->queue_capacity;
    station->queue_count--;
    return frame;
}

void station_clear_queue(Station *station)
{
    station->references++; /* its frames may have the last references to it */
    for (Frame *frame; (frame = station_pop(station)) != NULL;)
        Py_DECREF(frame);
    station_release(station);
}

static int station_push(Station *station, Frame *frame)
{
    if (station->queue_count == station->queue_capacity) {
        int capacity = station->queue_capacity ? 2 * station->queue_capacity : 4;
        Frame **queue = PyMem_Malloc((size_t)capacity * sizeof(Frame *));
        if (queue == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (int i = 0; i < station->queue_count; i++)
            queue[i] = station->queue[(station->queue_first + i) % station->queue_capacity];
        PyMem_Free(station->queue);
        station->queue = queue;
        station->queue_first = 0;
        station->queue_capacity = capacity;
    }
    int last = (station->queue_first + station->queue_count) % station->queue_capacity;
    Py_INCREF(frame);
    station->queue[last] = frame;
    station->queue_count++;
    return 0;
}

/* Calls `on_done` with the outcome of a frame. */
int mac_report_done(Radio *radio, Frame *frame, Outcome outcome)
{
    PyObject *args[] = {NULL, (PyObject *)frame, outcome_names[outcome]};
    PyObject *result =
        PyObject_Vectorcall(radio->on_done, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Queues a frame. */
int mac_send(Radio *radio, Station *station, int to, int bytes, PyObject *token)
{
    Frame *frame = PyObject_GC_New(Frame, &FrameType);
    if (frame == NULL)
        return -1;
    station->references++;
    frame->station = station;
    frame->to = to;
    frame->bytes = bytes;
    frame->transmissions = 0;
    frame->queued_us = radio->kernel->now_us;
    Py_INCREF(token);
    frame->token = token;
    PyObject_GC_Track((PyObject *)frame);
    int status;
    if (station->queue_count >= radio->queue_max)
        status = mac_report_done(radio, frame, FULL);
    else
        status = station_push(station, frame);
    bool contends = station->queue_count == 1 && !station->sending
                    && station->queue[station->queue_first] == frame;
    if (status == 0 && contends)
        status = mac_contend(radio, station);
    Py_DECREF(frame);
    return status;
}

/* Switches a node's radio on or off; switching it off drops its queued frames. */
int mac_set_power(Radio *radio, int number, bool on)
{
    set_assign(radio->off, number, !on);
    if (on)
        return 0;
    Station *station = radio->stations[number], *fresh = station_new(number, radio->cw_min);
    if (fresh == NULL)
        return -1;
    set_remove(radio->in_backoff, number);
    radio->stations[number] = fresh;
    station->generation++;
    station->off = true;
    int status = 0;
    Frame *lost;
    Frame **queue = station->queue;
    int first = station->queue_first, count = station->queue_count;
    int capacity = station->queue_capacity;
    station->queue = NULL; /* the callback may do anything, so the queue is taken first */
    station->queue_count = station->queue_capacity = station->queue_first = 0;
    for (int i = 0; i < count; i++) {
        lost = queue[(first + i) % capacity];
        if (status == 0)
            status = mac_report_done(radio, lost, OFF);
        Py_DECREF(lost);
    }
    PyMem_Free(queue);
    station_release(station);
    return status;
}

/* The Python type of frames */

static PyObject *frame_get_token(Frame *self, void *Py_UNUSED(closure))
{
    PyObject *token = self->token != NULL ? self->token : Py_None;
    Py_INCREF(token);
    return token;
}

static PyObject *frame_get_to(Frame *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(self->to);
}

static PyObject *frame_get_transmissions(Frame *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(self->transmissions);
}

static PyObject *frame_get_queued_us(Frame *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->queued_us);
}

static int frame_traverse(Frame *self, visitproc visit, void *arg)
{
    Py_VISIT(self->token);
    return 0;
}

static int frame_clear(Frame *self)
{
    Py_CLEAR(self->token);
    return 0;
}

static void frame_dealloc(Frame *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->token);
    station_release(self->station);
    PyObject_GC_Del(self);
}

static PyGetSetDef frame_attributes[] = {
    {"token", (getter)frame_get_token, NULL, "The value given with the frame.", NULL},
    {"to", (getter)frame_get_to, NULL, "The destination, or -1 for all.", NULL},
    {"transmissions", (getter)frame_get_transmissions, NULL, "Transmissions so far.", NULL},
    {"queued_us", (getter)frame_get_queued_us, NULL, "The instant of the send.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FrameType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "thyme.sim.native.radio_core.NativeFrame",
    .tp_doc = "A frame to be sent, with the number of its transmissions so far.",
    .tp_basicsize = sizeof(Frame),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC
#ifdef Py_TPFLAGS_DISALLOW_INSTANTIATION
                | Py_TPFLAGS_DISALLOW_INSTANTIATION
#endif
    ,
    .tp_dealloc = (destructor)frame_dealloc,
    .tp_traverse = (traverseproc)frame_traverse,
    .tp_clear = (inquiry)frame_clear,
    .tp_getset = frame_attributes,
};
