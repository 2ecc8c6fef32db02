/* Mersenne Twister: the generator of Python's `random.Random`, with the same numbers.

   `twister_load` takes the state of a `Random` over; M. Matsumoto and T. Nishimura, "Mersenne
   Twister", 1998. */

#ifndef THYME_TWISTER_H
#define THYME_TWISTER_H

#include <stdint.h>

#define TWISTER_WORDS 624
#define TWISTER_OFFSET 397

typedef struct {
    uint32_t state[TWISTER_WORDS];
    int next;
} Twister;

static inline uint32_t twister_mix(uint32_t high, uint32_t low)
{
    uint32_t mixed = (high & 0x80000000U) | (low & 0x7fffffffU);
    return (mixed >> 1) ^ ((mixed & 1U) ? 0x9908b0dfU : 0U);
}

static inline void twister_refill(Twister *twister)
{
    uint32_t *state = twister->state;
    int i;
    for (i = 0; i < TWISTER_WORDS - TWISTER_OFFSET; i++)
        state[i] = state[i + TWISTER_OFFSET] ^ twister_mix(state[i], state[i + 1]);
    for (; i < TWISTER_WORDS - 1; i++)
        state[i] = state[i + TWISTER_OFFSET - TWISTER_WORDS] ^ twister_mix(state[i], state[i + 1]);
    state[i] = state[TWISTER_OFFSET - 1] ^ twister_mix(state[i], state[0]);
    twister->next = 0;
}

static inline uint32_t twister_word(Twister *twister)
{
    if (twister->next >= TWISTER_WORDS)
        twister_refill(twister);
    uint32_t y = twister->state[twister->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

/* A number in [0, 1), as `Random.random`. */
static inline double twister_random(Twister *twister)
{
    uint32_t a = twister_word(twister) >> 5, b = twister_word(twister) >> 6;
    return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

#endif
