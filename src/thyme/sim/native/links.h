/* Links: received power and probability of reception for every pair of nodes, with log-distance
   propagation. `radio/link_table.py` and `radio/reception.py` are the twin, which explains the
   rules; results are equal to the bit, so floating-point operations keep its order.
   Clauses: S2, S5. */

#ifndef THYME_LINKS_H
#define THYME_LINKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bitset.h"

#define LEVELS 22          /* as `power_levels.LEVELS` */
#define SIZE_CLASSES 40    /* bit lengths of the number of bits of a frame */
#define SINR_STEPS 32768   /* SINR values that are cached, half of them below 1 */
#define NODES_MAX 65535    /* receivers are counted in 16 bits */

/* A receiver that may or may not decode a frame. */
typedef struct {
    int number;
    double header, log_bit;
    int payload_bits; /* the size for which `payload` was computed */
    double payload;   /* exp(payload_bits * log_bit) */
} UncertainReceiver;

/* A receiver that may decode a header, and how probably. */
typedef struct {
    int number;
    double probability;
} HeaderReceiver;

/* The reception of one sender's frames of about one size, without interference. */
typedef struct {
    word *header_sure, *possible, *sure, *header_only, *header_likely;
    UncertainReceiver *uncertain;
    int uncertain_count, uncertain_capacity;
    HeaderReceiver *headers; /* of `header_only`, by number */
    int headers_count, headers_capacity;
} ClearReception;

/* The reception of one sender's frames at all other nodes. */
typedef struct {
    int references;
    int number;
    int count, capacity;
    int *numbers;       /* the nodes in reach, in the order of the twin's dictionary */
    double *power_mw;   /* their received powers */
    uint16_t *place_of; /* for each node, one more than its place above; 0: out of reach */
    word *in_reach, *in_reach_or_self, *sensing, *detecting;
    word *levels; /* LEVELS + 1 sets, by power level */
    ClearReception *clear[SIZE_CLASSES];
} Row;

/* The effect of one sender on another's header: who loses it, or may. */
typedef struct {
    HeaderReceiver *uncertain;
    int uncertain_count;
    word lost[];
} HeaderEffect;

/* For each power level of the strongest interferer, the signal levels that are certainly decoded
   and that may be. */
typedef struct {
    uint8_t sure[LEVELS], possible[LEVELS];
} LevelThresholds;

typedef struct {
    int64_t column, line;
    int *numbers;
    int count, capacity;
    bool used;
} Bucket;

typedef struct {
    int nodes;
    size_t words;
    PyObject *positions;  /* a list, with the values that were given */
    PyObject *log_header, *log_payload; /* functions: log-probability of a bit at an SINR */
    PyObject *thresholds; /* `PowerThresholds` */
    double *x, *y;
    double noise_mw, detection_mw, sense_mw, sensitivity_mw;
    double reference_mw, square_exponent, reach_square, bucket_m, level_scale, sinr_scale;
    double levels_mw[LEVELS];
    double header_mw[2];
    double payload_mw[SIZE_CLASSES][2];
    bool payload_known[SIZE_CLASSES];
    int header_bits;
    int *offsets; /* pairs: the buckets that may hold a node in reach */
    int offsets_count;
    Bucket *buckets; /* an open hash table */
    size_t buckets_count, buckets_capacity;
    Row **rows;
    HeaderEffect **header_effects; /* for each pair of senders; NULL in large networks */
    double *header_logs, *payload_logs; /* by SINR step; NaN if not known */
    LevelThresholds **level_thresholds; /* SIZE_CLASSES ** 2 for each number of interferers */
    int level_counts;
} Links;

/* Makes room for one more element at the end of an array; returns -1 without memory. */
int array_reserve(void **array, int count, int *capacity, size_t size);

int links_fill(Links *links, PyObject *positions, PyObject *model);
void links_release(Links *links);
int links_move(Links *links, int number, PyObject *position);

Row *links_row(Links *links, int number);
void row_release(Row *row);
int row_update_power(Links *links, Row *row, int other, double power_mw);
ClearReception *links_clear_reception(Links *links, Row *row, int bits);
void clear_release(ClearReception *clear);
int clear_update(Links *links, ClearReception *clear, int size_class, int number, double before_mw,
                 double power_mw);
int links_read_model(Links *links, PyObject *model);
int links_payload_mw(Links *links, int size_class, double **possible_and_sure);

int links_classify(Links *links, const Row *row, Row *const *others, int count, word *among,
                   int64_t bits_max, int64_t bits_min, word *lost, word *uncertain);
int links_header_effect(Links *links, const Row *row, Row *other, const word *among,
                        HeaderEffect **effect, bool *owned);
void header_effect_release(HeaderEffect *effect);
int links_header_probability(Links *links, const Row *row, Row *const *others, int count,
                             int number, double *probability);
int links_payload_log(Links *links, double power_mw, double interference_mw, double *log);
void links_stronger_at(const Links *links, const Row *row, const Row *other, const word *among,
                       word *stronger);

static inline double row_power_mw(const Row *row, int number)
{
    int place = row->place_of[number];
    return place ? row->power_mw[place - 1] : 0.0;
}

#endif
