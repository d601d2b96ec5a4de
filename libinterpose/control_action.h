#ifndef CUDACKPT_CONTROL_ACTION_H
#define CUDACKPT_CONTROL_ACTION_H
/* Which steps an action takes in which state. On the control thread. */

#include "control.h"
#include "protocol.h"

/* Runs a request that changes the state (not state, status, restore-tid). */
int control_action_run(const struct control_actions *actions, const struct protocol_request *request,
                       struct error *err);

/* The state to tell: the real one, but "locked" while a deep lock is on. Also in the middle of an action. */
const char *control_action_state(const struct control_actions *actions);

#endif
