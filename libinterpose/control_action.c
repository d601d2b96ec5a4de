#include "control_action.h"

#include <stdbool.h>
#include <string.h>

static bool in_state(const struct control_actions *actions, const char *state)
{
    return !strcmp(actions->state(), state);
}

/* The checkpointed and the failed program are both off the GPU, with their data in host memory. */
static bool is_suspended(const struct control_actions *actions)
{
    return in_state(actions, "checkpointed") || in_state(actions, "failed");
}

/* What can be done in the present state, for the end of an error sentence. */
static const char *advice(const struct control_actions *actions)
{
    if (in_state(actions, "running"))
        return "suspend it, or lock it first";
    if (in_state(actions, "locked"))
        return "checkpoint or unlock it";
    if (in_state(actions, "checkpointed"))
        return "resume it, or restore it first";
    if (in_state(actions, "failed"))
        return "its data is safe in host memory; try resume again";
    return "look at its status";
}

static int refuse(const struct control_actions *actions, enum protocol_action action, struct error *err)
{
    error_set(err, ERROR_STATE, "can't %s: the program is %s; %s", protocol_action_names[action],
              actions->state(), advice(actions));
    return -1;
}

static int lock_and_checkpoint(const struct control_actions *actions, uint64_t timeout_ms, struct error *err)
{
    struct error cause = {0}, undo = {0};

    if (actions->lock(timeout_ms, err) < 0)
        return -1;
    if (actions->checkpoint(&cause) == 0)
        return 0;
    /* Still locked: nothing was torn down, and the lock is ours to undo. Else only a restore helps. */
    if (in_state(actions, "locked") && actions->unlock(&undo) < 0)
        error_set(err, cause.code, "%.600s; and then the program could not be unlocked: %.300s", cause.text,
                  undo.text);
    else
        *err = cause;
    return -1;
}

static int suspend(const struct control_actions *actions, const struct protocol_request *request,
                   struct error *err)
{
    if (in_state(actions, "running"))
        return lock_and_checkpoint(actions, request->timeout_ms, err);
    if (in_state(actions, "locked"))
        return actions->checkpoint(err);
    return refuse(actions, request->action, err);
}

static int resume(const struct control_actions *actions, const struct protocol_request *request,
                  struct error *err)
{
    if (in_state(actions, "locked"))
        return actions->unlock(err);
    if (!is_suspended(actions))
        return refuse(actions, request->action, err);
    if (actions->restore(err) < 0)
        return -1;
    return actions->unlock(err);
}

int control_action_run(const struct control_actions *actions, const struct protocol_request *request,
                       struct error *err)
{
    switch (request->action) {
    case ACTION_SUSPEND:
        return suspend(actions, request, err);
    case ACTION_RESUME:
        return resume(actions, request, err);
    case ACTION_TOGGLE:
        if (in_state(actions, "running"))
            return suspend(actions, request, err);
        if (is_suspended(actions))
            return resume(actions, request, err);
        break;
    case ACTION_LOCK:
        if (in_state(actions, "running"))
            return actions->lock(request->timeout_ms, err);
        break;
    case ACTION_CHECKPOINT:
        if (in_state(actions, "locked"))
            return actions->checkpoint(err);
        break;
    case ACTION_RESTORE:
        if (is_suspended(actions))
            return actions->restore(err);
        break;
    case ACTION_UNLOCK:
        if (in_state(actions, "locked"))
            return actions->unlock(err);
        break;
    default:
        break;
    }
    return refuse(actions, request->action, err);
}
