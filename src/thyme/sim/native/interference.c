/* Interference: the receivers that other frames make uncertain, or cost a header. */

#include "links.h"

#include <math.h>

static int make_level_table(Links *links, int count)
{
    if (count < links->level_counts)
        return 0;
    size_t before = (size_t)links->level_counts * SIZE_CLASSES * SIZE_CLASSES;
    size_t after = (size_t)(count + 1) * SIZE_CLASSES * SIZE_CLASSES;
    LevelThresholds **larger =
        PyMem_Realloc(links->level_thresholds, after * sizeof(LevelThresholds *));
    if (larger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(larger + before, 0, (after - before) * sizeof(LevelThresholds *));
    links->level_thresholds = larger;
    links->level_counts = count + 1;
    return 0;
}

static int read_level_thresholds(PyObject *found, LevelThresholds *into)
{
    PyObject *sequence = found == NULL ? NULL : PySequence_Tuple(found);
    Py_XDECREF(found);
    if (sequence == NULL)
        return -1;
    int status = PyTuple_GET_SIZE(sequence) == LEVELS ? 0 : -1;
    if (status)
        PyErr_SetString(PyExc_ValueError, "wrong number of power levels");
    for (int i = 0; !status && i < LEVELS; i++) {
        int sure, possible;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sequence, i), "ii", &sure, &possible)) {
            status = -1;
        } else if (sure < 0 || sure > LEVELS || possible < 0 || possible > LEVELS) {
            PyErr_SetString(PyExc_ValueError, "no such power level");
            status = -1;
        } else {
            into->sure[i] = (uint8_t)sure;
            into->possible[i] = (uint8_t)possible;
        }
    }
    Py_DECREF(sequence);
    return status;
}

static const LevelThresholds *level_thresholds(Links *links, int64_t bits_max, int64_t bits_min,
                                               int count)
{
    int most = bit_length(bits_max), least = bit_length(bits_min);
    if (make_level_table(links, count) < 0)
        return NULL;
    size_t place = ((size_t)count * SIZE_CLASSES + (size_t)most) * SIZE_CLASSES + (size_t)least;
    if (links->level_thresholds[place] != NULL)
        return links->level_thresholds[place];
    LevelThresholds *made = PyMem_Malloc(sizeof(LevelThresholds));
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    PyObject *found = PyObject_CallMethod(links->thresholds, "level_thresholds", "iii", most, least,
                                          count);
    if (read_level_thresholds(found, made) < 0) {
        PyMem_Free(made);
        return NULL;
    }
    PyMem_Free(links->level_thresholds[place]);
    links->level_thresholds[place] = made;
    return made;
}

/* Classifies receivers under interference: those that certainly lose the frame, and those that are
   uncertain. `among` is used up. `bits_min` of 0 stands for the header. */
int links_classify(Links *links, const Row *row, Row *const *others, int count, word *among,
                   int64_t bits_max, int64_t bits_min, word *lost, word *uncertain)
{
    size_t words = links->words;
    const LevelThresholds *thresholds = level_thresholds(links, bits_max, bits_min, count);
    if (thresholds == NULL)
        return -1;
    set_empty(lost, words);
    set_empty(uncertain, words);
    for (size_t level = 1; level <= LEVELS; level++) {
        const word *sure = row->levels + thresholds->sure[level - 1] * words;
        const word *possible = row->levels + thresholds->possible[level - 1] * words;
        word any = 0;
        for (size_t i = 0; i < words; i++) {
            if (!among[i])
                continue;
            word stronger = others[0]->levels[level * words + i];
            for (int k = 1; k < count; k++)
                stronger |= others[k]->levels[level * words + i];
            word above = among[i] & stronger;
            word exposed = (among[i] ^ above) & ~sure[i];
            word bad = exposed & ~possible[i];
            lost[i] |= bad;
            uncertain[i] |= exposed ^ bad;
            among[i] = above;
            any |= above;
        }
        if (!any)
            break;
    }
    return 0;
}

void header_effect_release(HeaderEffect *effect)
{
    if (effect == NULL)
        return;
    PyMem_Free(effect->uncertain);
    PyMem_Free(effect);
}

/* The effect of one sender on the header of another at the receivers `affected`, used up. */
static HeaderEffect *make_header_effect(Links *links, const Row *row, Row *other, word *affected)
{
    size_t words = links->words;
    word *uncertain = STACK_SET(words);
    HeaderEffect *effect = PyMem_Calloc(1, sizeof(HeaderEffect) + words * sizeof(word));
    if (effect == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    int capacity = 0;
    if (links_classify(links, row, &other, 1, affected, links->header_bits, 0, effect->lost,
                       uncertain) < 0)
        goto failed;
    set_unite(effect->lost, uncertain, words);
    FOR_MEMBERS(number, uncertain, words)
    {
        HeaderReceiver added = {number, 0.0};
        if (array_reserve((void **)&effect->uncertain, effect->uncertain_count, &capacity,
                          sizeof(HeaderReceiver)) < 0
            || links_header_probability(links, row, &other, 1, number, &added.probability) < 0)
            goto failed;
        effect->uncertain[effect->uncertain_count++] = added;
    }
    return effect;
failed:
    header_effect_release(effect);
    return NULL;
}

/* The receivers for which one other sender makes a header uncertain or lost; receivers outside
   `among` may be included. Cached in small networks; else the caller owns the effect. */
int links_header_effect(Links *links, const Row *row, Row *other, const word *among,
                        HeaderEffect **effect, bool *owned)
{
    size_t words = links->words;
    word *affected = STACK_SET(words);
    *owned = links->header_effects == NULL;
    size_t place = (size_t)row->number * (size_t)links->nodes + (size_t)other->number;
    if (!*owned && (*effect = links->header_effects[place]) != NULL)
        return 0;
    const word *within = *owned ? among : row->detecting;
    for (size_t i = 0; i < words; i++)
        affected[i] = within[i] & other->in_reach[i];
    *effect = make_header_effect(links, row, other, affected);
    if (*effect == NULL)
        return -1;
    if (!*owned) {
        header_effect_release(links->header_effects[place]);
        links->header_effects[place] = *effect;
    }
    return 0;
}

/* The receivers that detect both senders and receive `row` with more power than `other`. */
void links_stronger_at(const Links *links, const Row *row, const Row *other, const word *among,
                       word *stronger)
{
    size_t words = links->words;
    word *both = STACK_SET(words);
    for (size_t i = 0; i < words; i++) {
        both[i] = row->detecting[i] & other->detecting[i] & among[i];
        stronger[i] = 0;
    }
    FOR_MEMBERS(number, both, words)
    {
        if (row_power_mw(row, number) > row_power_mw(other, number))
            set_add(stronger, number);
    }
}
