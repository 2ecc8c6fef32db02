/* Kernel: the discrete-event scheduler. Events of one instant run in the order in which they were
   scheduled. */

#include "kernel.h"

#define EVENTS_PER_SIGNAL_CHECK 65536

static inline int is_before(const Event *one, const Event *other)
{
    return one->at_us != other->at_us ? one->at_us < other->at_us
                                      : one->sequence < other->sequence;
}

static void release_event(Event *event)
{
    if (event->type == NULL)
        Py_XDECREF((PyObject *)event->argument);
    else
        event->type->release(event->argument);
    Py_XDECREF(event->owner);
}

static int push_event(Kernel *kernel, Event event)
{
    if (kernel->count == kernel->capacity) {
        Py_ssize_t capacity = kernel->capacity ? 2 * kernel->capacity : 64;
        Event *queue = PyMem_Realloc(kernel->queue, (size_t)capacity * sizeof(Event));
        if (queue == NULL) {
            release_event(&event);
            PyErr_NoMemory();
            return -1;
        }
        kernel->queue = queue;
        kernel->capacity = capacity;
    }
    event.sequence = kernel->sequence++;
    Event *queue = kernel->queue;
    Py_ssize_t place = kernel->count++;
    while (place > 0) {
        Py_ssize_t parent = (place - 1) / 2;
        if (!is_before(&event, &queue[parent]))
            break;
        queue[place] = queue[parent];
        place = parent;
    }
    queue[place] = event;
    return 0;
}

static Event pop_event(Kernel *kernel)
{
    Event *queue = kernel->queue;
    Event first = queue[0], last = queue[--kernel->count];
    Py_ssize_t place = 0, count = kernel->count;
    for (;;) {
        Py_ssize_t child = 2 * place + 1;
        if (child >= count)
            break;
        if (child + 1 < count && is_before(&queue[child + 1], &queue[child]))
            child++;
        if (!is_before(&queue[child], &last))
            break;
        queue[place] = queue[child];
        place = child;
    }
    if (count)
        queue[place] = last;
    return first;
}

int kernel_schedule(Kernel *kernel, int64_t at_us, const EventType *type, PyObject *owner,
                    void *argument, int64_t number)
{
    Py_INCREF(owner);
    Event event = {at_us, 0, type, owner, argument, number};
    return push_event(kernel, event);
}

static int run_event(Event *event)
{
    int status = 0;
    if (event->type == NULL) {
        PyObject *argument = event->argument;
        PyObject *result = PyObject_CallOneArg(event->owner, argument);
        Py_DECREF(argument);
        status = result == NULL ? -1 : 0;
        Py_XDECREF(result);
    } else {
        status = event->type->run(event->owner, event->argument, event->number);
    }
    Py_DECREF(event->owner);
    return status;
}

static PyObject *kernel_run(Kernel *self, PyObject *until)
{
    long long until_us = PyLong_AsLongLong(until);
    if (until_us == -1 && PyErr_Occurred())
        return NULL;
    int64_t events = 0;
    while (self->count && self->queue[0].at_us <= until_us) {
        Event event = pop_event(self);
        self->now_us = event.at_us;
        events++;
        if (run_event(&event) < 0)
            return NULL;
        if (events % EVENTS_PER_SIGNAL_CHECK == 0 && PyErr_CheckSignals() < 0)
            return NULL;
    }
    self->events_processed += events;
    if (self->now_us < until_us)
        self->now_us = until_us;
    Py_RETURN_NONE;
}

static PyObject *kernel_schedule_method(Kernel *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > 3) {
        PyErr_SetString(PyExc_TypeError, "schedule takes an instant, a function and an argument");
        return NULL;
    }
    long long at_us = PyLong_AsLongLong(args[0]);
    if (at_us == -1 && PyErr_Occurred())
        return NULL;
    PyObject *argument = count == 3 ? args[2] : Py_None;
    Py_INCREF(argument);
    if (kernel_schedule(self, at_us, NULL, args[1], argument, 0) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_next_event_us(Kernel *self, PyObject *Py_UNUSED(ignored))
{
    if (!self->count)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(self->queue[0].at_us);
}

static PyObject *kernel_get_now_us(Kernel *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->now_us);
}

static PyObject *kernel_get_events_processed(Kernel *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->events_processed);
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"start_us", NULL};
    long long start_us = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|L", names, &start_us))
        return NULL;
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->now_us = start_us;
    return (PyObject *)self;
}

static int kernel_traverse(Kernel *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Event *event = &self->queue[i];
        Py_VISIT(event->owner);
        if (event->type == NULL) {
            Py_VISIT((PyObject *)event->argument);
        } else {
            int status = event->type->traverse(event->argument, visit, arg);
            if (status)
                return status;
        }
    }
    return 0;
}

static int kernel_clear(Kernel *self)
{
    Event *queue = self->queue;
    Py_ssize_t count = self->count;
    self->queue = NULL;
    self->count = self->capacity = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        release_event(&queue[i]);
    PyMem_Free(queue);
    return 0;
}

static void kernel_dealloc(Kernel *self)
{
    PyObject_GC_UnTrack(self);
    kernel_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef kernel_methods[] = {
    {"schedule", (PyCFunction)(void (*)(void))kernel_schedule_method, METH_FASTCALL,
     "Schedules an event for an instant, which must not be in the past."},
    {"next_event_us", (PyCFunction)kernel_next_event_us, METH_NOARGS,
     "The instant of the next event; None if none is scheduled."},
    {"run", (PyCFunction)kernel_run, METH_O,
     "Runs all events up to and including an instant, and sets the clock to it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef kernel_attributes[] = {
    {"now_us", (getter)kernel_get_now_us, NULL, "The current instant.", NULL},
    {"events_processed", (getter)kernel_get_events_processed, NULL, "Events run so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject KernelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "thyme.sim.native.radio_core.NativeKernel",
    .tp_doc = "A virtual clock and a queue of scheduled events.",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = kernel_new,
    .tp_dealloc = (destructor)kernel_dealloc,
    .tp_traverse = (traverseproc)kernel_traverse,
    .tp_clear = (inquiry)kernel_clear,
    .tp_methods = kernel_methods,
    .tp_getset = kernel_attributes,
};
