/* Bit sets: sets of node numbers, with one bit for each node, as arrays of words.

   The twin of these sets are the integers of `engine/bitsets.py`. All sets of a run have the same
   number of words. */

#ifndef THYME_BITSET_H
#define THYME_BITSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef _MSC_VER
#include <intrin.h>
#include <malloc.h>
#define STACK_SET(words) ((word *)_alloca((words) * sizeof(word)))
#else
#define STACK_SET(words) ((word *)__builtin_alloca((words) * sizeof(word)))
#endif

typedef uint64_t word;

#define WORD_BITS 64
/* `STACK_SET` makes room for a set on the stack, until the function returns. */

static inline int lowest_bit(word value)
{
#ifdef _MSC_VER
    unsigned long index;
    _BitScanForward64(&index, value);
    return (int)index;
#else
    return __builtin_ctzll(value);
#endif
}

/* The number of bits of a number that is not negative, as `int.bit_length`. */
static inline int bit_length(int64_t value)
{
    int length = 0;
    while (value > 0) {
        length++;
        value >>= 1;
    }
    return length;
}

static inline bool set_has(const word *set, int number)
{
    return set[number / WORD_BITS] >> (number % WORD_BITS) & 1;
}

static inline void set_add(word *set, int number)
{
    set[number / WORD_BITS] |= (word)1 << (number % WORD_BITS);
}

static inline void set_remove(word *set, int number)
{
    set[number / WORD_BITS] &= ~((word)1 << (number % WORD_BITS));
}

static inline void set_toggle(word *set, int number)
{
    set[number / WORD_BITS] ^= (word)1 << (number % WORD_BITS);
}

static inline void set_assign(word *set, int number, bool member)
{
    if (member)
        set_add(set, number);
    else
        set_remove(set, number);
}

static inline void set_empty(word *set, size_t words)
{
    for (size_t i = 0; i < words; i++)
        set[i] = 0;
}

static inline void set_copy(word *to, const word *from, size_t words)
{
    for (size_t i = 0; i < words; i++)
        to[i] = from[i];
}

static inline void set_unite(word *set, const word *other, size_t words)
{
    for (size_t i = 0; i < words; i++)
        set[i] |= other[i];
}

static inline void set_subtract(word *set, const word *other, size_t words)
{
    for (size_t i = 0; i < words; i++)
        set[i] &= ~other[i];
}

static inline bool set_any(const word *set, size_t words)
{
    word found = 0;
    for (size_t i = 0; i < words; i++)
        found |= set[i];
    return found != 0;
}

static inline bool sets_meet(const word *one, const word *other, size_t words)
{
    word found = 0;
    for (size_t i = 0; i < words; i++)
        found |= one[i] & other[i];
    return found != 0;
}

/* Runs a block for each member of a set, in ascending order. The set must not change meanwhile. In
   the block, `break` and `continue` both go on with the next member. */
#define FOR_MEMBERS(number, set, words)                                                       \
    for (size_t number##_word = 0; number##_word < (words); number##_word++)                  \
        for (word number##_left = (set)[number##_word]; number##_left;                        \
             number##_left &= number##_left - 1)                                              \
            for (int number = (int)(number##_word * WORD_BITS) + lowest_bit(number##_left),   \
                     number##_once = 1;                                                       \
                 number##_once; number##_once = 0)

#endif
