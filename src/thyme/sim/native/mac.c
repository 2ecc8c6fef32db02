/* MAC: access to the medium by the 802.11 distributed coordination function (DCF). */

#include "radio.h"

#define CW_MAX 1023 /* the maximum contention window */

typedef int (*FrameAction)(Radio *radio, Frame *frame);

static int start_transmission(Radio *radio, int source, int size, FrameKind kind, Frame *frame,
                              const EventType *end);
static int on_missing_response(Radio *radio, Station *station);

/* Events */

static void release_frame(void *argument)
{
    Py_DECREF((PyObject *)argument);
}

static int traverse_frame(void *argument, visitproc visit, void *arg)
{
    return visit((PyObject *)argument, arg);
}

static void release_station(void *argument)
{
    station_release(argument);
}

static void release_transmission(void *argument)
{
    transmission_release(argument);
}

static int traverse_nothing(void *Py_UNUSED(argument), visitproc Py_UNUSED(visit),
                            void *Py_UNUSED(arg))
{
    return 0; /* the radio visits the frames of transmissions and stations */
}

static int run_frame_event(PyObject *owner, void *argument, FrameAction action)
{
    int status = action((Radio *)owner, argument);
    Py_DECREF((PyObject *)argument);
    return status;
}

static int run_backoff_end(PyObject *owner, void *argument, int64_t number)
{
    int status = mac_on_backoff_end((Radio *)owner, argument, number);
    station_release(argument);
    return status;
}

static int run_missing_response(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    int status = on_missing_response((Radio *)owner, argument);
    station_release(argument);
    return status;
}

const EventType backoff_end_event = {run_backoff_end, release_station, traverse_nothing};
static const EventType missing_response_event = {run_missing_response, release_station,
                                                 traverse_nothing};

static int schedule_frame(Radio *radio, int64_t in_us, const EventType *type, Frame *frame)
{
    Py_INCREF(frame);
    return kernel_schedule(radio->kernel, radio->kernel->now_us + in_us, type, (PyObject *)radio,
                           frame, 0);
}

static int schedule_missing_response(Radio *radio, Station *station)
{
    station->references++;
    return kernel_schedule(radio->kernel, radio->kernel->now_us + radio->ack_timeout_us,
                           &missing_response_event, (PyObject *)radio, station, 0);
}

/* Ends of frames */

static int finish_frame(Radio *radio, Station *station, Outcome outcome)
{
    if (station->off)
        return 0;
    Frame *frame = station_pop(station);
    if (frame == NULL) {
        PyErr_SetString(PyExc_IndexError, "the queue of a sending station is empty");
        return -1;
    }
    if (outcome == SENT) {
        station->failures = 0;
        station->cw = radio->cw_min;
    }
    int status = mac_start_backoff(radio, station, radio->kernel->now_us + radio->difs_us);
    if (status == 0)
        status = mac_report_done(radio, frame, outcome);
    Py_DECREF(frame);
    return status;
}

/* Grows the contention window after a failure; failures count for the station. */
static void grow_cw(Radio *radio, Station *station)
{
    if (station->failures < radio->transmissions_max) {
        station->failures++;
        station->cw = 2 * station->cw + 1 < CW_MAX ? 2 * station->cw + 1 : CW_MAX;
    } else {
        station->failures = 0;
        station->cw = radio->cw_min;
    }
}

/* Handles a missing CTS or ACK: sends again with a larger window, or gives the frame up. */
static int on_missing_response(Radio *radio, Station *station)
{
    if (station->off)
        return 0;
    grow_cw(radio, station);
    if (!station->queue_count) {
        PyErr_SetString(PyExc_IndexError, "the queue of a sending station is empty");
        return -1;
    }
    if (station->queue[station->queue_first]->transmissions >= radio->transmissions_max)
        return finish_frame(radio, station, EXCEEDED);
    return mac_start_backoff(radio, station, radio->kernel->now_us + radio->difs_us);
}

/* Ends a transmission; the caller owns `frame`, which is taken from it. */
static int end_transmission(Radio *radio, Transmission *tx, Frame **frame)
{
    *frame = tx->frame;
    tx->frame = NULL;
    if (medium_end(radio, tx) < 0)
        return -1;
    int64_t duration_us = tx->end_us - tx->start_us;
    size_t words = radio->links.words;
    word *receiving = STACK_SET(words);
    for (size_t i = 0; i < words; i++)
        receiving[i] = tx->locked[i] | (tx->maybe_locked[i] & tx->clear->header_likely[i]);
    FOR_MEMBERS(number, receiving, words)
    radio->counters.receiving_us[number] += duration_us;
    return 0;
}

static int report_received(Radio *radio, Frame *frame, const word *receivers)
{
    PyObject *set = set_to_int(receivers, radio->links.words);
    PyObject *now_us = PyLong_FromLongLong(radio->kernel->now_us), *result = NULL;
    if (set != NULL && now_us != NULL) {
        PyObject *args[] = {NULL, (PyObject *)frame, set, now_us};
        result = PyObject_Vectorcall(radio->on_received, args + 1,
                                     3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    Py_XDECREF(set);
    Py_XDECREF(now_us);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Data and acknowledgements */

static int on_ack_end(Radio *radio, Transmission *tx, Frame *frame)
{
    Station *station = frame->station;
    if (mac_resume_backoff(radio, tx) < 0)
        return -1;
    if (set_has(tx->decoded, station->number))
        return finish_frame(radio, station, SENT);
    return on_missing_response(radio, station);
}

static int run_ack_end(PyObject *owner, void *argument, int64_t number);
static int run_data_end(PyObject *owner, void *argument, int64_t number);
static int run_rts_end(PyObject *owner, void *argument, int64_t number);
static int run_cts_end(PyObject *owner, void *argument, int64_t number);

static const EventType ack_end_event = {run_ack_end, release_transmission, traverse_nothing};
static const EventType data_end_event = {run_data_end, release_transmission, traverse_nothing};
static const EventType rts_end_event = {run_rts_end, release_transmission, traverse_nothing};
static const EventType cts_end_event = {run_cts_end, release_transmission, traverse_nothing};

static int send_ack(Radio *radio, Frame *frame)
{
    if (set_has(radio->off, frame->to))
        return on_missing_response(radio, frame->station);
    return start_transmission(radio, frame->to, radio->ack_bytes, KIND_ACK, frame, &ack_end_event);
}

static int run_send_ack(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    return run_frame_event(owner, argument, send_ack);
}

static const EventType send_ack_event = {run_send_ack, release_frame, traverse_frame};

static int on_data_end(Radio *radio, Transmission *tx, Frame *frame)
{
    if (frame->to == BROADCAST) {
        if (mac_resume_backoff(radio, tx) < 0 || report_received(radio, frame, tx->decoded) < 0)
            return -1;
        return finish_frame(radio, frame->station, SENT);
    }
    if (mac_set_nav(radio, radio->sifs_us + radio->ack_us, tx->decoded, frame->to) < 0
        || mac_resume_backoff(radio, tx) < 0)
        return -1;
    if (!set_has(tx->decoded, frame->to))
        return schedule_missing_response(radio, frame->station);
    word *receiver = STACK_SET(radio->links.words);
    set_empty(receiver, radio->links.words);
    set_add(receiver, frame->to);
    if (report_received(radio, frame, receiver) < 0)
        return -1;
    return schedule_frame(radio, radio->sifs_us, &send_ack_event, frame);
}

/* RTS and CTS */

static int send_unicast(Radio *radio, Frame *frame)
{
    return start_transmission(radio, frame->station->number, frame->bytes, KIND_UNICAST, frame,
                              &data_end_event);
}

static int run_send_unicast(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    return run_frame_event(owner, argument, send_unicast);
}

static const EventType send_unicast_event = {run_send_unicast, release_frame, traverse_frame};

static int send_cts(Radio *radio, Frame *frame)
{
    if (set_has(radio->off, frame->to))
        return on_missing_response(radio, frame->station);
    return start_transmission(radio, frame->to, radio->cts_bytes, KIND_CTS, frame, &cts_end_event);
}

static int run_send_cts(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    return run_frame_event(owner, argument, send_cts);
}

static const EventType send_cts_event = {run_send_cts, release_frame, traverse_frame};

/* Ends an RTS: the receiver answers with a CTS if it decoded it and its NAV is 0. */
static int on_rts_end(Radio *radio, Transmission *tx, Frame *frame)
{
    Duration data;
    if (radio_duration(radio, frame->bytes, &data) < 0)
        return -1;
    int64_t rest_us = 3 * radio->sifs_us + radio->cts_us + data.us + radio->ack_us;
    if (mac_set_nav(radio, rest_us, tx->decoded, frame->to) < 0
        || mac_resume_backoff(radio, tx) < 0)
        return -1;
    if (set_has(tx->decoded, frame->to) && !mac_nav_until_us(radio, frame->to))
        return schedule_frame(radio, radio->sifs_us, &send_cts_event, frame);
    return schedule_missing_response(radio, frame->station);
}

static int on_cts_end(Radio *radio, Transmission *tx, Frame *frame)
{
    Station *station = frame->station;
    Duration data;
    if (radio_duration(radio, frame->bytes, &data) < 0)
        return -1;
    int64_t rest_us = 2 * radio->sifs_us + data.us + radio->ack_us;
    if (mac_set_nav(radio, rest_us, tx->decoded, station->number) < 0
        || mac_resume_backoff(radio, tx) < 0)
        return -1;
    if (set_has(tx->decoded, station->number) && !station->off)
        return schedule_frame(radio, radio->sifs_us, &send_unicast_event, frame);
    return on_missing_response(radio, station);
}

static int run_end(PyObject *owner, void *argument,
                   int (*action)(Radio *radio, Transmission *tx, Frame *frame))
{
    Radio *radio = (Radio *)owner;
    Transmission *tx = argument;
    Frame *frame;
    int status = end_transmission(radio, tx, &frame);
    if (status == 0)
        status = action(radio, tx, frame);
    Py_DECREF(frame);
    transmission_release(tx);
    return status;
}

static int run_ack_end(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    return run_end(owner, argument, on_ack_end);
}

static int run_data_end(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    return run_end(owner, argument, on_data_end);
}

static int run_rts_end(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    return run_end(owner, argument, on_rts_end);
}

static int run_cts_end(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    return run_end(owner, argument, on_cts_end);
}

/* Starts of frames */

static int run_header_end(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    Radio *radio = (Radio *)owner;
    Transmission *tx = argument;
    size_t words = radio->links.words;
    word *idle = STACK_SET(words);
    int status = 0;
    medium_end_header(radio, tx, idle);
    for (size_t i = 0; i < words; i++)
        idle[i] &= radio->in_backoff[i];
    FOR_MEMBERS(number, idle, words)
    {
        Station *station = radio->stations[number];
        if (status == 0 && station->countdown_from_us == NEVER)
            status = mac_start_countdown(radio, station,
                                         mac_countdown_from_us(radio, tx, number));
    }
    transmission_release(tx);
    return status;
}

static const EventType header_end_event = {run_header_end, release_transmission,
                                           traverse_nothing};

static int start_transmission(Radio *radio, int source, int size, FrameKind kind, Frame *frame,
                              const EventType *end)
{
    size_t words = radio->links.words;
    word *waiting = STACK_SET(words);
    Transmission *tx = medium_start(radio, source, size, frame);
    if (tx == NULL)
        return -1;
    Counters *counters = &radio->counters;
    counters->frames[source]++;
    counters->bytes[source] += size;
    counters->sending_us[source] += tx->end_us - tx->start_us;
    counters->by_kind[kind]++;
    for (size_t i = 0; i < words; i++)
        waiting[i] = tx->sensing[i] & radio->in_backoff[i];
    mac_freeze_backoff(radio, waiting);
    if (!radio->can_defer_locks) {
        tx->references++;
        if (kernel_schedule(radio->kernel, tx->payload_start_us, &header_end_event,
                            (PyObject *)radio, tx, 0) < 0) {
            transmission_release(tx);
            return -1;
        }
    }
    return kernel_schedule(radio->kernel, tx->end_us, end, (PyObject *)radio, tx, 0);
}

/* Drops the stale frames at the head of the queue. */
static int drop_stale_frames(Radio *radio, Station *station, int64_t oldest_us)
{
    while (station->queue_count && station->queue[station->queue_first]->queued_us < oldest_us) {
        Frame *frame = station_pop(station);
        int status = mac_report_done(radio, frame, STALE);
        Py_DECREF(frame);
        if (status < 0)
            return -1;
    }
    return 0;
}

/* Sends a station's first frame at the end of its back-off, unless the event is stale. */
int mac_on_backoff_end(Radio *radio, Station *station, int64_t generation)
{
    if (generation != station->generation || station->transmit_at_us == NEVER)
        return 0;
    station->transmit_at_us = NEVER;
    station->sending = true; /* so that a send meanwhile does not contend for the medium */
    if (drop_stale_frames(radio, station, radio->kernel->now_us - radio->lifetime_us) < 0)
        return -1;
    if (!station->queue_count) {
        station->sending = false;
        return 0;
    }
    Frame *frame = station->queue[station->queue_first];
    set_remove(radio->in_backoff, station->number);
    frame->transmissions++;
    if (frame->transmissions > 1)
        radio->counters.retransmissions[station->number]++;
    if (frame->to == BROADCAST)
        return start_transmission(radio, station->number, frame->bytes, KIND_BROADCAST, frame,
                                  &data_end_event);
    if (frame->bytes > radio->rts_over_bytes)
        return start_transmission(radio, station->number, radio->rts_bytes, KIND_RTS, frame,
                                  &rts_end_event);
    return send_unicast(radio, frame);
}
