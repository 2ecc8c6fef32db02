/* Payload: the locked-on nodes that decode a frame despite interference. */

#include "radio.h"

#include <math.h>

static int64_t later(int64_t one_us, int64_t other_us)
{
    return one_us > other_us ? one_us : other_us;
}

static int64_t earlier(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? one_us : other_us;
}

static int64_t overlapping_bits(const Radio *radio, const Transmission *tx,
                                const Transmission *other)
{
    int64_t start_us = later(tx->payload_start_us, other->start_us);
    int64_t end_us = earlier(tx->end_us - radio->signal_extension_us, other->end_us);
    return (int64_t)rint((double)(end_us - start_us) * radio->bits_per_us);
}

/* Inserts an instant into an ascending list without repetition. */
static int insert_instant(int64_t *instants, int count, int64_t at_us)
{
    int place = count;
    while (place > 0 && instants[place - 1] > at_us)
        place--;
    if (place > 0 && instants[place - 1] == at_us)
        return count;
    memmove(&instants[place + 1], &instants[place], (size_t)(count - place) * sizeof(int64_t));
    instants[place] = at_us;
    return count + 1;
}

/* The boundaries of the chunks of a payload, in each of which the interferers stay the same. */
static int find_boundaries(const Radio *radio, const Transmission *tx, Transmission **others,
                           int count, int64_t *instants)
{
    int64_t first_us = tx->payload_start_us, last_us = tx->end_us - radio->signal_extension_us;
    int found = insert_instant(instants, 0, first_us);
    found = insert_instant(instants, found, last_us);
    for (int i = 0; i < count; i++) {
        if (first_us < others[i]->start_us && others[i]->start_us < last_us)
            found = insert_instant(instants, found, others[i]->start_us);
        if (first_us < others[i]->end_us && others[i]->end_us < last_us)
            found = insert_instant(instants, found, others[i]->end_us);
    }
    return found;
}

/* The probability that a receiver decodes the payload, from the SINR in each chunk. */
static int payload_probability(Radio *radio, const Transmission *tx, Transmission **others,
                               int count, const int64_t *instants, int boundaries, int number,
                               double *probability)
{
    Links *links = &radio->links;
    double power_mw = row_power_mw(tx->row, number), sum_of_logs = 0.0;
    for (int i = 0; i + 1 < boundaries; i++) {
        int64_t start_us = instants[i], end_us = instants[i + 1];
        double interference_mw = links->noise_mw, log;
        for (int k = 0; k < count; k++)
            if (others[k]->start_us < end_us && others[k]->end_us > start_us)
                interference_mw += row_power_mw(others[k]->row, number);
        if (links_payload_log(links, power_mw, interference_mw, &log) < 0)
            return -1;
        sum_of_logs += (double)(end_us - start_us) * radio->bits_per_us * log;
    }
    *probability = exp(sum_of_logs);
    return 0;
}

/* Draws the reception of uncertain nodes. */
static int draw_exact(Radio *radio, const Transmission *tx, Transmission **others, int count,
                      const word *receivers, word *decoded)
{
    int64_t *instants = PyMem_Malloc((size_t)(2 * count + 3) * sizeof(int64_t));
    if (instants == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int boundaries = find_boundaries(radio, tx, others, count, instants), status = 0;
    FOR_MEMBERS(number, receivers, radio->links.words)
    {
        double probability = 0.0;
        if (status < 0)
            break;
        status = payload_probability(radio, tx, others, count, instants, boundaries, number,
                                     &probability);
        if (status == 0 && twister_random(&radio->reception) < probability)
            set_add(decoded, number);
    }
    PyMem_Free(instants);
    return status;
}

/* The nodes for which other frames make a payload uncertain, and those of them drawn to decode it.
   `others` is reordered: the interferers first. */
static int resolve_payload(Radio *radio, Transmission *tx, Transmission **others, Row **rows,
                           int count, word *among, word *lost, word *won)
{
    Links *links = &radio->links;
    size_t words = links->words;
    word *affected = STACK_SET(words), *uncertain = STACK_SET(words);
    int64_t bits_max = 0, bits_min = 0;
    int found = 0;
    set_empty(affected, words);
    for (int i = 0; i < count; i++) {
        const word *reach = others[i]->row->in_reach;
        if (!sets_meet(among, reach, words))
            continue;
        int64_t bits = overlapping_bits(radio, tx, others[i]);
        if (bits <= 0)
            continue;
        for (size_t k = 0; k < words; k++)
            affected[k] |= among[k] & reach[k];
        Transmission *interferer = others[i];
        others[i] = others[found];
        others[found] = interferer;
        rows[found++] = interferer->row;
        bits_max += bits;
        bits_min = bits_min && bits_min < bits ? bits_min : bits;
    }
    if (!found)
        return 0;
    if (links_classify(links, tx->row, rows, found, affected, earlier(bits_max, tx->payload_bits),
                       bits_min, lost, uncertain) < 0)
        return -1;
    set_unite(lost, uncertain, words);
    if (!set_any(uncertain, words))
        return 0;
    return draw_exact(radio, tx, others, found, uncertain, won);
}

/* Draws the locked-on nodes that decode a frame, into `tx->decoded`. */
int receive_interfered(Radio *radio, Transmission *tx, Transmission **others, int count)
{
    ClearReception *clear = tx->clear;
    size_t words = radio->links.words;
    word *lost = STACK_SET(words), *won = STACK_SET(words), *locked = STACK_SET(words);
    set_empty(lost, words);
    set_empty(won, words);
    if (count) {
        Row **rows = PyMem_Malloc((size_t)count * sizeof(Row *));
        if (rows == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t i = 0; i < words; i++)
            locked[i] = tx->locked[i] & clear->possible[i];
        int status = resolve_payload(radio, tx, others, rows, count, locked, lost, won);
        PyMem_Free(rows);
        if (status < 0)
            return -1;
    }
    for (size_t i = 0; i < words; i++) {
        locked[i] = tx->locked[i] & ~lost[i];
        tx->decoded[i] = locked[i] & clear->sure[i];
    }
    for (int i = 0; i < clear->uncertain_count; i++) {
        UncertainReceiver *receiver = &clear->uncertain[i];
        if (!set_has(locked, receiver->number))
            continue;
        if (receiver->payload_bits != tx->payload_bits) {
            receiver->payload_bits = tx->payload_bits;
            receiver->payload = exp(tx->payload_bits * receiver->log_bit);
        }
        if (twister_random(&radio->reception) < receiver->payload)
            set_add(tx->decoded, receiver->number);
    }
    set_unite(tx->decoded, won, words);
    return 0;
}
