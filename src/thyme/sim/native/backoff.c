/* Back-off: when each station may send. There is no event per slot: the countdown is computed when
   the medium becomes busy or idle for a waiting station. */

#include "radio.h"

#include <stdlib.h>

static int64_t draw_slots(Radio *radio, const Station *station)
{
    return (int64_t)(twister_random(&radio->backoff) * (station->cw + 1));
}

/* Reservations */

int mac_set_nav(Radio *radio, int64_t for_us, const word *stations, int except)
{
    NavQueue *nav = &radio->nav;
    size_t words = radio->links.words;
    if (nav->first && nav->first + nav->count == nav->capacity) {
        memmove(nav->until_us, nav->until_us + nav->first, (size_t)nav->count * sizeof(int64_t));
        memmove(nav->stations, nav->stations + (size_t)nav->first * words,
                (size_t)nav->count * words * sizeof(word));
        nav->first = 0;
    }
    int last = nav->first + nav->count, capacity = nav->capacity;
    if (array_reserve((void **)&nav->until_us, last, &capacity, sizeof(int64_t)) < 0)
        return -1;
    capacity = nav->capacity;
    if (array_reserve((void **)&nav->stations, last, &capacity, words * sizeof(word)) < 0)
        return -1;
    nav->capacity = capacity;
    nav->until_us[last] = radio->kernel->now_us + for_us;
    set_copy(nav->stations + (size_t)last * words, stations, words);
    set_remove(nav->stations + (size_t)last * words, except);
    nav->count++;
    return 0;
}

/* The end of the reservation that a station has decoded (its NAV); 0 for none. */
int64_t mac_nav_until_us(Radio *radio, int number)
{
    NavQueue *nav = &radio->nav;
    size_t words = radio->links.words;
    int64_t now_us = radio->kernel->now_us, latest_us = 0;
    while (nav->count && nav->until_us[nav->first] <= now_us) {
        nav->first++;
        nav->count--;
    }
    for (int i = nav->first; i < nav->first + nav->count; i++)
        if (nav->until_us[i] > latest_us && set_has(nav->stations + (size_t)i * words, number))
            latest_us = nav->until_us[i];
    return latest_us > now_us ? latest_us : 0;
}

/* The end of the EIFS of a station whose last received frame could not be decoded; 0 if it was. */
static int64_t eifs_until_us(Radio *radio, int number)
{
    EndedQueue *ended = &radio->ended;
    for (int i = ended->first + ended->count - 1; i >= ended->first; i--) {
        Transmission *tx = ended->items[i];
        if ((set_has(tx->locked, number) || set_has(tx->maybe_locked, number))
            && medium_was_locked(radio, tx, number))
            return set_has(tx->decoded, number) ? 0 : tx->end_us + radio->eifs_us;
    }
    return 0;
}

/* Countdown */

static int schedule_transmit(Radio *radio, Station *station, int64_t at_us)
{
    station->generation++;
    station->transmit_at_us = at_us;
    station->references++;
    return kernel_schedule(radio->kernel, at_us, &backoff_end_event, (PyObject *)radio, station,
                           station->generation);
}

/* Starts the countdown; with a frame in the queue, schedules its transmission. */
int mac_start_countdown(Radio *radio, Station *station, int64_t from_us)
{
    if (radio->ended.count) {
        int64_t eifs_us = eifs_until_us(radio, station->number);
        if (eifs_us > from_us)
            from_us = eifs_us;
    }
    station->countdown_from_us = from_us;
    if (!station->queue_count || station->sending)
        return 0;
    return schedule_transmit(radio, station, from_us + station->backoff_slots * radio->slot_us);
}

/* Starts the access procedure for the first frame in an empty queue. */
int mac_contend(Radio *radio, Station *station)
{
    int64_t now_us = radio->kernel->now_us, idle_us = now_us;
    int number = station->number;
    if (set_has(radio->in_backoff, number)) {
        if (station->countdown_from_us == NEVER)
            return 0; /* the medium is busy; the countdown resumes when it is idle */
        int64_t ends_us = station->countdown_from_us + station->backoff_slots * radio->slot_us;
        if (ends_us > now_us)
            return schedule_transmit(radio, station, ends_us);
    } else {
        set_add(radio->in_backoff, number);
    }
    if (set_has(radio->busy, number)) {
        station->backoff_slots = draw_slots(radio, station);
        station->countdown_from_us = NEVER;
        return 0;
    }
    station->backoff_slots = 0;
    if (radio->nav.count) {
        int64_t nav_us = mac_nav_until_us(radio, number);
        if (nav_us > now_us) {
            station->backoff_slots = draw_slots(radio, station);
            idle_us = nav_us;
        }
    }
    return mac_start_countdown(radio, station, idle_us + radio->difs_us);
}

/* Draws a new back-off after a transmission, whether or not a frame is waiting. */
int mac_start_backoff(Radio *radio, Station *station, int64_t from_us)
{
    station->sending = false;
    station->backoff_slots = draw_slots(radio, station);
    station->transmit_at_us = NEVER;
    set_add(radio->in_backoff, station->number);
    if (set_has(radio->busy, station->number)) {
        station->countdown_from_us = NEVER;
        return 0;
    }
    return mac_start_countdown(radio, station, from_us);
}

/* Freezes the back-off of stations that sense a new frame, except of those that will send before
   they can detect it. */
void mac_freeze_backoff(Radio *radio, const word *waiting)
{
    int64_t now_us = radio->kernel->now_us, blind_us = now_us + radio->preamble_detection_us;
    FOR_MEMBERS(number, waiting, radio->links.words)
    {
        Station *station = radio->stations[number];
        if (station->countdown_from_us == NEVER
            || (station->transmit_at_us != NEVER && station->transmit_at_us <= blind_us))
            continue;
        int64_t passed = (now_us - station->countdown_from_us) / radio->slot_us;
        if (passed > 0)
            station->backoff_slots =
                passed < station->backoff_slots ? station->backoff_slots - passed : 0;
        if (!station->backoff_slots && !station->queue_count)
            set_remove(radio->in_backoff, number); /* the queue is empty and the back-off is over */
        station->countdown_from_us = NEVER;
        station->transmit_at_us = NEVER;
        station->generation++;
    }
}

/* The instant from which a station counts down after a frame that has just ended. */
int64_t mac_countdown_from_us(Radio *radio, Transmission *tx, int number)
{
    int64_t now_us = radio->kernel->now_us, from_us = now_us, other_us;
    if (radio->nav.count) {
        int64_t nav_us = mac_nav_until_us(radio, number);
        if (nav_us > from_us)
            from_us = nav_us;
    }
    from_us += radio->difs_us;
    if (set_has(tx->decoded, number))
        return from_us;
    if (set_has(tx->locked, number))
        other_us = now_us + radio->eifs_us;
    else
        other_us = eifs_until_us(radio, number);
    return other_us > from_us ? other_us : from_us;
}

/* Groups */

static void release_group(void *argument)
{
    BackoffGroup *group = argument;
    for (int i = 0; i < group->count; i++)
        station_release(group->members[i].station);
    PyMem_Free(group);
}

static int traverse_nothing(void *Py_UNUSED(argument), visitproc Py_UNUSED(visit),
                            void *Py_UNUSED(arg))
{
    return 0;
}

static int compare_members(const void *one, const void *other)
{
    const GroupMember *a = one, *b = other;
    if (a->at_us != b->at_us)
        return a->at_us < b->at_us ? 1 : -1;
    return a->station->number < b->station->number ? 1 : -1;
}

static int schedule_group(Radio *radio, BackoffGroup *group)
{
    return kernel_schedule(radio->kernel, group->members[group->count - 1].at_us,
                           &group_backoff_end_event, (PyObject *)radio, group, 0);
}

static int remember_ended(Radio *radio, Transmission *tx)
{
    EndedQueue *ended = &radio->ended;
    int64_t oldest_us = radio->kernel->now_us - radio->eifs_us;
    while (ended->count && ended->items[ended->first]->end_us < oldest_us) {
        ended->count--;
        transmission_release(ended->items[ended->first++]);
    }
    if (ended->first && ended->first + ended->count == ended->capacity) {
        memmove(ended->items, ended->items + ended->first,
                (size_t)ended->count * sizeof(Transmission *));
        ended->first = 0;
    }
    if (array_reserve((void **)&ended->items, ended->first + ended->count, &ended->capacity,
                      sizeof(Transmission *)) < 0)
        return -1;
    tx->references++;
    ended->items[ended->first + ended->count++] = tx;
    return 0;
}

/* Resumes the back-off of stations for which the medium is idle after a frame. */
int mac_resume_backoff(Radio *radio, Transmission *tx)
{
    size_t words = radio->links.words;
    word *waiting = STACK_SET(words);
    if (remember_ended(radio, tx) < 0)
        return -1;
    int stations = 0, count = 0;
    for (size_t i = 0; i < words; i++)
        waiting[i] = tx->sensing[i] & radio->in_backoff[i] & ~radio->busy[i];
    FOR_MEMBERS(number, waiting, words)
    stations += radio->stations[number]->countdown_from_us == NEVER;
    if (!stations)
        return 0;
    BackoffGroup *group =
        PyMem_Malloc(sizeof(BackoffGroup) + (size_t)stations * sizeof(GroupMember));
    if (group == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    FOR_MEMBERS(number, waiting, words)
    {
        Station *station = radio->stations[number];
        if (station->countdown_from_us != NEVER)
            continue;
        int64_t from_us = mac_countdown_from_us(radio, tx, number);
        station->countdown_from_us = from_us;
        if (!station->queue_count || station->sending)
            continue;
        station->generation++;
        station->transmit_at_us = from_us + station->backoff_slots * radio->slot_us;
        station->references++;
        GroupMember member = {station->transmit_at_us, station->generation, station};
        group->members[count++] = member;
    }
    group->count = count;
    if (!count) {
        PyMem_Free(group);
        return 0;
    }
    qsort(group->members, (size_t)count, sizeof(GroupMember), compare_members);
    return schedule_group(radio, group);
}

/* Ends the back-off of the first stations of a group that resumed together. The group shares an
   event, because usually one station sends and the others freeze. */
static int on_group_backoff_end(PyObject *owner, void *argument, int64_t Py_UNUSED(number))
{
    Radio *radio = (Radio *)owner;
    BackoffGroup *group = argument;
    int64_t now_us = radio->kernel->now_us;
    while (group->count && group->members[group->count - 1].at_us <= now_us) {
        GroupMember member = group->members[--group->count];
        int status = 0;
        if (member.generation == member.station->generation)
            status = mac_on_backoff_end(radio, member.station, member.generation);
        station_release(member.station);
        if (status < 0) {
            release_group(group);
            return -1;
        }
    }
    while (group->count) {
        GroupMember *last = &group->members[group->count - 1];
        if (last->generation == last->station->generation)
            return schedule_group(radio, group);
        station_release(last->station);
        group->count--;
    }
    release_group(group);
    return 0;
}

const EventType group_backoff_end_event = {on_group_backoff_end, release_group, traverse_nothing};
