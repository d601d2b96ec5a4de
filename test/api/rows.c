/* Compiled with a toolkit's headers: a type other than the toolkit's is an error at its row. */
#include "toolkit.h"

#define ENTRY(treatment, symbol, base, since, flavour, parameters, arguments)                                \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters), #symbol);
#include "driver_api.inc"
