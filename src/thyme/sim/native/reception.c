/* Reception: probabilities without interference, and the effect of interference. */

#include "links.h"

#include <math.h>

#define BUCKET_LEAST_M 1e-6

/* The model */

static int read_double(PyObject *model, const char *name, double *value)
{
    PyObject *found = PyObject_GetAttrString(model, name);
    if (found == NULL)
        return -1;
    *value = PyFloat_AsDouble(found);
    Py_DECREF(found);
    return *value == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* Reads a sequence of `count` floats. */
static int read_doubles(PyObject *values, double *into, Py_ssize_t count)
{
    PyObject *sequence = values == NULL ? NULL : PySequence_Tuple(values);
    Py_XDECREF(values);
    if (sequence == NULL)
        return -1;
    int status = 0;
    if (PyTuple_GET_SIZE(sequence) != count) {
        PyErr_Format(PyExc_ValueError, "expected %zd values", count);
        status = -1;
    }
    for (Py_ssize_t i = 0; !status && i < count; i++) {
        into[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(sequence, i));
        status = into[i] == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    Py_DECREF(sequence);
    return status;
}

static int read_offsets(Links *links, PyObject *model)
{
    PyObject *offsets = PyObject_GetAttrString(model, "bucket_offsets");
    PyObject *sequence = offsets == NULL ? NULL : PySequence_Tuple(offsets);
    Py_XDECREF(offsets);
    if (sequence == NULL)
        return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(sequence);
    links->offsets = PyMem_Calloc((size_t)(2 * count + 1), sizeof(int));
    int status = links->offsets == NULL ? -1 : 0;
    if (status)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; !status && i < count; i++) {
        int *pair = &links->offsets[2 * i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sequence, i), "ii", &pair[0], &pair[1]))
            status = -1;
    }
    links->offsets_count = (int)count;
    Py_DECREF(sequence);
    return status;
}

static int make_log_caches(Links *links)
{
    links->header_logs = PyMem_Malloc(SINR_STEPS * sizeof(double));
    links->payload_logs = PyMem_Malloc(SINR_STEPS * sizeof(double));
    if (links->header_logs == NULL || links->payload_logs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < SINR_STEPS; i++)
        links->header_logs[i] = links->payload_logs[i] = NAN;
    return 0;
}

/* Reads the parameters of propagation from a `LinkModel`. */
int links_read_model(Links *links, PyObject *model)
{
    const struct {
        const char *name;
        double *value;
    } numbers[] = {
        {"noise_mw", &links->noise_mw},
        {"preamble_detection_mw", &links->detection_mw},
        {"carrier_sense_mw", &links->sense_mw},
        {"rx_sensitivity_mw", &links->sensitivity_mw},
        {"reference_mw", &links->reference_mw},
        {"square_exponent", &links->square_exponent},
        {"reach_square", &links->reach_square},
        {"bucket_m", &links->bucket_m},
        {"level_scale", &links->level_scale},
        {"sinr_scale", &links->sinr_scale},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (read_double(model, numbers[i].name, numbers[i].value) < 0)
            return -1;
    if (!(links->bucket_m >= BUCKET_LEAST_M)) {
        PyErr_SetString(PyExc_ValueError, "the reach is too small");
        return -1;
    }
    double header_bits;
    if (read_double(model, "header_bits", &header_bits) < 0)
        return -1;
    links->header_bits = (int)header_bits;
    links->log_header = PyObject_GetAttrString(model, "log_header_bit_success");
    links->log_payload = PyObject_GetAttrString(model, "log_bit_success");
    links->thresholds = PyObject_GetAttrString(model, "thresholds");
    if (links->log_header == NULL || links->log_payload == NULL || links->thresholds == NULL)
        return -1;
    if (read_doubles(PyObject_GetAttrString(model, "levels_mw"), links->levels_mw, LEVELS) < 0
        || read_doubles(PyObject_GetAttrString(links->thresholds, "header_mw"), links->header_mw, 2)
               < 0)
        return -1;
    return read_offsets(links, model) < 0 ? -1 : make_log_caches(links);
}

int links_payload_mw(Links *links, int size_class, double **possible_and_sure)
{
    double *bounds = *possible_and_sure = links->payload_mw[size_class];
    if (links->payload_known[size_class])
        return 0;
    PyObject *found = PyObject_CallMethod(links->thresholds, "payload_mw", "i", size_class);
    if (read_doubles(found, bounds, 2) < 0)
        return -1;
    links->payload_known[size_class] = true;
    return 0;
}

/* Logarithms */

static long sinr_step_of(const Links *links, double power_mw, double interference_mw)
{
    return (long)rint(links->sinr_scale * log10(power_mw / interference_mw));
}

static int log_at_step(const Links *links, double *cache, PyObject *function, long step, double *log)
{
    long place = step + SINR_STEPS / 2;
    bool cached = place >= 0 && place < SINR_STEPS;
    if (cached && !isnan(cache[place])) {
        *log = cache[place];
        return 0;
    }
    PyObject *sinr = PyFloat_FromDouble(pow(10.0, (double)step / links->sinr_scale));
    PyObject *found = sinr == NULL ? NULL : PyObject_CallOneArg(function, sinr);
    Py_XDECREF(sinr);
    if (found == NULL)
        return -1;
    *log = PyFloat_AsDouble(found);
    Py_DECREF(found);
    if (*log == -1.0 && PyErr_Occurred())
        return -1;
    if (cached)
        cache[place] = *log;
    return 0;
}

int links_payload_log(Links *links, double power_mw, double interference_mw, double *log)
{
    long step = sinr_step_of(links, power_mw, interference_mw);
    return log_at_step(links, links->payload_logs, links->log_payload, step, log);
}

int links_header_probability(Links *links, const Row *row, Row *const *others, int count,
                             int number, double *probability)
{
    double interference_mw = links->noise_mw, log;
    for (int i = 0; i < count; i++)
        interference_mw += row_power_mw(others[i], number);
    long step = sinr_step_of(links, row_power_mw(row, number), interference_mw);
    if (log_at_step(links, links->header_logs, links->log_header, step, &log) < 0)
        return -1;
    *probability = exp(links->header_bits * log);
    return 0;
}

/* Without interference */

/* The probability of a header and the logarithm of the probability of a payload bit. */
static int reception_odds(Links *links, double power_mw, int size_class, double *header,
                          double *log_bit)
{
    double *payload_mw;
    if (links_payload_mw(links, size_class, &payload_mw) < 0)
        return -1;
    long step = sinr_step_of(links, power_mw, links->noise_mw);
    *header = 1.0;
    *log_bit = -INFINITY;
    if (power_mw < links->header_mw[1]) {
        double log;
        if (log_at_step(links, links->header_logs, links->log_header, step, &log) < 0)
            return -1;
        *header = exp(links->header_bits * log);
    } else if (power_mw >= payload_mw[1]) {
        *log_bit = 0.0;
        return 0;
    }
    if (power_mw >= payload_mw[0])
        return log_at_step(links, links->payload_logs, links->log_payload, step, log_bit);
    return 0;
}

static ClearReception *clear_new(size_t words)
{
    ClearReception *clear = PyMem_Calloc(1, sizeof(ClearReception));
    word *block = PyMem_Calloc(5 * words, sizeof(word));
    if (clear == NULL || block == NULL) {
        PyMem_Free(clear);
        PyMem_Free(block);
        PyErr_NoMemory();
        return NULL;
    }
    clear->header_sure = block;
    clear->possible = block + words;
    clear->sure = block + 2 * words;
    clear->header_only = block + 3 * words;
    clear->header_likely = block + 4 * words;
    return clear;
}

void clear_release(ClearReception *clear)
{
    if (clear == NULL)
        return;
    PyMem_Free(clear->header_sure);
    PyMem_Free(clear->uncertain);
    PyMem_Free(clear->headers);
    PyMem_Free(clear);
}

static int clear_add(ClearReception *clear, int number, double header, double log_bit)
{
    if (header == 1.0)
        set_add(clear->header_sure, number);
    if (log_bit > -INFINITY) {
        set_add(clear->possible, number);
        if (header == 1.0 && log_bit == 0.0) {
            set_add(clear->sure, number);
            return 0;
        }
        if (array_reserve((void **)&clear->uncertain, clear->uncertain_count,
                          &clear->uncertain_capacity, sizeof(UncertainReceiver)) < 0)
            return -1;
        UncertainReceiver added = {number, header, log_bit, -1, 0.0};
        clear->uncertain[clear->uncertain_count++] = added;
    } else if (header < 1.0) {
        if (array_reserve((void **)&clear->headers, clear->headers_count, &clear->headers_capacity,
                          sizeof(HeaderReceiver)) < 0)
            return -1;
        HeaderReceiver added = {number, header};
        int place = clear->headers_count++;
        for (; place > 0 && clear->headers[place - 1].number > number; place--)
            clear->headers[place] = clear->headers[place - 1];
        clear->headers[place] = added;
        set_add(clear->header_only, number);
        if (header >= 0.5)
            set_add(clear->header_likely, number);
    }
    return 0;
}

static void clear_remove(ClearReception *clear, int number)
{
    set_remove(clear->header_sure, number);
    set_remove(clear->possible, number);
    set_remove(clear->sure, number);
    set_remove(clear->header_only, number);
    set_remove(clear->header_likely, number);
    for (int i = 0; i < clear->uncertain_count; i++)
        if (clear->uncertain[i].number == number) {
            clear->uncertain_count--;
            memmove(&clear->uncertain[i], &clear->uncertain[i + 1],
                    (size_t)(clear->uncertain_count - i) * sizeof(UncertainReceiver));
            break;
        }
    for (int i = 0; i < clear->headers_count; i++)
        if (clear->headers[i].number == number) {
            clear->headers_count--;
            memmove(&clear->headers[i], &clear->headers[i + 1],
                    (size_t)(clear->headers_count - i) * sizeof(HeaderReceiver));
            break;
        }
}

static double detectable_mw(const Links *links)
{
    return links->detection_mw >= links->header_mw[0] ? links->detection_mw : links->header_mw[0];
}

ClearReception *links_clear_reception(Links *links, Row *row, int bits)
{
    int size_class = bit_length(bits);
    if (row->clear[size_class] != NULL)
        return row->clear[size_class];
    double *payload_mw;
    if (links_payload_mw(links, size_class, &payload_mw) < 0)
        return NULL;
    double sure_mw = payload_mw[1] > links->header_mw[1] ? payload_mw[1] : links->header_mw[1];
    double least_mw = detectable_mw(links);
    ClearReception *clear = clear_new(links->words);
    for (int i = 0; clear != NULL && i < row->count; i++) {
        double power_mw = row->power_mw[i], header = 1.0, log_bit = 0.0;
        if (power_mw < sure_mw && power_mw < least_mw)
            continue;
        if ((power_mw < sure_mw
             && reception_odds(links, power_mw, size_class, &header, &log_bit) < 0)
            || clear_add(clear, row->numbers[i], header, log_bit) < 0) {
            clear_release(clear);
            clear = NULL;
        }
    }
    row->clear[size_class] = clear;
    return clear;
}

/* Updates a receiver that has moved. */
int clear_update(Links *links, ClearReception *clear, int size_class, int number, double before_mw,
                 double power_mw)
{
    double *payload_mw, header, log_bit;
    if (links_payload_mw(links, size_class, &payload_mw) < 0)
        return -1;
    double low = before_mw < power_mw ? before_mw : power_mw;
    double high = before_mw < power_mw ? power_mw : before_mw;
    double sure_mw = payload_mw[1] > links->header_mw[1] ? payload_mw[1] : links->header_mw[1];
    if (low >= sure_mw || high < links->header_mw[0])
        return 0; /* the same certain outcome */
    clear_remove(clear, number);
    if (power_mw < detectable_mw(links))
        return 0;
    if (reception_odds(links, power_mw, size_class, &header, &log_bit) < 0)
        return -1;
    return clear_add(clear, number, header, log_bit);
}
