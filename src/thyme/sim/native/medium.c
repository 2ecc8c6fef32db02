/* Medium: the transmissions on the air, and the nodes that lock on to them. */

#include "radio.h"

#include <math.h>

/* Transmissions */

static Transmission *transmission_new(Radio *radio, int source, Row *row, ClearReception *clear)
{
    size_t words = radio->links.words;
    Transmission *tx = PyMem_Calloc(1, sizeof(Transmission) + 4 * words * sizeof(word));
    if (tx == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    tx->references = 1;
    tx->source = source;
    tx->row = row;
    row->references++;
    tx->clear = clear;
    tx->locked = tx->sets;
    tx->maybe_locked = tx->sets + words;
    tx->decoded = tx->sets + 2 * words;
    tx->sensing = tx->sets + 3 * words;
    return tx;
}

static void release_overlapping(Transmission *tx)
{
    Transmission **others = tx->overlapping;
    int count = tx->overlapping_count;
    tx->overlapping = NULL;
    tx->overlapping_count = tx->overlapping_capacity = 0;
    for (int i = 0; i < count; i++)
        transmission_release(others[i]);
    PyMem_Free(others);
}

void transmission_release(Transmission *tx)
{
    if (tx == NULL || --tx->references)
        return;
    release_overlapping(tx);
    row_release(tx->row);
    Py_XDECREF(tx->frame);
    PyMem_Free(tx);
}

static int add_overlapping(Transmission *tx, Transmission *other)
{
    if (array_reserve((void **)&tx->overlapping, tx->overlapping_count, &tx->overlapping_capacity,
                      sizeof(Transmission *)) < 0)
        return -1;
    other->references++;
    tx->overlapping[tx->overlapping_count++] = other;
    return 0;
}

/* The air time of a frame of this size, and the bits of its payload. */
int radio_duration(Radio *radio, int mpdu_bytes, Duration *duration)
{
    if (mpdu_bytes < radio->durations_capacity && radio->durations[mpdu_bytes].us) {
        *duration = radio->durations[mpdu_bytes];
        return 0;
    }
    PyObject *found = PyObject_CallFunction(radio->duration_us, "i", mpdu_bytes);
    if (found == NULL)
        return -1;
    duration->us = PyLong_AsLongLong(found);
    Py_DECREF(found);
    if (duration->us == -1 && PyErr_Occurred())
        return -1;
    int64_t payload_us = duration->us - radio->preamble_us - radio->signal_extension_us;
    duration->bits = (int)rint((double)payload_us * radio->bits_per_us);
    if (mpdu_bytes < radio->durations_capacity)
        radio->durations[mpdu_bytes] = *duration;
    return 0;
}

/* Headers */

/* Draws the nodes that decode a frame's header without interference. */
static void draw_headers(Radio *radio, const Transmission *tx, word *among, word *decoded)
{
    const ClearReception *clear = tx->clear;
    size_t words = radio->links.words;
    for (size_t i = 0; i < words; i++)
        decoded[i] = clear->header_sure[i] & among[i];
    for (int i = 0; i < clear->uncertain_count; i++) {
        const UncertainReceiver *receiver = &clear->uncertain[i];
        if (set_has(among, receiver->number)
            && twister_random(&radio->reception) < receiver->header)
            set_add(decoded, receiver->number);
    }
    for (int i = 0; i < clear->headers_count; i++) {
        const HeaderReceiver *receiver = &clear->headers[i];
        if (set_has(among, receiver->number)
            && twister_random(&radio->reception) < receiver->probability)
            set_add(decoded, receiver->number);
    }
}

/* Draws the nodes that lock on to a frame without interference. */
static void draw_locks(Radio *radio, Transmission *tx)
{
    size_t words = radio->links.words;
    word *free_nodes = STACK_SET(words);
    for (size_t i = 0; i < words; i++)
        free_nodes[i] = ~(radio->occupied[i] | radio->off[i]);
    draw_headers(radio, tx, free_nodes, tx->locked);
    set_unite(radio->occupied, tx->locked, words);
}

static void draw_header_effect(Radio *radio, const HeaderEffect *effect, const word *among,
                               word *lost, word *decoded)
{
    for (size_t i = 0; i < radio->links.words; i++)
        lost[i] = effect->lost[i] & among[i];
    if (!set_any(lost, radio->links.words))
        return;
    for (int i = 0; i < effect->uncertain_count; i++) {
        const HeaderReceiver *receiver = &effect->uncertain[i];
        if (set_has(among, receiver->number)
            && twister_random(&radio->reception) < receiver->probability)
            set_add(decoded, receiver->number);
    }
}

/* Draws headers of which several frames interfere. */
static int draw_headers_of_many(Radio *radio, const Row *row, Row *const *others, int count,
                                const word *among, word *lost, word *decoded)
{
    Links *links = &radio->links;
    size_t words = links->words;
    word *affected = STACK_SET(words), *uncertain = STACK_SET(words);
    set_empty(affected, words);
    for (int i = 0; i < count; i++)
        set_unite(affected, others[i]->in_reach, words);
    for (size_t i = 0; i < words; i++)
        affected[i] &= among[i];
    if (links_classify(links, row, others, count, affected, links->header_bits, 0, lost,
                       uncertain) < 0)
        return -1;
    set_unite(lost, uncertain, words);
    FOR_MEMBERS(number, uncertain, words)
    {
        double probability;
        if (links_header_probability(links, row, others, count, number, &probability) < 0)
            return -1;
        if (twister_random(&radio->reception) < probability)
            set_add(decoded, number);
    }
    return 0;
}

/* The nodes for which other frames make a header uncertain, and those of them drawn to decode it. */
static int resolve_header(Radio *radio, const Row *row, Row *const *others, int count,
                          const word *among, word *lost, word *decoded)
{
    set_empty(decoded, radio->links.words);
    if (count > 1)
        return draw_headers_of_many(radio, row, others, count, among, lost, decoded);
    HeaderEffect *effect;
    bool owned;
    if (links_header_effect(&radio->links, row, others[0], among, &effect, &owned) < 0)
        return -1;
    draw_header_effect(radio, effect, among, lost, decoded);
    if (owned)
        header_effect_release(effect);
    return 0;
}

/* Draws the nodes that lock on to a frame that starts during others. */
static int draw_locks_interfered(Radio *radio, Transmission *tx)
{
    size_t words = radio->links.words;
    word *free_nodes = STACK_SET(words), *lost = STACK_SET(words), *decoded = STACK_SET(words);
    int count = tx->overlapping_count;
    for (size_t i = 0; i < words; i++)
        free_nodes[i] = tx->row->detecting[i] & ~(radio->occupied[i] | radio->off[i]);
    if (!set_any(free_nodes, words))
        return 0;
    Row **rows = PyMem_Malloc((size_t)count * sizeof(Row *));
    if (rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < count; i++)
        rows[i] = tx->overlapping[i]->row;
    int status = resolve_header(radio, tx->row, rows, count, free_nodes, lost, decoded);
    PyMem_Free(rows);
    if (status < 0)
        return -1;
    set_subtract(free_nodes, lost, words);
    draw_headers(radio, tx, free_nodes, tx->locked);
    set_unite(tx->locked, decoded, words);
    set_unite(radio->occupied, tx->locked, words);
    return 0;
}

/* Applies a frame that starts during the preamble of another: some nodes lock on to the stronger
   one, some lose the header. */
static int interfere_with_header(Radio *radio, Transmission *other, Transmission *tx,
                                 int64_t age_us)
{
    size_t words = radio->links.words;
    word *lost = STACK_SET(words), *sure_lost = STACK_SET(words), *decoded = STACK_SET(words);
    word *among = STACK_SET(words);
    set_empty(lost, words);
    if (age_us <= radio->preamble_detection_us)
        links_stronger_at(&radio->links, tx->row, other->row, other->locked, lost);
    for (size_t i = 0; i < words; i++)
        among[i] = other->locked[i] & ~lost[i];
    if (resolve_header(radio, other->row, &tx->row, 1, among, sure_lost, decoded) < 0)
        return -1;
    for (size_t i = 0; i < words; i++) {
        lost[i] |= sure_lost[i] & ~decoded[i];
        other->locked[i] &= ~lost[i];
        radio->occupied[i] &= ~lost[i];
    }
    return 0;
}

/* Start and end */

/* Registers a new transmission and those on the air as interference of each other, where some node
   is in reach of both. */
static int overlap(Radio *radio, Transmission *tx)
{
    const Row *row = tx->row;
    size_t words = radio->links.words;
    for (int i = 0; i < radio->on_air_count; i++) {
        Transmission *other = radio->on_air[i];
        const Row *other_row = other->row;
        if (!sets_meet(row->in_reach_or_self, other_row->in_reach_or_self, words))
            continue;
        if (other->locks_deferred) {
            other->locks_deferred = false;
            draw_locks(radio, other);
        }
        set_remove(other->locked, tx->source);
        if (sets_meet(other_row->in_reach_or_self, row->detecting, words)
            && add_overlapping(tx, other) < 0)
            return -1;
        if (!sets_meet(row->in_reach, other_row->detecting, words))
            continue;
        if (add_overlapping(other, tx) < 0)
            return -1;
        int64_t age_us = tx->start_us - other->start_us;
        if (age_us < radio->preamble_us && set_any(other->locked, words)
            && interfere_with_header(radio, other, tx, age_us) < 0)
            return -1;
    }
    return 0;
}

static int begin(Radio *radio, Transmission *tx)
{
    size_t words = radio->links.words;
    if (overlap(radio, tx) < 0)
        return -1;
    set_add(radio->occupied, tx->source);
    set_copy(tx->sensing, tx->row->sensing, words);
    set_add(tx->sensing, tx->source);
    if (!radio->can_defer_locks)
        for (size_t i = 0; i < words; i++)
            tx->sensing[i] |= tx->row->detecting[i] & ~(radio->occupied[i] | radio->off[i]);
    if (tx->overlapping_count) {
        if (draw_locks_interfered(radio, tx) < 0)
            return -1;
    } else if (radio->can_defer_locks) {
        tx->locks_deferred = true;
    } else {
        draw_locks(radio, tx);
    }
    if (array_reserve((void **)&radio->on_air, radio->on_air_count, &radio->on_air_capacity,
                      sizeof(Transmission *)) < 0)
        return -1;
    set_unite(radio->busy, tx->sensing, words);
    tx->references++;
    radio->on_air[radio->on_air_count++] = tx;
    return 0;
}

/* Starts a transmission; the caller owns a reference to it. */
Transmission *medium_start(Radio *radio, int source, int mpdu_bytes, Frame *frame)
{
    Duration duration;
    Row *row = links_row(&radio->links, source);
    if (row == NULL || radio_duration(radio, mpdu_bytes, &duration) < 0)
        return NULL;
    ClearReception *clear = links_clear_reception(&radio->links, row, duration.bits);
    Transmission *tx = clear == NULL ? NULL : transmission_new(radio, source, row, clear);
    if (tx == NULL)
        return NULL;
    Py_INCREF(frame);
    tx->frame = frame;
    tx->start_us = radio->kernel->now_us;
    tx->end_us = tx->start_us + duration.us;
    tx->payload_start_us = tx->start_us + radio->preamble_us;
    tx->payload_bits = duration.bits;
    if (begin(radio, tx) < 0) {
        transmission_release(tx);
        return NULL;
    }
    return tx;
}

static void sense_again(Radio *radio)
{
    set_empty(radio->busy, radio->links.words);
    for (int i = 0; i < radio->on_air_count; i++)
        set_unite(radio->busy, radio->on_air[i]->sensing, radio->links.words);
}

/* Ends the header: nodes that lost it no longer sense the frame, if it is too weak for carrier
   sense. `idle` are the nodes for which the medium becomes idle. */
void medium_end_header(Radio *radio, Transmission *tx, word *idle)
{
    size_t words = radio->links.words;
    word *known = STACK_SET(words);
    for (size_t i = 0; i < words; i++)
        known[i] = tx->row->sensing[i] | tx->locked[i];
    set_add(known, tx->source);
    for (size_t i = 0; i < words; i++) {
        idle[i] = tx->sensing[i] & ~known[i];
        tx->sensing[i] &= known[i];
    }
    sense_again(radio);
    set_subtract(idle, radio->busy, words);
}

/* Draws lock-on and reception of a frame without interference. */
static void receive_clear(Radio *radio, Transmission *tx)
{
    ClearReception *clear = tx->clear;
    size_t words = radio->links.words;
    set_copy(tx->locked, clear->header_sure, words);
    set_copy(tx->decoded, clear->sure, words);
    for (int i = 0; i < clear->uncertain_count; i++) {
        UncertainReceiver *receiver = &clear->uncertain[i];
        double draw = twister_random(&radio->reception);
        if (receiver->payload_bits != tx->payload_bits) {
            receiver->payload_bits = tx->payload_bits;
            receiver->payload = exp(tx->payload_bits * receiver->log_bit);
        }
        if (draw < receiver->header) {
            set_add(tx->locked, receiver->number);
            if (draw < receiver->header * receiver->payload)
                set_add(tx->decoded, receiver->number);
        }
    }
    for (size_t i = 0; i < words; i++) {
        tx->locked[i] &= ~radio->off[i];
        tx->maybe_locked[i] = clear->header_only[i] & ~radio->off[i];
        tx->decoded[i] &= ~radio->off[i];
    }
}

/* Ends a transmission; `tx->decoded` are the nodes that decoded it. */
int medium_end(Radio *radio, Transmission *tx)
{
    size_t words = radio->links.words;
    int place = 0, status = 0;
    while (place < radio->on_air_count && radio->on_air[place] != tx)
        place++;
    if (place == radio->on_air_count) {
        PyErr_SetString(PyExc_RuntimeError, "the transmission is not on the air");
        return -1;
    }
    radio->on_air_count--;
    memmove(&radio->on_air[place], &radio->on_air[place + 1],
            (size_t)(radio->on_air_count - place) * sizeof(Transmission *));
    tx->references--; /* the caller has another reference */
    sense_again(radio);
    if (tx->locks_deferred) {
        set_toggle(radio->occupied, tx->source);
        receive_clear(radio, tx);
        return 0;
    }
    for (size_t i = 0; i < words; i++) {
        radio->occupied[i] &= ~tx->locked[i];
        tx->locked[i] &= ~radio->off[i];
    }
    set_remove(radio->occupied, tx->source);
    if (set_any(tx->locked, words))
        status = receive_interfered(radio, tx, tx->overlapping, tx->overlapping_count);
    release_overlapping(tx);
    return status;
}

/* Whether a node was locked on to a transmission that has ended. */
bool medium_was_locked(Radio *radio, Transmission *tx, int number)
{
    if (set_has(tx->maybe_locked, number)) {
        double probability = 0.0;
        set_remove(tx->maybe_locked, number);
        for (int i = 0; i < tx->clear->headers_count; i++)
            if (tx->clear->headers[i].number == number)
                probability = tx->clear->headers[i].probability;
        if (twister_random(&radio->reception) < probability)
            set_add(tx->locked, number);
    }
    return set_has(tx->locked, number);
}
