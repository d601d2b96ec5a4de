/*
 * Every exported function of the driver, and nothing else: the rows of driver_api.inc with one meaning per treatment.
 *
 *   FORWARD     through the gate, to the driver
 *   TRACKED     through the gate, to track_<symbol> in the file of the object's kind
 *   UNGATED     to the driver at once: answers from constant text, must work while suspended
 *   UNSAVEABLE  like FORWARD; when it succeeded the process can't be suspended from then on, with the row's reason
 *   UNREVIEWED  the same: a symbol that the policy does not mention yet
 *   SPECIAL     written by hand in special.c
 */
#include "wrappers.h"

#include "driver_api.h"
#include "gate.h"
#include "lifecycle.h"
#include "tracked.h"
#include "unsaveable.h"

#define EXPORT __attribute__((visibility("default")))

/* Told once: the reason stays, however often the function is called. */
static void note_unsaveable(enum driver_row row)
{
    static bool noted[ROW_COUNT];

    if (!__atomic_exchange_n(&noted[row], true, __ATOMIC_RELAXED))
        unsaveable_note("%s: %s", driver_entries[row].symbol, driver_entries[row].reason);
}

#define THROUGH_GATE(symbol, parameters, call, after)                                                        \
    EXPORT CUresult symbol parameters;                                                                       \
    EXPORT CUresult symbol parameters                                                                        \
    {                                                                                                        \
        uint32_t outer_ = gate_enter(ROW_##symbol);                                                          \
        CUresult result_ = call;                                                                             \
        after;                                                                                               \
        gate_leave(outer_);                                                                                  \
        return result_;                                                                                      \
    }

#define FORWARD(symbol, parameters, arguments) THROUGH_GATE(symbol, parameters, driver.symbol arguments, )
#define TRACKED(symbol, parameters, arguments) THROUGH_GATE(symbol, parameters, track_##symbol arguments, )
#define UNSAVEABLE(symbol, parameters, arguments)                                                            \
    THROUGH_GATE(symbol, parameters, driver.symbol arguments,                                                \
                 if (result_ == CUDA_SUCCESS) note_unsaveable(ROW_##symbol))
#define UNREVIEWED UNSAVEABLE
#define UNGATED(symbol, parameters, arguments)                                                               \
    EXPORT CUresult symbol parameters;                                                                       \
    EXPORT CUresult symbol parameters                                                                        \
    {                                                                                                        \
        lifecycle_set_up();                                                                                  \
        return driver.symbol arguments;                                                                      \
    }
#define SPECIAL(symbol, parameters, arguments) EXPORT CUresult symbol parameters;

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    treatment(symbol, parameters, arguments)
#include "driver_api.inc"
#undef ENTRY

void *const wrappers[ROW_COUNT] = {
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments) (void *)symbol,
#include "driver_api.inc"
#undef ENTRY
};
