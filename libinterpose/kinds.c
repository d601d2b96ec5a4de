/* What the kinds need of the driver when it was taken over. */
#include "kinds.h"

#include "device_memory.h"
#include "driver_api.h"
#include "stream_memory.h"

static void set_context(CUcontext context)
{
    driver.cuCtxSetCurrent(context);
}

void kinds_start(void)
{
    device_memory_start(&device_memory_driver_ops);
    virtual_memory_start();
    stream_memory_start();
    journal_use(context_current, set_context);
}
