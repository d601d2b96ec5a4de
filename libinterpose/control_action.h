#ifndef CUDACKPT_CONTROL_ACTION_H
#define CUDACKPT_CONTROL_ACTION_H
/* Which steps an action takes in which state. On the control thread. */

#include "control.h"
#include "protocol.h"

/* Runs a request that changes the state (not state, status, restore-tid). */
int control_action_run(const struct control_actions *actions, const struct protocol_request *request,
                       struct error *err);

#endif
