/* Kernel: the discrete-event scheduler; `engine/plain_kernel.py` is its twin.

   An event is a Python function with one argument, or an event of the radio with C functions. */

#ifndef THYME_KERNEL_H
#define THYME_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* The functions of one kind of C events. `run` and `release` take `argument` over. */
typedef struct {
    int (*run)(PyObject *owner, void *argument, int64_t number);
    void (*release)(void *argument);
    int (*traverse)(void *argument, visitproc visit, void *arg);
} EventType;

typedef struct {
    int64_t at_us;
    uint64_t sequence;
    const EventType *type; /* NULL for a Python event: `owner` is called with `argument` */
    PyObject *owner;
    void *argument;
    int64_t number;
} Event;

typedef struct {
    PyObject_HEAD
    int64_t now_us;
    int64_t events_processed;
    uint64_t sequence;
    Event *queue; /* a binary heap */
    Py_ssize_t count, capacity;
} Kernel;

extern PyTypeObject KernelType;

/* Schedules an event; takes `argument` over, also if it fails. */
int kernel_schedule(Kernel *kernel, int64_t at_us, const EventType *type, PyObject *owner,
                    void *argument, int64_t number);

#endif
