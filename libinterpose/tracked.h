#ifndef CUDACKPT_TRACKED_H
#define CUDACKPT_TRACKED_H
/*
 * Prototypes of the hooks, taken from the rows: a hook with a wrong signature does not compile. Hooks run inside of the
 * gate, on the program's thread; they call the driver through struct driver and keep the journal.
 */

#include "driver_api.h"

#define DECLARE_TRACKED(symbol, parameters) CUresult track_##symbol parameters;
#define DECLARE_FORWARD(symbol, parameters)
#define DECLARE_UNGATED(symbol, parameters)
#define DECLARE_UNSAVEABLE(symbol, parameters)
#define DECLARE_UNREVIEWED(symbol, parameters)
#define DECLARE_SPECIAL(symbol, parameters)
#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    DECLARE_##treatment(symbol, parameters)
#include "driver_api.inc"
#undef ENTRY

#endif
