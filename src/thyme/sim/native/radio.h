/* Radio: the state of the medium and of the MACs of all stations.

   `radio/medium.py` (the medium) and `radio/mac.py` (the MAC) are the twin, which explains the
   rules. Both draw the same random numbers in the same order and schedule the same events.
   Clauses: S1, S2, S4, S5. */

#ifndef THYME_RADIO_H
#define THYME_RADIO_H

#include "kernel.h"
#include "links.h"
#include "twister.h"

#define BROADCAST (-1)
#define NEVER INT64_MIN /* the twin's None */

typedef struct Frame Frame;
typedef struct Transmission Transmission;

/* The MAC state of one node. */
typedef struct {
    int references;
    int number;
    int cw, failures;
    int64_t backoff_slots;
    int64_t countdown_from_us, transmit_at_us;
    int64_t generation; /* of the valid transmit event; others are stale */
    bool off;           /* switched off: a new station has replaced this one */
    bool sending;
    Frame **queue; /* a ring */
    int queue_first, queue_count, queue_capacity;
} Station;

/* A frame to be sent; a Python object, since the layer above receives it. */
struct Frame {
    PyObject_HEAD
    Station *station;
    int to;
    int bytes;
    int transmissions;
    int64_t queued_us;
    PyObject *token;
};

extern PyTypeObject FrameType;

/* One transmission: a frame on the air, and its receivers. */
struct Transmission {
    int references;
    int source;
    Row *row;
    ClearReception *clear; /* belongs to the row */
    int64_t start_us, end_us, payload_start_us;
    int payload_bits;
    bool locks_deferred;
    Frame *frame; /* NULL once the transmission has ended */
    Transmission **overlapping;
    int overlapping_count, overlapping_capacity;
    word *locked, *maybe_locked, *decoded, *sensing;
    word sets[];
};

typedef enum { KIND_BROADCAST, KIND_UNICAST, KIND_ACK, KIND_RTS, KIND_CTS, KINDS } FrameKind;

typedef enum { SENT, EXCEEDED, FULL, STALE, OFF, OUTCOMES } Outcome;

extern PyObject *outcome_names[OUTCOMES];

/* A queue of pointers or sets of which the first are removed. */
typedef struct {
    Transmission **items;
    int first, count, capacity;
} EndedQueue;

typedef struct {
    int64_t *until_us;
    word *stations;
    int first, count, capacity;
} NavQueue;

/* The stations that resumed their back-off together, the first to send last. */
typedef struct {
    int64_t at_us, generation;
    Station *station;
} GroupMember;

typedef struct {
    int count;
    GroupMember members[];
} BackoffGroup;

typedef struct {
    int64_t *frames, *bytes, *sending_us, *receiving_us, *retransmissions; /* by node */
    int64_t by_kind[KINDS];
} Counters;

typedef struct {
    int64_t us; /* 0: not known */
    int bits;
} Duration;

typedef struct {
    PyObject_HEAD
    Kernel *kernel;
    PyObject *duration_us; /* function: the air time of a frame */
    PyObject *on_received, *on_done;
    Links links;
    Twister reception, backoff;
    double bits_per_us;
    int64_t slot_us, difs_us, sifs_us, eifs_us, ack_us, cts_us, ack_timeout_us;
    int64_t preamble_us, preamble_detection_us, signal_extension_us, lifetime_us;
    int cw_min, transmissions_max, queue_max, rts_over_bytes, overhead_bytes;
    int ack_bytes, rts_bytes, cts_bytes;
    int can_defer_locks;
    Duration *durations; /* by frame size */
    int durations_capacity;
    Station **stations;
    Transmission **on_air;
    int on_air_count, on_air_capacity;
    EndedQueue ended;
    NavQueue nav;
    word *occupied, *off, *busy, *in_backoff;
    Counters counters;
} Radio;

/* The medium */

Transmission *medium_start(Radio *radio, int source, int mpdu_bytes, Frame *frame);
int medium_end(Radio *radio, Transmission *tx);
void medium_end_header(Radio *radio, Transmission *tx, word *idle);
bool medium_was_locked(Radio *radio, Transmission *tx, int number);
int radio_duration(Radio *radio, int mpdu_bytes, Duration *duration);
void transmission_release(Transmission *tx);
int receive_interfered(Radio *radio, Transmission *tx, Transmission **others, int count);

/* Back-off */

int mac_contend(Radio *radio, Station *station);
int mac_start_backoff(Radio *radio, Station *station, int64_t from_us);
int mac_start_countdown(Radio *radio, Station *station, int64_t from_us);
void mac_freeze_backoff(Radio *radio, const word *waiting);
int mac_resume_backoff(Radio *radio, Transmission *tx);
int64_t mac_nav_until_us(Radio *radio, int number);
int64_t mac_countdown_from_us(Radio *radio, Transmission *tx, int number);
int mac_set_nav(Radio *radio, int64_t for_us, const word *stations, int except);

/* Frames */

Station *station_new(int number, int cw);
void station_release(Station *station);
void station_clear_queue(Station *station);
Frame *station_pop(Station *station);
int mac_send(Radio *radio, Station *station, int to, int bytes, PyObject *token);
int mac_set_power(Radio *radio, int number, bool on);
int mac_on_backoff_end(Radio *radio, Station *station, int64_t generation);
int mac_report_done(Radio *radio, Frame *frame, Outcome outcome);
PyObject *set_to_int(const word *set, size_t words);

extern const EventType backoff_end_event, group_backoff_end_event;

#endif
