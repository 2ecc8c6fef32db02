/* Links: positions, buckets of near nodes, and the row of each sender. */

#include "links.h"

#include <math.h>

#define COORDINATE_MAX_M 1e12
#define PAIR_CACHE_NODES_MAX 150 /* as `link_table.PAIR_CACHE_NODES_MAX` */

int array_reserve(void **array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return 0;
    int wanted = *capacity ? 2 * *capacity : 8;
    void *larger = PyMem_Realloc(*array, (size_t)wanted * size);
    if (larger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *array = larger;
    *capacity = wanted;
    return 0;
}

/* Buckets */

/* Python's `value // size` for floats. */
static double floor_divide(double value, double size)
{
    double rest = fmod(value, size);
    double quotient = (value - rest) / size;
    if (rest != 0.0 && (size < 0.0) != (rest < 0.0))
        quotient -= 1.0;
    if (quotient == 0.0)
        return quotient;
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

static Bucket *find_bucket(const Links *links, int64_t column, int64_t line)
{
    uint64_t hash = (uint64_t)column * 0x9e3779b97f4a7c15U ^ (uint64_t)line * 0xc2b2ae3d27d4eb4fU;
    size_t mask = links->buckets_capacity - 1;
    for (size_t place = (size_t)(hash ^ hash >> 32) & mask;; place = (place + 1) & mask) {
        Bucket *bucket = &links->buckets[place];
        if (!bucket->used || (bucket->column == column && bucket->line == line))
            return bucket;
    }
}

static int grow_buckets(Links *links)
{
    Bucket *before = links->buckets;
    size_t capacity = links->buckets_capacity;
    Bucket *after = PyMem_Calloc(capacity ? 2 * capacity : 256, sizeof(Bucket));
    if (after == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    links->buckets = after;
    links->buckets_capacity = capacity ? 2 * capacity : 256;
    for (size_t i = 0; i < capacity; i++)
        if (before[i].used)
            *find_bucket(links, before[i].column, before[i].line) = before[i];
    PyMem_Free(before);
    return 0;
}

static Bucket *bucket_at(const Links *links, int number)
{
    return find_bucket(links, (int64_t)floor_divide(links->x[number], links->bucket_m),
                       (int64_t)floor_divide(links->y[number], links->bucket_m));
}

static int bucket_add(Links *links, int number)
{
    if (2 * links->buckets_count >= links->buckets_capacity && grow_buckets(links) < 0)
        return -1;
    Bucket *bucket = bucket_at(links, number);
    if (!bucket->used) {
        bucket->used = true;
        bucket->column = (int64_t)floor_divide(links->x[number], links->bucket_m);
        bucket->line = (int64_t)floor_divide(links->y[number], links->bucket_m);
        links->buckets_count++;
    }
    if (array_reserve((void **)&bucket->numbers, bucket->count, &bucket->capacity, sizeof(int)) < 0)
        return -1;
    bucket->numbers[bucket->count++] = number;
    return 0;
}

static void bucket_remove(Bucket *bucket, int number)
{
    int place = 0;
    while (bucket->numbers[place] != number)
        place++;
    bucket->count--;
    memmove(&bucket->numbers[place], &bucket->numbers[place + 1],
            (size_t)(bucket->count - place) * sizeof(int));
}

/* Rows */

static int row_append(Row *row, int number, double power_mw)
{
    if (row->count == row->capacity) {
        int capacity = row->capacity;
        if (array_reserve((void **)&row->numbers, row->count, &capacity, sizeof(int)) < 0)
            return -1;
        capacity = row->capacity;
        if (array_reserve((void **)&row->power_mw, row->count, &capacity, sizeof(double)) < 0)
            return -1;
        row->capacity = capacity;
    }
    row->numbers[row->count] = number;
    row->power_mw[row->count] = power_mw;
    row->place_of[number] = (uint16_t)++row->count;
    return 0;
}

static void row_delete(Row *row, int number)
{
    int place = row->place_of[number] - 1;
    row->place_of[number] = 0;
    row->count--;
    for (int i = place; i < row->count; i++) {
        row->numbers[i] = row->numbers[i + 1];
        row->power_mw[i] = row->power_mw[i + 1];
        row->place_of[row->numbers[i]]--;
    }
}

static Row *row_new(const Links *links, int number)
{
    size_t words = links->words, sets = 4 + LEVELS + 1;
    Row *row = PyMem_Calloc(1, sizeof(Row));
    word *block = PyMem_Calloc(sets * words, sizeof(word));
    uint16_t *places = PyMem_Calloc((size_t)links->nodes, sizeof(uint16_t));
    if (row == NULL || block == NULL || places == NULL) {
        PyMem_Free(row);
        PyMem_Free(block);
        PyMem_Free(places);
        PyErr_NoMemory();
        return NULL;
    }
    row->references = 1;
    row->number = number;
    row->place_of = places;
    row->in_reach = block;
    row->in_reach_or_self = block + words;
    row->sensing = block + 2 * words;
    row->detecting = block + 3 * words;
    row->levels = block + 4 * words;
    set_add(row->in_reach_or_self, number);
    return row;
}

void row_release(Row *row)
{
    if (row == NULL || --row->references)
        return;
    for (int i = 0; i < SIZE_CLASSES; i++)
        clear_release(row->clear[i]);
    PyMem_Free(row->numbers);
    PyMem_Free(row->power_mw);
    PyMem_Free(row->place_of);
    PyMem_Free(row->in_reach);
    PyMem_Free(row);
}

/* Makes the sets of a row from its powers. */
static void row_fill_sets(const Links *links, Row *row)
{
    for (int i = 0; i < row->count; i++) {
        int number = row->numbers[i];
        double power_mw = row->power_mw[i];
        set_add(row->in_reach, number);
        set_add(row->in_reach_or_self, number);
        if (power_mw >= links->sense_mw)
            set_add(row->sensing, number);
        if (power_mw >= links->detection_mw)
            set_add(row->detecting, number);
        for (int level = 0; level < LEVELS && power_mw >= links->levels_mw[level]; level++)
            set_add(row->levels + (size_t)level * links->words, number);
    }
}

static double attenuated_mw(const Links *links, double square)
{
    return square > 1.0 ? links->reference_mw * pow(square, links->square_exponent)
                        : links->reference_mw;
}

static Row *make_row(const Links *links, int number)
{
    Row *row = row_new(links, number);
    if (row == NULL)
        return NULL;
    double x = links->x[number], y = links->y[number];
    int64_t column = (int64_t)floor_divide(x, links->bucket_m);
    int64_t line = (int64_t)floor_divide(y, links->bucket_m);
    for (int i = 0; i < links->offsets_count; i++) {
        const Bucket *bucket =
            find_bucket(links, column + links->offsets[2 * i], line + links->offsets[2 * i + 1]);
        for (int j = 0; j < bucket->count; j++) {
            int other = bucket->numbers[j];
            double dx = x - links->x[other], dy = y - links->y[other];
            double square = dx * dx + dy * dy;
            if (square > links->reach_square || other == number)
                continue;
            if (row_append(row, other, attenuated_mw(links, square)) < 0) {
                row_release(row);
                return NULL;
            }
        }
    }
    row_fill_sets(links, row);
    return row;
}

Row *links_row(Links *links, int number)
{
    if (links->rows[number] == NULL)
        links->rows[number] = make_row(links, number);
    return links->rows[number];
}

/* Moves */

/* The highest power level that a power reaches; -1 for none. */
static int level_of(const Links *links, double power_mw)
{
    if (power_mw < links->sensitivity_mw)
        return -1;
    double steps = links->level_scale * log10(power_mw / links->sensitivity_mw);
    return steps < LEVELS - 1 ? (int)steps : LEVELS - 1;
}

int row_update_power(Links *links, Row *row, int other, double power_mw)
{
    double before_mw = row_power_mw(row, other);
    if (power_mw < links->sensitivity_mw) {
        if (before_mw == 0.0)
            return 0;
        row_delete(row, other);
        power_mw = 0.0;
    } else if (row->place_of[other]) {
        row->power_mw[row->place_of[other] - 1] = power_mw;
    } else if (row_append(row, other, power_mw) < 0) {
        return -1;
    }
    set_assign(row->in_reach, other, power_mw != 0.0);
    set_assign(row->in_reach_or_self, other, power_mw != 0.0);
    set_assign(row->sensing, other, power_mw >= links->sense_mw);
    set_assign(row->detecting, other, power_mw >= links->detection_mw);
    int before = level_of(links, before_mw), after = level_of(links, power_mw);
    for (int level = before + 1; level <= after; level++)
        set_add(row->levels + (size_t)level * links->words, other);
    for (int level = after + 1; level <= before; level++)
        set_remove(row->levels + (size_t)level * links->words, other);
    for (int i = 0; i < SIZE_CLASSES; i++)
        if (row->clear[i] != NULL
            && clear_update(links, row->clear[i], i, other, before_mw, power_mw) < 0)
            return -1;
    return 0;
}

static void forget_header_effects(Links *links)
{
    if (links->header_effects == NULL)
        return;
    for (int i = 0; i < links->nodes * links->nodes; i++) {
        header_effect_release(links->header_effects[i]);
        links->header_effects[i] = NULL;
    }
}

static int read_position(PyObject *position, double *x, double *y)
{
    if (!PyArg_ParseTuple(position, "dd;a position is a tuple of two numbers", x, y))
        return -1;
    if (!(fabs(*x) <= COORDINATE_MAX_M && fabs(*y) <= COORDINATE_MAX_M)) {
        PyErr_SetString(PyExc_ValueError, "a position is not finite or too far away");
        return -1;
    }
    return 0;
}

/* Updates the rows of the nodes near a bucket; `again`: some of them have the new power already. */
static int update_rows_near(Links *links, int number, int64_t column, int64_t line, bool again)
{
    for (int i = 0; i < links->offsets_count; i++) {
        const Bucket *bucket =
            find_bucket(links, column + links->offsets[2 * i], line + links->offsets[2 * i + 1]);
        for (int j = 0; j < bucket->count; j++) {
            int other = bucket->numbers[j];
            Row *row = links->rows[other];
            if (row == NULL || other == number)
                continue;
            double dx = links->x[number] - links->x[other];
            double dy = links->y[number] - links->y[other];
            double power_mw = attenuated_mw(links, dx * dx + dy * dy);
            if (again && row_power_mw(row, number) == power_mw)
                continue;
            if (row_update_power(links, row, number, power_mw) < 0)
                return -1;
        }
    }
    return 0;
}

int links_move(Links *links, int number, PyObject *position)
{
    double x, y;
    if (read_position(position, &x, &y) < 0)
        return -1;
    int64_t old_column = (int64_t)floor_divide(links->x[number], links->bucket_m);
    int64_t old_line = (int64_t)floor_divide(links->y[number], links->bucket_m);
    int64_t column = (int64_t)floor_divide(x, links->bucket_m);
    int64_t line = (int64_t)floor_divide(y, links->bucket_m);
    bool leaves = column != old_column || line != old_line;
    if (leaves)
        bucket_remove(bucket_at(links, number), number);
    links->x[number] = x;
    links->y[number] = y;
    if (leaves && bucket_add(links, number) < 0)
        return -1;
    Py_INCREF(position);
    if (PyList_SetItem(links->positions, number, position) < 0)
        return -1;
    row_release(links->rows[number]);
    links->rows[number] = NULL;
    forget_header_effects(links);
    if (update_rows_near(links, number, old_column, old_line, false) < 0)
        return -1;
    return leaves ? update_rows_near(links, number, column, line, true) : 0;
}

/* Start and end */

static int fill_positions(Links *links)
{
    size_t nodes = (size_t)links->nodes;
    links->x = PyMem_Calloc(nodes + 1, sizeof(double));
    links->y = PyMem_Calloc(nodes + 1, sizeof(double));
    links->rows = PyMem_Calloc(nodes + 1, sizeof(Row *));
    if (links->x == NULL || links->y == NULL || links->rows == NULL || grow_buckets(links) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (links->nodes <= PAIR_CACHE_NODES_MAX) {
        links->header_effects = PyMem_Calloc(nodes * nodes + 1, sizeof(HeaderEffect *));
        if (links->header_effects == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    for (int number = 0; number < links->nodes; number++) {
        PyObject *position = PyList_GET_ITEM(links->positions, number);
        if (read_position(position, &links->x[number], &links->y[number]) < 0
            || bucket_add(links, number) < 0)
            return -1;
    }
    return 0;
}

int links_fill(Links *links, PyObject *positions, PyObject *model)
{
    links->positions = PySequence_List(positions);
    if (links->positions == NULL)
        return -1;
    Py_ssize_t nodes = PyList_GET_SIZE(links->positions);
    if (nodes > NODES_MAX) {
        PyErr_Format(PyExc_ValueError, "the native radio has at most %d nodes", NODES_MAX);
        return -1;
    }
    links->nodes = (int)nodes;
    links->words = (size_t)nodes / WORD_BITS + 1;
    if (links_read_model(links, model) < 0)
        return -1;
    return fill_positions(links);
}

void links_release(Links *links)
{
    for (int i = 0; links->rows != NULL && i < links->nodes; i++)
        row_release(links->rows[i]);
    forget_header_effects(links);
    for (size_t i = 0; i < links->buckets_capacity; i++)
        PyMem_Free(links->buckets[i].numbers);
    for (int i = 0; i < links->level_counts * SIZE_CLASSES * SIZE_CLASSES; i++)
        PyMem_Free(links->level_thresholds[i]);
    PyMem_Free(links->level_thresholds);
    PyMem_Free(links->buckets);
    PyMem_Free(links->header_effects);
    PyMem_Free(links->header_logs);
    PyMem_Free(links->payload_logs);
    PyMem_Free(links->offsets);
    PyMem_Free(links->rows);
    PyMem_Free(links->x);
    PyMem_Free(links->y);
}
