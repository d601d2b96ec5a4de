#include "control_action.h"

#include <stdbool.h>
#include <string.h>

/*
 * A deep lock has taken the program off the GPU already and calls that locked. CRIU's CUDA plugin asks for
 * the lock while the program runs, and for the checkpoint when only the control thread does: then the
 * driver's threads are frozen and can't be ended any more, and any lock of libc's may be held for ever. So
 * nothing is left for the checkpoint but to say that it is done.
 */
static bool deep;

static bool is_deep(const struct control_actions *actions)
{
    return deep && !strcmp(actions->state(), "checkpointed");
}

const char *control_action_state(const struct control_actions *actions)
{
    return is_deep(actions) ? "locked" : actions->state();
}

static bool in_state(const struct control_actions *actions, const char *state)
{
    return !strcmp(control_action_state(actions), state);
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
              control_action_state(actions), advice(actions));
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

static int lock(const struct control_actions *actions, const struct protocol_request *request,
                struct error *err)
{
    if (!request->deep)
        return actions->lock(request->timeout_ms, err);
    if (lock_and_checkpoint(actions, request->timeout_ms, err) < 0)
        return -1;
    deep = true;
    return 0;
}

/* From locked to checkpointed. */
static int checkpoint(const struct control_actions *actions, struct error *err)
{
    if (!is_deep(actions))
        return actions->checkpoint(err);
    deep = false;
    return 0;
}

/* From locked to running. */
static int unlock(const struct control_actions *actions, struct error *err)
{
    if (is_deep(actions)) {
        if (actions->restore(err) < 0)
            return -1;
        deep = false;
    }
    return actions->unlock(err);
}

static int suspend(const struct control_actions *actions, const struct protocol_request *request,
                   struct error *err)
{
    if (in_state(actions, "running"))
        return lock_and_checkpoint(actions, request->timeout_ms, err);
    if (in_state(actions, "locked"))
        return checkpoint(actions, err);
    return refuse(actions, request->action, err);
}

static int resume(const struct control_actions *actions, const struct protocol_request *request,
                  struct error *err)
{
    if (in_state(actions, "locked"))
        return unlock(actions, err);
    if (!is_suspended(actions))
        return refuse(actions, request->action, err);
    if (actions->restore(err) < 0)
        return -1;
    return actions->unlock(err);
}

int control_action_run(const struct control_actions *actions, const struct protocol_request *request,
                       struct error *err)
{
    /* Whoever left the deep lock by a way of its own, a failed restore, has left it for good. */
    deep = is_deep(actions);
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
            return lock(actions, request, err);
        break;
    case ACTION_CHECKPOINT:
        if (in_state(actions, "locked"))
            return checkpoint(actions, err);
        break;
    case ACTION_RESTORE:
        if (is_suspended(actions))
            return actions->restore(err);
        break;
    case ACTION_UNLOCK:
        if (in_state(actions, "locked"))
            return unlock(actions, err);
        break;
    default:
        break;
    }
    return refuse(actions, request->action, err);
}
